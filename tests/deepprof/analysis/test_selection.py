"""`deepprof.select`: parts of whole jobs, compared with what the analysis of the whole states of every event."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from deepprof.analysis.selection import Selection, find_main_loop
from deepprof.collectors.kept_rows import NOT_SELECTED
from deepprof.collectors.trace import Accounting, Trace
from deepprof.metrics.operators import is_stand_in
from deepprof.simulation import simulate, simulate_ranks, write, write_ranks
from tests.metrics.annotation.test_layers import train
from tests.metrics.contexts.test_slices import op
from tests.tables import event, make_trace, span

REAL = ("tb-resnet50-nw0/worker0.pt.trace.json.gz", "tl-resnet-ckpt/resnet_act_checkpoint.json.gz")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    path = tmp_path_factory.mktemp("job") / "job.json"
    write(simulate("graph-growth", iterations=12, seed=3), path)
    return deepprof.read(path, details=True)


def times(table: pl.DataFrame) -> list[tuple[int, int, int]]:
    return table.select("start_ns", "end_ns", "name_id").rows()


def check_accounting(whole: Trace, part: Trace) -> None:
    assert part.accounting.read == whole.accounting.read
    assert part.accounting.dropped.get(NOT_SELECTED, 0) == whole.accounting.kept - part.accounting.kept
    assert part.notes[0].startswith("only a part is looked at: ")


@pytest.mark.parametrize("numbers", [(2, 5), (None, 3), (8, None), (4, 5), (0, 100)])
def test_iterations_have_the_events_that_the_analysis_puts_in_them(
    trace: Trace, numbers: tuple[int | None, int | None]
) -> None:
    whole = deepprof.analyze(trace)
    first, last = numbers[0] or 0, 1 << 40 if numbers[1] is None else numbers[1]
    wanted = whole.events_in_iterations.filter(loop=0).filter(pl.col("iteration").is_between(first, last - 1))
    (part,) = deepprof.select(trace, iterations=numbers)
    check_accounting(trace, part)
    assert times(part.device_events) == times(wanted)
    launched = part.device_events["correlation"].drop_nulls()
    assert set(launched) <= set(part.host_events["correlation"])
    again = deepprof.analyze(part)
    expected = whole.iterations.filter(pl.col("index").is_between(first, last - 1))
    if expected.height > 3:  # of fewer a growing loop is not sure
        assert again.iterations["start_ns"].to_list() == expected["start_ns"].to_list()


def test_a_layer_has_its_kernels_forward_and_backward_and_those_below() -> None:
    (trace,) = train().traces
    whole = deepprof.analyze(trace).events
    for path in whole["layer"].drop_nulls().unique():
        (part,) = deepprof.select(trace, layer=path)
        wanted = whole.filter((pl.col("layer") == path) | pl.col("layer").str.starts_with(f"{path}/"))
        assert times(part.device_events) == times(wanted)
        check_accounting(trace, part)
    (first,) = deepprof.select(trace, layer="Net_0/Linear_0")
    names = [first.name(name) for name in first.host_events["name_id"].unique()]
    assert "nn.Module: Linear_0" in names
    assert {"nn.Module: Linear_1", "nn.Module: Net_0"}.isdisjoint(names)
    assert "autograd::engine::evaluate_function: LinearBackward0" in names


def test_a_layer_that_is_known_by_repeating_kernels_has_their_launches(trace: Trace) -> None:
    whole = deepprof.analyze(trace).events
    path = whole["layer"].drop_nulls()[0]
    (part,) = deepprof.select(trace, layer=path)
    wanted = whole.filter(layer=path)
    assert times(part.device_events) == times(wanted)
    assert part.host_events["correlation"].drop_nulls().sort().to_list() == wanted["correlation"].sort().to_list()
    check_accounting(trace, part)


def test_selections_combine(trace: Trace) -> None:
    (both,) = deepprof.select(trace, iterations=(2, 6), range="Optimizer.step*")
    (iterations,), (ranges,) = (
        deepprof.select(trace, iterations=(2, 6)),
        deepprof.select(trace, range="Optimizer.step*"),
    )
    assert set(times(both.device_events)) == set(times(iterations.device_events)) & set(times(ranges.device_events))
    assert both.device_events.height
    check_accounting(trace, both)
    with pytest.raises(deepprof.UsageError, match=r"nothing is in all of range 'Optimizer\.step\*', kernels 0:1; "):
        deepprof.select(trace, range="Optimizer.step*", grid=(0, 1))


def account(trace: Trace, annotations: int) -> Accounting:
    lost = trace.annotations.height - annotations
    whole = trace.accounting
    return replace(whole, kept=whole.kept - lost, dropped={**whole.dropped, "lost": lost})


def test_what_there_is_not_is_one_line_that_says_what_there_is(trace: Trace) -> None:
    for asked, told in (
        ({"range": "forwrad"}, r"range 'forwrad': there is none of this name; there are Optimizer\.step"),
        ({"grid": (1 << 40, None)}, r"no kernel has a number in 1099511627776:, there are 0 to \d+$"),
        ({"iterations": (500, 600)}, r"iterations 500:600: there is no such iteration; there are 0 to \d+$"),
        ({"layer": "block 2"}, r"layer 'block 2': there is none of this path; there are block 2 \(.*\), block"),
        ({"iterations": (3, 3)}, r"iterations 3:3 hold nothing"),
        ({"grid": (-1, 3)}, r"grid -1:3 hold nothing"),
    ):
        with pytest.raises(deepprof.UsageError, match=told):
            deepprof.select(trace, **asked)  # type: ignore[arg-type]
    bare = make_trace([event(0, 1, 2)])
    for asked, told in (
        ({"range": "a"}, "there are no ranges; deepprof.range writes some"),
        ({"iterations": (0, 1)}, "iterations 0:1: no iteration was found: "),
        ({"layer": "a"}, "there are no known layers"),
    ):
        with pytest.raises(deepprof.UsageError, match=told):
            deepprof.select(bare, **asked)  # type: ignore[arg-type]
    with pytest.raises(deepprof.UsageError, match="there are none on a device"):
        deepprof.select(make_trace(), grid=(0, 1))


def test_a_range_without_work_is_not_said_to_be_one_of_several() -> None:
    trace = make_trace([event(1, 5, 9)], annotations=[span(0, 1, 2)])
    name = str(trace.name(0))
    with pytest.raises(deepprof.UsageError, match=f"nothing was launched or called in range '{name}'; name another"):
        deepprof.select(trace, range=name)


@pytest.mark.parametrize("asked", [{"range": "x"}, {"grid": (0, 1)}, {"iterations": (0, 1)}, {"layer": "x"}])
def test_without_a_trace_nothing_can_be_selected(asked) -> None:
    with pytest.raises(deepprof.UsageError, match="no trace given"):
        deepprof.select([], **asked)


def test_without_a_selection_nothing_is_left_out(trace: Trace) -> None:
    (same,) = deepprof.select(trace)
    assert same is trace
    assert Selection().is_everything
    assert not Selection(layer="a").is_everything


def test_each_rank_has_its_own_numbers_and_one_without_a_range_stays_empty(tmp_path: Path) -> None:
    write_ranks(simulate_ranks("straggler", ranks=2, iterations=8, seed=1), tmp_path)
    traces = deepprof.read_job(tmp_path)
    parts = deepprof.select(traces, grid=(10, 20))
    kernels = [part.device_events.filter(pl.col("activity") == "kernel") for part in parts]
    assert [each.height for each in kernels] == [10, 10]
    assert [part.rank for part in parts] == [0, 1]
    other = replace(traces[1], annotations=traces[1].annotations.clear(), accounting=account(traces[1], 0))
    name = traces[0].name(int(traces[0].annotations["name_id"][0]))
    found, nothing = deepprof.select([traces[0], other], range=name)
    assert found.accounting.kept > 0
    assert nothing.accounting.kept == 0
    several = deepprof.select(traces, iterations=(2, 6))
    assert {loop.rank for loop in deepprof.analyze(several).loops} == {0, 1}


@pytest.mark.parametrize("name", REAL)
def test_parts_of_real_traces_are_analysed(traces: Path, name: str) -> None:
    whole = deepprof.read(traces / name, details=True)
    analysis = deepprof.analyze(whole)
    if (number := find_main_loop(analysis, analysis.recordings[0].rank or 0)) is not None:
        last = int(analysis.loops[number].iterations["index"][-1])
        (part,) = deepprof.select(whole, iterations=(1, last))
        check_accounting(whole, part)
        assert deepprof.analyze(part).summary.busy_ns <= analysis.summary.busy_ns
    layers = analysis.events["layer"].drop_nulls().unique().sort()
    if len(layers):
        (part,) = deepprof.select(whole, layer=layers[0])
        below = analysis.events["layer"].str.starts_with(f"{layers[0]}/") | (analysis.events["layer"] == layers[0])
        assert part.device_events.height == below.sum()
        assert deepprof.analyze(part).recordings[0].accounting.kept == part.accounting.kept


def test_operators_of_the_cpu_are_selected_as_kernels_are() -> None:
    """A recording without a device: the part has the operators, which the analysis makes kernels again."""
    names = [f"aten::op{k}" for k in range(6)]
    operators = [
        op(1, 1_000 * step + 100 * k, 1_000 * step + 100 * k + 50 + k, k) for step in range(9) for k in range(6)
    ]
    whole = make_trace((), operators, names=names)
    analysis = deepprof.analyze(whole)
    assert is_stand_in(analysis.traces[0])
    assert analysis.iterations["index"].to_list() == list(range(9))
    (part,) = deepprof.select(whole, iterations=(2, 6))
    assert part.host_events["start_ns"].to_list() == [1_000 * step + 100 * k for step in range(2, 6) for k in range(6)]
    assert deepprof.analyze(part).iterations["start_ns"].to_list() == [2_000, 3_000, 4_000, 5_000]
    check_accounting(whole, part)
