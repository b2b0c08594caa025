"""Collectives of a CPU's backend, which its threads run: ranks are compared by them as by those of a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import deepprof
from deepprof.collectors.trace import Trace
from tests.tables import Row, make_trace, span

NAMES = (
    "aten::linear",
    "autograd::engine::evaluate_function: MmBackward0",
    "Optimizer.step#SGD.step",
    "aten::add_",
    "c10d::allreduce_",
    "COLLECTIVE",
    *(f"aten::layer_{k}" for k in range(8)),
)
FORWARD, BACKWARD, STEP, UPDATE, CALL, COLLECTIVE, LAYERS = range(7)
MS = 1_000_000
ITERATIONS, SLEEP_NS, STALL_NS = 30, 20 * MS, 150 * MS
MAIN, WORKERS = 11, (12, 13)


def op(name: int, start: int, end: int) -> Row:
    return {"start_ns": start, "end_ns": end, "process": 1, "thread": MAIN, "category": "op", "name_id": name}


def train(rank: int, late: int | None, collective: str, stalled: Sequence[int] = ()) -> Trace:
    """A rank of a data-parallel job: each iteration ends one all-reduce, from whichever thread is free.

    The `late` rank sleeps before every iteration; all leave the collective when it comes, and when they are woken. In
    the iterations `stalled` the collective itself lasts long, as on a host that has other work.
    """
    woken, free = (np.random.default_rng([seed, rank]) for seed in (1, 2))
    host: list[Row] = []
    ranges: list[Row] = []
    begin = 0
    for iteration in range(ITERATIONS):
        at = begin + (SLEEP_NS if rank == late else 0)
        for layer in range(8):
            host.append(op(LAYERS + layer, at, at + 40_000))
            at += 50_000
        host += [op(FORWARD, at, at + 90_000), op(CALL, at + 100_000, at + 150_000)]
        at += 160_000
        everyone = begin + SLEEP_NS + 560_000 + 200_000  # when the last one has come, and the data were sent
        everyone += STALL_NS if iteration in stalled else 0
        done = everyone + int(woken.integers(0, 600_000))
        ranges.append(span(COLLECTIVE, at, done, thread=int(free.choice(WORKERS)), framework=True))
        host += [op(BACKWARD, at + 10_000, at + 60_000), op(UPDATE, done + 10_000, done + 60_000)]
        ranges.append(span(STEP, done + 5_000, done + 70_000, thread=MAIN, framework=True))
        begin = everyone + 700_000
    names = [collective if name == "COLLECTIVE" else name for name in NAMES]
    return make_trace(host=host, annotations=ranges, names=names, rank=rank)


def diagnose(traces: Sequence[Trace]) -> deepprof.Analysis:
    return deepprof.analyze(list(traces))


@pytest.mark.parametrize("collective", ["gloo:all_reduce", "mpi:all_reduce", "ucc:all_gather", "gloo:barrier"])
def test_the_late_rank_is_named(collective: str) -> None:
    analysis = diagnose([train(rank, 1, collective) for rank in range(3)])
    first = analysis.findings[0]
    assert (first.rule, first.rank) == ("straggler", 1)
    assert first.headroom_ns_per_iteration == pytest.approx(SLEEP_NS, rel=0.1)
    assert first.confidence > 0.8
    bound = [f for f in analysis.findings if f.rule == "communication-bound"]
    assert {f.caused_by for f in bound} == {"straggler"}


def test_few_collectives_that_take_long_do_not_hide_the_late_rank() -> None:
    """They lift the mean of what all ranks wait; what the late rank costs a usual iteration is not less for it."""
    analysis = diagnose([train(rank, 1, "gloo:all_reduce", stalled=(9, 17, 24)) for rank in range(2)])
    assert (analysis.findings[0].rule, analysis.findings[0].rank) == ("straggler", 1)
    [bound] = [f for f in analysis.findings if f.rule == "communication-bound" and f.rank == 0]
    assert int(bound.evidence["cost_ns_per_iteration"] or 0) > SLEEP_NS / 0.8
    assert bound.caused_by == "straggler"


def test_without_a_late_rank_nobody_is_named_and_no_advice_is_what_was_done() -> None:
    analysis = diagnose([train(rank, None, "gloo:all_reduce") for rank in range(2)])
    assert [f.rule for f in analysis.findings if f.rule == "straggler"] == []
    [first, *_] = [f for f in analysis.findings if f.rule == "communication-bound"]
    assert "all ranks together" not in first.advice
    [alone, *_] = diagnose([train(0, None, "gloo:all_reduce")]).findings
    assert "Diagnose all ranks together" in alone.advice


def test_a_call_of_a_collective_is_communication() -> None:
    [trace] = deepprof.analyze(train(0, None, "gloo:all_reduce")).traces
    from deepprof.metrics.streams import classify_streams

    rows = classify_streams(trace)
    assert rows.filter(stream=MAIN)["collectives"].to_list() == [ITERATIONS]
