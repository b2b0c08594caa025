"""Whatever valid traces a job's ranks have: a row for each, no negative wait, and never an exception."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.analysis import analyze
from deepprof.collectors.trace import Trace
from tests.chance import examples
from tests.tables import Row, event, launch, make_trace

NAMES = ["k0", "k1", "k2", "ncclDevKernel_AllReduce(x)", "ncclDevKernel_AllGather(x)", "ncclKernel_SendRecv(x)"]
PERIOD = 700


@st.composite
def jobs(draw: st.DrawFn) -> list[Trace]:
    """Ranks that repeat the same few events, each a little differently and some of them not at all."""
    times = st.tuples(st.integers(0, 400), st.integers(0, 90))
    kernels = draw(st.lists(times, min_size=7, max_size=9))
    collectives = draw(st.lists(st.tuples(st.integers(3, 5), *[st.integers(0, 90)] * 2), max_size=5))
    rows = [(k % 3, 40 * k + start % 40, length) for k, (start, length) in enumerate(kernels)] + collectives
    return [rank_of(draw, number, rows) for number in range(draw(st.integers(2, 3)))]


def rank_of(draw: st.DrawFn, rank: int, rows: list[tuple[int, int, int]]) -> Trace:
    jitter, dropped = draw(st.sampled_from([0, 0, 5, 30])), draw(st.sampled_from([0, 0, 0, 8]))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    linked, device, host = draw(st.booleans()), list[Row](), list[Row]()
    for i in range(draw(st.integers(3, 7))):
        for k, (name, start, length) in enumerate(rows):
            if random.integers(0, 100) < dropped:
                continue
            at = i * PERIOD + start + int(random.integers(0, jitter + 1))
            number = i * 100 + k
            stream = 7 if name < 3 else 8 + (name + rank) % 2
            device.append(event(name, at, at + length, stream=stream, correlation=number))
            host += [launch(number, at - 9, at - 8)] if linked else []
    return make_trace(device, host, names=NAMES, rank=rank)


@settings(max_examples=examples(60))
@given(jobs(), st.lists(st.integers(2, 6), max_size=1))
def test_any_job_has_a_row_per_rank(traces: list[Trace], counts: list[int]) -> None:
    analysis = analyze(traces, counts=counts)
    report = json.loads(analysis.to_json())
    if analysis.ranks is None:
        assert not analysis.loops
        return
    assert sorted(block["rank"] for block in report["ranks"]) == list(range(len(traces)))
    assert all(block["waiting_ns"] is None or block["waiting_ns"] >= 0 for block in report["ranks"])
    for group in analysis.ranks.groups:
        assert all(wait >= 0 for wait in group.waits["waiting_ns"].to_list())
    skews = analysis.ranks.skews["skew_ns"]
    assert skews.is_empty() or int(str(skews.min())) >= 0
    for finding in analysis.findings:
        assert finding.rule != "straggler" or finding.confidence <= 1
