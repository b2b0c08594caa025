"""Parts keep the loops of the whole: some iterations of a loop are those iterations, whatever the part alone shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import deepprof
from deepprof.analysis import Analysis
from deepprof.analysis.selection import Numbers, find_main_loop
from deepprof.collectors.kept_rows import NOT_SELECTED
from deepprof.collectors.trace import ANNOTATIONS, Accounting, Trace
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.loop import Loop
from deepprof.metrics.selection.selected_trace import SelectedTrace
from deepprof.simulation import simulate, write
from tests import manifest
from tests.deepprof.analysis.conftest import Analyzed
from tests.deepprof.diagnosis.books import check_books
from tests.deepprof.render.test_text import show
from tests.metrics.annotation.test_layers import train
from tests.metrics.contexts.test_slices import op
from tests.tables import event, make_trace, table

KEPT = ("index", "start_ns", "end_ns", "kernels", "edits", "complete", "iteration_ns", "operation_ns", "interval_ns")
SCENARIOS = ("healthy", "graph-growth", "input-bound", "accumulation", "recapture", "inference")


def main_loop(analysis: Analysis, rank: int) -> Loop | None:
    number = find_main_loop(analysis, rank)
    return None if number is None else analysis.loops[number]


def check_part(whole: Analysis, traces: Sequence[Trace], numbers: Numbers) -> None:
    """Compare a part with the chosen rows of every rank's main loop, and with what is in them of others."""
    parts = deepprof.select(traces, iterations=numbers)
    again = deepprof.analyze(parts)
    check_books(again)
    for part in parts:
        main = main_loop(whole, part.rank or 0)
        loops = [loop for loop in again.loops if loop.rank == (part.rank or 0)]
        if main is None:
            assert not loops
            continue
        first, last = numbers
        wanted = main.iterations.filter(pl.col("index") >= (first or 0), pl.col("index") < (last or 1 << 62))
        found = [loop for loop in loops if same_place(loop, main) and loop.period == main.period]
        assert wanted.height == sum(loop.iterations.height for loop in found) if wanted.height else not found
        for loop in found:
            check_loop(loop, main, wanted)
        check_others(whole, loops, wanted)


def same_place(one: Loop, other: Loop) -> bool:
    return (one.rank, one.device, one.stream) == (other.rank, other.device, other.stream)


def check_loop(loop: Loop, main: Loop, wanted: pl.DataFrame) -> None:
    assert loop.iterations.select(KEPT).equals(wanted.select(KEPT))
    assert loop.iterations["events"].to_list() == wanted["events"].to_list()
    assert (loop.confidence, loop.boundary_source) == (main.confidence, main.boundary_source)
    assert loop.whole_iterations == main.iterations.height
    assert loop.evidence == f"of the whole recording: {main.evidence}"
    known = loop.table.drop_nulls("iteration_ns")
    assert (known["busy_ns"] + known["idle_ns"]).to_list() == known["iteration_ns"].to_list()
    check_parts(loop)


def check_parts(loop: Loop) -> None:
    """The parts of an iteration are its time, though the part of the trace may begin after it and end before it."""
    known = loop.table
    length = known["busy_ns"] + known["idle_ns"]
    assert known.select(pl.sum_horizontal(PART_NAMES)).to_series().to_list() == length.to_list()


def check_others(whole: Analysis, loops: Sequence[Loop], wanted: pl.DataFrame) -> None:
    """No iteration of another loop is there that the whole has not, and none is complete that was cut."""
    until = int((wanted["start_ns"] + wanted["busy_ns"] + wanted["idle_ns"]).max() or 0)  # type: ignore[operator,arg-type]
    begin = int(wanted["start_ns"].min() or 0)  # type: ignore[arg-type]
    for loop in loops:
        known = [each for each in whole.loops if same_place(each, loop)]
        starts = {start for each in known for start in each.iterations["start_ns"]}
        assert set(loop.iterations["start_ns"]) <= starts
        inside = loop.iterations.filter("complete")
        ends = inside["start_ns"] + inside["busy_ns"] + inside["idle_ns"]
        assert all(begin <= start for start in inside["start_ns"])
        assert all(end <= until for end in ends)


def choose(many: int) -> list[Numbers]:
    """Two iterations, three and one of this many, from different places."""
    return [(1, 3), (0, 3), (many - 1, None), (many // 2, many // 2 + 1)]


@pytest.mark.widens(5)
def test_some_iterations_of_every_file_are_those_of_the_whole(file: Analyzed) -> None:
    row, whole = file
    if isinstance(whole, deepprof.TraceError):
        return
    mains = [main_loop(whole, recording.rank or 0) for recording in whole.recordings]
    many = min((loop.iterations.height for loop in mains if loop is not None), default=0)
    if many < 3:
        return
    recorded = deepprof.read_job(manifest.path_of(row))
    for numbers in choose(many):
        check_part(whole, recorded, numbers)


@settings(deadline=None, max_examples=8)
@given(
    scenario=st.sampled_from(SCENARIOS),
    iterations=st.integers(5, 12),
    seed=st.integers(0, 1 << 16),
    data=st.data(),
)
def test_any_iterations_of_a_simulated_job_are_those_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, scenario: str, iterations: int, seed: int, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("job") / "job.json"
    write(simulate(scenario, iterations=iterations, seed=seed), path)
    trace = deepprof.read(path)
    whole = deepprof.analyze(trace)
    main = main_loop(whole, 0)
    if main is None:
        return
    index = main.iterations["index"].to_list()
    first = data.draw(st.sampled_from(index), label="first")
    last = data.draw(st.integers(first + 1, index[-1] + 2), label="last")
    check_part(whole, [trace], (first, last))


def make_job(iterations: int, kernels: int = 4, devices: int = 1, shift_ns: int = 0) -> Trace:
    """Iterations of 1,000 ns on every device, the second one's shifted; kernel k uses 50 + k ns."""
    places = ((device, step, k) for device in range(devices) for step in range(iterations) for k in range(kernels))
    rows = [(1_000 * step + 100 * k + shift_ns * device, k, device) for device, step, k in places]
    return make_trace([event(k, start, start + 50 + k, device=device) for start, k, device in sorted(rows)])


def test_one_iteration_of_a_job_by_hand() -> None:
    trace = make_job(8)
    (part,) = deepprof.select(trace, iterations=(3, 4))
    assert isinstance(part, SelectedTrace)
    analysis = deepprof.analyze(part)
    (loop,) = analysis.loops
    row = loop.iterations.row(0, named=True)
    assert loop.iterations.height == 1
    assert (row["index"], row["start_ns"], row["end_ns"], row["kernels"]) == (3, 3_000, 3_353, 4)
    assert (row["iteration_ns"], row["interval_ns"], row["busy_ns"]) == (1_000, 647, 50 + 51 + 52 + 53)
    assert (loop.metrics.avg_interval_ns, loop.whole_iterations, loop.period) == (647, 8, 4)
    assert (loop.prologue.kernels, loop.epilogue.kernels) == (0, 0)
    assert "1 iteration of 8, median" in show(analysis)


def test_the_last_iteration_has_no_time_as_in_the_whole() -> None:
    (part,) = deepprof.select(make_job(8), iterations=(7, None))
    (loop,) = deepprof.analyze(part).loops
    assert loop.iterations.select("index", "iteration_ns", "interval_ns", "complete").rows() == [(7, None, None, True)]


def test_iterations_of_another_device_that_the_part_cuts_are_not_complete() -> None:
    analysis = deepprof.analyze(deepprof.select(make_job(8, devices=2, shift_ns=230), iterations=(2, 4)))
    one, other = sorted(analysis.loops, key=lambda loop: loop.device)
    assert one.iterations.select("index", "complete", "kernels").rows() == [(2, True, 4), (3, True, 4)]
    assert other.iterations.select("index", "complete", "kernels").rows() == [(2, True, 4), (3, False, 4)]


def test_iterations_without_all_kernels_by_number_are_cut() -> None:
    trace = make_job(8)
    (part,) = deepprof.select(trace, iterations=(2, 5), grid=(10, 100))
    (loop,) = deepprof.analyze(part).loops
    assert loop.iterations.select("index", "complete", "kernels").rows() == [(2, False, 2), (3, True, 4), (4, True, 4)]


def test_work_that_not_all_iterations_have_leaves_these_idle() -> None:
    """A range that only some iterations have, in the middle of the chosen ones."""
    job = make_job(8)
    marks = [{"start_ns": 4_100, "end_ns": 4_300, "side": "device", "device": 0, "stream": 7, "name_id": 3}]
    ranges = table([mark | {"framework": False} for mark in marks], ANNOTATIONS)
    count = job.accounting.kept + 1
    trace = replace(job, annotations=ranges, accounting=Accounting(count, count))
    (loop,) = deepprof.analyze(deepprof.select(trace, iterations=(3, 6), range="k3")).loops
    assert loop.iterations.select("index", "kernels", "busy_ns", "idle_ns").rows() == [
        (3, 0, 0, 1_000),
        (4, 2, 103, 897),
        (5, 0, 0, 1_000),
    ]
    assert loop.period == 2
    check_parts(loop)


def test_a_part_of_a_part_has_its_iterations() -> None:
    (part,) = deepprof.select(make_job(9), iterations=(2, 7))
    (again,) = deepprof.select(part, iterations=(4, 6))
    (loop,) = deepprof.analyze(again).loops
    assert loop.iterations["index"].to_list() == [4, 5]
    assert loop.whole_iterations == 9
    assert loop.evidence.count("of the whole recording") == 1
    (numbered,) = deepprof.select(part, grid=(0, 12))
    (loop,) = deepprof.analyze(numbered).loops
    assert loop.iterations.filter("complete")["index"].to_list() == [2, 3, 4]


def test_only_slow_first_iterations_are_no_warm_up_of_themselves() -> None:
    starts = [0, *range(10_000, 18_000, 1_000)]
    trace = make_trace([event(k, start + 100 * k, start + 100 * k + 50) for start in starts for k in range(4)])
    whole = deepprof.analyze(trace)
    assert whole.loops[0].iterations["warmup"].to_list() == [True] + [False] * 8
    first, several = (deepprof.analyze(deepprof.select(trace, iterations=(0, n))).loops[0] for n in (1, 3))
    assert first.iterations["warmup"].to_list() == [False]
    assert several.iterations["warmup"].to_list() == [True, False, False]


def test_counts_or_a_stream_that_are_given_for_the_part_search_it_anew() -> None:
    (part,) = deepprof.select(make_job(12), iterations=(2, 10))
    for options in ({"counts": (8,)}, {"stream": (0, 7)}):
        loops = deepprof.analyze(part, **options).loops  # type: ignore[arg-type]
        assert all(loop.whole_iterations is None for loop in loops)


def test_iterations_given_by_count_are_carried_over() -> None:
    trace = make_job(12)
    (part,) = deepprof.select(trace, iterations=(2, 4), counts=(12,))
    (loop,) = deepprof.analyze(part).loops
    assert loop.iterations["index"].to_list() == [2, 3]
    assert loop.evidence.startswith("of the whole recording: paper mode: 12 iterations given")


def test_a_single_iteration_of_operators_of_the_cpu_is_one() -> None:
    """A recording without a device, of fewer operators than one that shows no loop needs to have."""
    names = [f"aten::op{k}" for k in range(6)]
    operators = [
        op(1, 1_000 * step + 100 * k, 1_000 * step + 100 * k + 50 + k, k) for step in range(9) for k in range(6)
    ]
    operators += [op(2, 1_000 * step, 1_000 * step + 900, 0) for step in (4,)]  # a thread that is busier there
    (part,) = deepprof.select(make_trace((), operators, names=names), iterations=(4, 5))
    (loop,) = deepprof.analyze(part).loops
    assert loop.iterations.select("index", "start_ns", "kernels").rows() == [(4, 4_000, 6)]


def test_a_layer_keeps_the_iterations_of_the_whole() -> None:
    (trace,) = train().traces
    whole = deepprof.analyze(trace)
    (part,) = deepprof.select(trace, layer="Net_0/Linear_0")
    analysis = deepprof.analyze(part)
    check_books(analysis)
    assert [loop.iterations["start_ns"].to_list() for loop in analysis.loops] == [
        loop.iterations["start_ns"].to_list() for loop in whole.loops
    ]
    (loop,), (known,) = analysis.loops, whole.loops
    check_parts(loop)
    assert loop.period < known.period
    assert (loop.nested, loop.blocks, loop.cycles) == ((), (), ())
    assert loop.iterations["kernels"].sum() == part.device_events.filter(pl.col("activity") == "kernel").height


def test_ranges_and_kernels_alone_are_searched_anew(tmp_path: Path) -> None:
    write(simulate("healthy", iterations=6, seed=1), tmp_path / "job.json")
    trace = deepprof.read(tmp_path / "job.json")
    for asked in ({"range": "Optimizer.step*"}, {"grid": (0, 500)}):
        (part,) = deepprof.select(trace, **asked)  # type: ignore[arg-type]
        assert not isinstance(part, SelectedTrace)


def test_a_rank_without_a_loop_has_none_in_a_part() -> None:
    bare = make_trace([event(k, 2_000 + 37 * k * k, 2_020 + 37 * k * k) for k in range(8)], rank=1)
    job = replace(make_job(8), rank=0)
    parts = deepprof.select([job, bare], iterations=(2, 4))
    assert parts[1].accounting.dropped[NOT_SELECTED] == 8
    analysis = deepprof.analyze(parts)
    assert [loop.rank for loop in analysis.loops] == [0]


def test_the_report_says_of_how_many_iterations_a_part_has_some() -> None:
    report = json.loads(deepprof.analyze(deepprof.select(make_job(8), iterations=(3, 5))).to_json())
    (loop,) = report["loops"]
    assert loop["whole_iterations"] == 8
    assert [each["index"] for each in loop["iterations"]] == [3, 4]
    assert not [each for each in report["findings"] if "usual_iterations" in each["evidence"]]
    whole = json.loads(deepprof.analyze(make_job(8)).to_json())
    assert whole["loops"][0]["whole_iterations"] is None
