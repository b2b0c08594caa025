"""Whatever valid trace comes along: a report that adds up, and never an exception."""

from __future__ import annotations

import json

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepprof.analysis import analyze
from tests.chance import examples
from tests.tables import Row, copy, event, launch, make_trace, span

NAMES = [
    "k0",
    "k1",
    "multi_tensor_apply_kernel",
    "ncclDevKernel_AllReduce(x)",
    "ProfilerStep#1",
    "Optimizer.step#A",
    "cudaStreamSynchronize",
]
TIMES = st.integers(0, 400)
LENGTHS = st.integers(0, 30)


@st.composite
def device_rows(draw: st.DrawFn) -> Row:
    start, length = draw(TIMES), draw(LENGTHS)
    place = {"device": draw(st.integers(0, 1)), "stream": draw(st.integers(6, 8))}
    if draw(st.booleans()):
        return event(
            draw(st.integers(0, 3)), start, start + length, correlation=draw(st.integers(0, 40) | st.none()), **place
        )
    if draw(st.booleans()):
        return event(1, start, start + length, activity=draw(st.sampled_from(["graph", "sync", "memset"])), **place)
    return copy(
        start,
        start + length,
        draw(st.integers(0, 10**9)),
        kind=draw(st.sampled_from(["HtoD", "DtoH", "DtoD"])),
        **place,
    )


@st.composite
def host_rows(draw: st.DrawFn) -> Row:
    start = draw(TIMES)
    return launch(draw(st.integers(0, 40)), start, start + draw(LENGTHS), draw(st.sampled_from([0, 6])))


@st.composite
def ranges(draw: st.DrawFn) -> Row:
    start, end = draw(TIMES), draw(st.integers(0, 60) | st.none())
    return span(
        draw(st.sampled_from([4, 5])), start, None if end is None else start + end, framework=draw(st.booleans())
    )  # type: ignore[arg-type]


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(device_rows(), max_size=40),
    st.lists(host_rows(), max_size=12),
    st.lists(ranges(), max_size=6),
    st.integers(1, 5),
    st.lists(st.integers(2, 9), max_size=2),
)
def test_any_trace_gives_a_report_that_adds_up(
    device: list[Row], host: list[Row], annotations: list[Row], repeats: int, counts: list[int]
) -> None:
    shifted = [
        row | {"start_ns": int(str(row["start_ns"])) + 500 * i, "end_ns": int(str(row["end_ns"])) + 500 * i}
        for i in range(repeats)
        for row in device
    ]
    analysis = analyze(make_trace(shifted, host, annotations, NAMES), counts=counts)
    report = json.loads(analysis.to_json())
    assert report["trace"]["busy_ns"] + report["trace"]["idle_ns"] == report["trace"]["span_ns"]
    assert (report["no_loop_reason"] is None) == bool(report["loops"])
    table = analysis.iterations
    assert table["idle_ns"].min() is None or table["idle_ns"].min() >= 0  # type: ignore[operator]
    assert table.filter(~pl.col("overlap_ratio").is_between(0, 1)).is_empty()
    for loop in analysis.loops:
        assert 0 <= loop.confidence <= 1
        assert loop.iterations["start_ns"].is_sorted()
