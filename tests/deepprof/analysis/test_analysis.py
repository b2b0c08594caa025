"""The pipeline and its one result, on made-up jobs with known truth."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from deepprof import simulation
from deepprof.analysis import BREAKDOWN, METRICS, Analysis, analyze
from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.parts import PARTS
from deepprof.metrics.iteration import ITERATIONS
from tests.hidden import without_ranges
from tests.tables import copy, event, launch, make_trace

JOB = [1, 2, *[3, 4, 5, 6] * 100, 7] * 4
SCENARIOS = ["healthy", "graph-growth", "copy-bound"]


@pytest.fixture(scope="module", params=SCENARIOS)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[simulation.Simulation, Path]:
    truth = simulation.simulate(request.param)
    path = tmp_path_factory.mktemp("job") / "trace.json.gz"
    simulation.write(truth, path)
    return truth, path


def test_simulated_jobs_are_diagnosed_as_what_they_are(job: tuple[simulation.Simulation, Path]) -> None:
    truth, path = job
    analysis = deepprof.analyze(deepprof.read(path))
    (loop,) = analysis.loops
    complete = loop.iterations.filter("complete")
    assert complete["start_ns"].to_list() == list(truth.starts_ns)
    assert complete["kernels"].to_list() == list(truth.kernels)
    intervals = complete["interval_ns"].to_list()
    assert [b for a, b in zip(intervals, truth.intervals_ns, strict=False) if a is not None] == [
        a for a in intervals if a is not None
    ]
    assert [f.rule for f in analysis.findings if f.caused_by is None] == [truth.finding] * (truth.finding is not None)
    assert analysis.no_loop_reason is None


def test_the_analysis_is_the_same_without_any_range(job: tuple[simulation.Simulation, Path]) -> None:
    truth, path = job
    analysis = deepprof.analyze(without_ranges(deepprof.read(path)))
    assert analysis.loops[0].iterations.filter("complete")["start_ns"].to_list() == list(truth.starts_ns)
    assert [f.rule for f in analysis.findings if f.caused_by is None] == [truth.finding] * (truth.finding is not None)


def test_tables_are_polars_and_json_is_the_report(job: tuple[simulation.Simulation, Path]) -> None:
    _, path = job
    analysis = deepprof.analyze(deepprof.read(path))
    assert {"rank", "name", "start_ns"} <= set(analysis.events.columns)
    assert set(ITERATIONS) <= set(analysis.iterations.columns)
    assert analysis.iterations["loop"].unique().to_list() == [0]
    assert analysis.metrics["period"].to_list() == [analysis.loops[0].period]
    report = json.loads(analysis.to_json())
    assert report["schema"] == "deepprof.report/1"
    assert report["loops"][0]["metrics"]["avg_interval_ns"] == analysis.metrics["avg_interval_ns"][0]


def test_a_trace_without_kernels_has_a_reason_and_empty_tables() -> None:
    analysis = analyze(make_trace([copy(0, 5, 8)]))
    assert analysis.loops == ()
    assert analysis.no_loop_reason == "the trace holds no GPU kernel"
    assert analysis.iterations.is_empty()
    assert analysis.metrics.is_empty()
    assert analysis.summary.span_ns == 5
    assert analysis.events.height == 1


def test_collectives_alone_compute_nothing() -> None:
    rows = [event(0, t, t + 1) for t in range(0, 90, 3)]
    analysis = analyze(make_trace(rows, names=["ncclDevKernel_AllReduce(x)"]))
    assert analysis.no_loop_reason == "only collectives ran on the device; no stream computes"


def test_a_handful_of_kernels_says_nothing_of_a_job() -> None:
    few, more = map(late_launches, (5, 6))
    assert (few.no_loop_reason, few.findings) == ("only 5 kernels on the main stream, too few to repeat", ())
    assert [each.top.over for each in few.stretches] == ["recording"]
    assert [finding.rule for finding in more.findings] == ["launch-bound"]


def late_launches(count: int) -> Analysis:
    """Return what this many short kernels show that are launched one by one, long after the one before has ended."""
    starts = [9_000 * t for t in range(1, count + 1)]
    device = [event(0, start, start + 50, correlation=t) for t, start in enumerate(starts)]
    return analyze(make_trace(device, [launch(t, start - 900, start - 10) for t, start in enumerate(starts)]))


def test_time_adds_up_over_devices_and_ranks() -> None:
    one = make_trace([event(0, 0, 10), event(0, 5, 8), event(0, 20, 30), event(0, 100, 110, device=1)], rank=0)
    two = make_trace([event(0, 0, 7)], rank=1)
    summary = analyze([one, two]).summary
    assert (summary.span_ns, summary.busy_ns, summary.idle_ns) == (30 + 10 + 7, 20 + 10 + 7, 10)
    assert summary.events == {"kernel": 5, "memcpy": 0, "memset": 0, "graph": 0}


def test_every_rank_and_device_gets_its_own_loop(job: tuple[simulation.Simulation, Path]) -> None:
    _, path = job
    trace = deepprof.read(path)
    analysis = deepprof.analyze([replace(trace, rank=0), replace(trace, rank=1)])
    assert [loop.rank for loop in analysis.loops] == [0, 1]
    assert sorted(analysis.iterations["rank"].unique()) == [0, 1]


def test_a_stream_may_be_chosen(job: tuple[simulation.Simulation, Path]) -> None:
    _, path = job
    trace = deepprof.read(path)
    assert deepprof.analyze(trace, stream=(0, 7)).loops[0].stream == 7
    with pytest.raises(deepprof.UsageError, match=r"stream 3:9 runs no kernel; streams that do: 0:7"):
        deepprof.analyze(trace, stream=(3, 9))


@pytest.mark.parametrize("counts", [[0], [1], [40, 1], [-5], [2.5]])
def test_impossible_counts_are_refused(counts: list[int]) -> None:
    with pytest.raises(deepprof.UsageError, match="at least 2"):
        analyze(make_trace([event(0, 0, 1)]), counts=counts)


def test_no_trace_is_refused() -> None:
    with pytest.raises(deepprof.UsageError, match="no trace given"):
        analyze([])


def test_the_papers_mode_uses_the_count(job: tuple[simulation.Simulation, Path]) -> None:
    truth, path = job
    (loop,) = deepprof.analyze(deepprof.read(path), counts=[truth.iterations]).loops
    assert loop.evidence.startswith("paper mode")
    assert int(loop.iterations["complete"].sum()) == truth.iterations


def test_the_papers_mode_is_never_worse_than_none(job: tuple[simulation.Simulation, Path]) -> None:
    """Its pattern is shorter than an iteration: where the miner counts as many, the miner's loop is."""
    truth, path = job
    trace = deepprof.read(path)
    given, free = deepprof.analyze(trace, counts=[truth.iterations]), deepprof.analyze(trace)
    assert given.loops[0].iterations.equals(free.loops[0].iterations)
    assert [f.rule for f in given.findings] == [f.rule for f in free.findings]


def test_a_count_that_the_miner_does_not_have_is_the_papers(job: tuple[simulation.Simulation, Path]) -> None:
    truth, path = job
    (loop,) = deepprof.analyze(deepprof.read(path), counts=[8 * truth.iterations]).loops
    assert loop.period < min(truth.kernels) / 4
    assert loop.evidence.startswith("paper mode")


def test_no_loop_is_given_for_two_counts() -> None:
    """Only the paper's mode can state what else comes back as often."""
    rows = [event(name, 10 * t, 10 * t + 5) for t, name in enumerate(JOB)]
    once, twice = (analyze(make_trace(rows), counts=counts).loops for counts in ([4], [4, 4]))
    assert [loop.iterations.height for loop in once] == [4]
    assert len({loop.iterations["start_ns"][0] for loop in twice}) == len(twice)


@pytest.mark.parametrize("kernels", [3, 30])
def test_where_the_main_stream_repeats_nothing_the_next_is_looked_at(kernels: int) -> None:
    analysis = analyze(beside_a_long_one(kernels))
    assert [loop.stream for loop in analysis.loops] == [7]
    assert analysis.no_loop_reason is None
    assert analyze(beside_a_long_one(kernels), counts=[4]).loops[0].stream == 7


@pytest.mark.parametrize("kernels", [3, 30])
def test_a_chosen_stream_is_the_only_one_looked_at(kernels: int) -> None:
    analysis = analyze(beside_a_long_one(kernels), stream=(0, 9))
    assert analysis.loops == ()
    assert analysis.no_loop_reason


def beside_a_long_one(kernels: int) -> Trace:
    """Return four iterations on stream 7, and on stream 9 as many other kernels, which all differ and last longer."""
    rows = [event(name, 10 * t, 10 * t + 5) for t, name in enumerate(JOB)]
    each = 10 * len(JOB) // kernels
    rows += [event(8 + k, each * k, each * (k + 1), stream=9) for k in range(kernels)]
    return make_trace(rows)


def test_the_tables_have_one_schema_whatever_was_found(job: tuple[simulation.Simulation, Path]) -> None:
    _, path = job
    for analysis in (
        analyze(make_trace()),
        analyze(make_trace([event(0, 0, 1)])),
        deepprof.analyze(deepprof.read(path)),
    ):
        assert analysis.metrics.schema == METRICS
        assert analysis.iterations.schema == pl.Schema({**dict(list(METRICS.items())[:4]), **ITERATIONS, **PARTS})
        assert analysis.breakdown.schema == BREAKDOWN


def test_a_rank_without_a_loop_is_not_passed_over(job: tuple[simulation.Simulation, Path]) -> None:
    _, path = job
    trace = deepprof.read(path)
    analysis = analyze([replace(trace, rank=0), make_trace([event(0, t, t + 1) for t in range(9)], rank=3)])
    assert len(analysis.loops) == 1
    assert analysis.no_loop_reason is None
    (sentence,) = analysis.missing
    assert sentence.startswith("rank 3, device 0: no iteration found: ")


def test_every_device_without_a_loop_is_named() -> None:
    idle = range(12)
    rows = [event(name, 10 * t, 10 * t + 5) for t, name in enumerate(JOB)]
    rows += [event(name, t, t + 1, device=device) for device in (1, 2) for t, name in enumerate(idle)]
    analysis = analyze(make_trace(rows))
    assert [loop.device for loop in analysis.loops] == [0]
    assert [sentence[:16] for sentence in analysis.missing] == ["rank 0, device 1", "rank 0, device 2"]


def test_two_traces_of_one_rank_are_refused() -> None:
    trace = make_trace([event(0, 0, 1)])
    with pytest.raises(deepprof.UsageError, match="two traces of rank 0"):
        analyze([trace, trace])


@pytest.mark.parametrize("devices", [50, pytest.param(500, marks=pytest.mark.slow)])
def test_many_devices_with_few_kernels_are_a_report(devices: int) -> None:
    rows = [event(0, t, t + 1, device=t % devices) for t in range(10 * devices)]
    analysis = analyze(make_trace(rows))
    assert analysis.streams.height == devices
    assert analysis.no_loop_reason


def test_public_names_are_exactly_these() -> None:
    names = ["Analysis", "Comparison", "DeepProfError", "Finding", "Loop", "Store", "Trace", "TraceError", "UsageError"]
    functions = ["analyze", "attach", "compare", "connect", "open_store", "read", "read_job", "select"]
    functions += ["start", "stop"]
    assert deepprof.__all__ == sorted([*names, "__version__", *functions])
    assert all(getattr(deepprof, name) is not None for name in deepprof.__all__)
    assert set(deepprof.HOMES) | {"__version__"} == {*deepprof.__all__, "range"}  # `import *` must not hide Python's
    assert dir(deepprof) == sorted([*deepprof.__all__, "range"])
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        deepprof.nothing  # noqa: B018


def test_only_what_the_user_wrote_can_agree(job: tuple[simulation.Simulation, Path], tmp_path: Path) -> None:
    truth, path = job
    assert deepprof.analyze(deepprof.read(path)).loops[0].agreement is None
    simulation.write(simulation.simulate(truth.scenario, annotate=True), tmp_path / "annotated.json")
    (loop,) = deepprof.analyze(deepprof.read(tmp_path / "annotated.json")).loops
    assert loop.boundary_source == "annotation"
    assert loop.agreement is not None
    assert (loop.agreement.name, loop.agreement.ratio) == ("ProfilerStep", 1.0)
