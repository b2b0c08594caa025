from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.analysis import analyze
from deepprof.collectors.trace import Trace
from deepprof.metrics.evidence import gather_evidence
from deepprof.metrics.loop import Loop
from deepprof.metrics.marked import MarkedIterations, common_ends, find_marked
from deepprof.metrics.mined import find_loops
from deepprof.metrics.sequence import main_sequence
from tests.tables import Row, copy, event, make_trace, span

NAMES = (*(f"k{i}" for i in range(20)), "ProfilerStep#1", "Optimizer.step#SGD.step", "Optimizer.step#Adam.step")
STEP, SGD, ADAM = 20, 21, 22
FORWARD, BACKWARD, UPDATE = [0, 1, 2, 3, 4, 5], [6, 7, 8, 9], [10, 11, 12]


def growing(count: int, *, warmup: int = 0, optimizers: tuple[int, ...] = (SGD,), steps: bool = False) -> Trace:
    """Iterations whose backward pass goes through all iterations so far, one kernel every 10 ns."""
    symbols, marks = [13] * warmup, []
    for number in range(1, count + 1):
        first = len(symbols)
        symbols += FORWARD + BACKWARD * number
        update = len(symbols)
        symbols += UPDATE
        marks += [span(name, 10 * update - 1, 10 * len(symbols) - 1, framework=True) for name in optimizers]
        marks += [span(STEP, 10 * first - 1, 10 * len(symbols) - 1)] * steps
    rows: list[Row] = [event(name, 10 * at, 10 * at + 8) for at, name in enumerate(symbols)]
    return make_trace(rows, annotations=marks, names=NAMES)


def marked(trace: Trace) -> MarkedIterations | None:
    sequence = main_sequence(trace, 0, 7)
    return find_marked(sequence, gather_evidence(trace, sequence))


def lengths(found: MarkedIterations | None) -> list[int]:
    assert found is not None
    return [int(n) for n in found.iterations.end - found.iterations.first]


@pytest.mark.parametrize("steps", [False, True])
def test_growing_iterations_are_those_between_the_ranges(steps: bool) -> None:
    found = marked(growing(6, warmup=3, steps=steps))
    assert found is not None
    assert lengths(found) == [9 + 4 * number for number in range(1, 7)]
    assert found.iterations.first[0] == 3
    assert found.source == ("annotation" if steps else "framework")
    assert found.iterations.edits.tolist() == [12, 8, 4, 0, 4, 8]  # against the fourth
    assert "6 iterations" in found.evidence
    assert "13 to 33 kernels" in found.evidence


def test_they_become_a_loop_where_the_kernels_do_not_repeat() -> None:
    trace = growing(8)
    sequence = main_sequence(trace, 0, 7)
    (loop,), reason = find_loops(trace, sequence, gather_evidence(trace, sequence))
    assert reason is None
    assert loop.boundary_source == "framework"
    assert loop.iterations["kernels"].to_list() == [9 + 4 * number for number in range(1, 9)]
    assert (loop.prologue.kernels, loop.epilogue.kernels) == (0, 0)
    assert loop.confidence < 0.8  # no repetition was seen


@pytest.mark.parametrize(
    "trace",
    [
        make_trace([event(0, 0, 5)], names=NAMES),
        growing(1),
        growing(2),
        growing(6, optimizers=(SGD, ADAM)),  # either may end the iteration
        growing(6, optimizers=()),
    ],
)
def test_too_few_or_unclear_marks_are_none(trace: Trace) -> None:
    assert marked(trace) is None


def test_what_the_user_marks_counts_however_short_it_is() -> None:
    rows = [event(at % 4, 10 * at, 10 * at + 8) for at in range(40)]
    marks = [span(STEP, 40 * number - 1, 40 * number + 39) for number in range(10)]
    assert lengths(marked(make_trace(rows, annotations=marks, names=NAMES))) == [4] * 10


def calls(count: int, *, fed: bool, name: str = "saxpy") -> Trace:
    """Calls of one kernel each, in a range of the user; `fed` ones first copy their input."""
    names = ["k0", "Memcpy HtoD", name]
    rows = [event(0, 100 * at + 50, 100 * at + 90) for at in range(count)]
    copies = [copy(100 * at, 100 * at + 40, 1_000) | {"name_id": 1} for at in range(count * fed)]
    marks = [span(2, 100 * at - 1, 100 * at + 95) for at in range(count)]
    return make_trace([*rows, *copies], annotations=marks, names=names)


def test_ranges_that_hold_all_kernels_and_feed_each_are_iterations() -> None:
    (loop,) = analyze(calls(5, fed=True)).loops
    assert (loop.iterations.height, loop.boundary_source) == (5, "annotation")
    assert "5 iterations between saxpy ranges" in loop.evidence


@pytest.mark.parametrize(
    "trace",
    [
        calls(5, fed=False),  # as layers, which take what the one before made
        calls(2, fed=True),
        calls(5, fed=True, name="decoder_layer"),
    ],
)
def test_ranges_that_layers_may_have_are_none(trace: Trace) -> None:
    assert analyze(trace).loops == ()


def test_steps_that_only_copy_are_iterations() -> None:
    names = ["Memcpy HtoD", "Memcpy DtoH", "step"]
    rows = [copy(100 * at + 30 * n, 100 * at + 30 * n + 20, 1_000) | {"name_id": n} for at in range(5) for n in (0, 1)]
    marks = [span(2, 100 * at - 1, 100 * at + 95) for at in range(5)]
    found = analyze(make_trace(rows, annotations=marks, names=names))
    (loop,) = found.loops
    assert loop.iterations["busy_ns"].to_list() == [40] * 5
    assert json.loads(found.to_json())["loops"][0]["boundary_source"] == "annotation"
    assert analyze(make_trace(rows, names=names)).loops == ()


@pytest.mark.parametrize("unmarked", [0, 40])
def test_marked_steps_are_not_contradicted_though_much_lies_outside(unmarked: int) -> None:
    """Four parts of eleven kernels in every step, after a warm-up that is not marked."""
    part = [*range(6), 0, 1, 2, 3, 4]
    kernels = [*range(10, 10 + unmarked), *part * 24]
    rows = [event(name % 20, 10 * at, 10 * at + 8) for at, name in enumerate(kernels)]
    first = [unmarked + 44 * number for number in range(6)]
    marks = [span(STEP, 10 * at - 1, 10 * (at + 44) - 1) for at in first]
    loops = find(make_trace(rows, annotations=marks, names=NAMES))
    assert [loop.iterations["kernels"].to_list() for loop in loops] == [[44] * 6]


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_common_ends_agree_with_brute_force(one: list[int], other: list[int]) -> None:
    shorter = min(len(one), len(other))
    head = max(n for n in range(shorter + 1) if one[:n] == other[:n])
    tail = max(n for n in range(shorter - head + 1) if one[len(one) - n :] == other[len(other) - n :])
    assert common_ends(symbols(one), symbols(other)) == head + tail


def symbols(values: list[int]) -> npt.NDArray[np.uint32]:
    return np.array(values, np.uint32)


def find(trace: Trace) -> list[Loop]:
    sequence = main_sequence(trace, 0, 7)
    return find_loops(trace, sequence, gather_evidence(trace, sequence))[0]


HEAD = list(range(100, 160))


def term_keeper(count: int, *, marked: bool, kept: int = 1) -> Trace:
    """Iterations that each sum all losses so far: a kernel more in every pass of every one of them."""
    symbols, marks = [], []
    for number in range(1, count + 1):
        first = len(symbols)
        symbols += [*HEAD[:30], *[10, 11] * number * kept, *[12, 13] * number * kept, *HEAD[30:]]
        marks += [span(STEP, 10 * first - 1, 10 * len(symbols) - 1)] * marked
    names = [NAMES[name] if name < len(NAMES) else f"k{name}" for name in range(160)]
    return make_trace([event(s, 10 * at, 10 * at + 8) for at, s in enumerate(symbols)], annotations=marks, names=names)


def test_markers_decide_where_growth_takes_iterations_from_the_miner() -> None:
    (loop,) = find(term_keeper(60, marked=True))
    assert loop.iterations.height == int(loop.iterations["complete"].sum()) == 60
    assert "they do not repeat, 64 to 300 kernels in each" in loop.evidence
    assert sum(int(each.iterations["complete"].sum()) for each in find(term_keeper(60, marked=False))) < 60


def test_markers_leave_iterations_that_do_not_grow_to_the_miner() -> None:
    (loop,) = find(term_keeper(60, marked=True, kept=0))
    assert "they do not repeat" not in loop.evidence
    assert loop.period == 60


def graph_keeper(count: int, *, marked: bool) -> Trace:
    """Iterations that each go backward once more through all so far: what comes back is a part of them."""
    symbols, marks = [], []
    for number in range(1, count + 1):
        first = len(symbols)
        symbols += HEAD + [*range(200, 240)] * number
        marks += [span(STEP, 10 * first - 1, 10 * len(symbols) - 1)] * marked
    names = [NAMES[name] if name < len(NAMES) else f"k{name}" for name in range(240)]
    return make_trace([event(s, 10 * at, 10 * at + 8) for at, s in enumerate(symbols)], annotations=marks, names=names)


def test_step_markers_decide_where_the_miner_disagrees_with_them() -> None:
    (loop,) = find(graph_keeper(24, marked=True))
    assert loop.iterations["kernels"].to_list() == [60 + 40 * number for number in range(1, 25)]
    assert loop.boundary_source == "annotation"


def test_a_count_that_the_markers_have_is_theirs_and_not_a_patterns() -> None:
    trace = graph_keeper(24, marked=True)
    (given,), (free,) = analyze(trace, counts=[24]).loops, analyze(trace).loops
    assert given.iterations.equals(free.iterations)
    assert given.evidence == f"paper mode: 24 iterations given; {free.evidence}"


def test_without_markers_what_comes_back_is_all_there_is() -> None:
    (loop,) = find(graph_keeper(24, marked=False))
    assert (loop.period, loop.iterations.height) == (40, sum(range(1, 25)))


def passes_in_steps(per_step: int) -> Loop:
    """Return the loop of 20 equal passes of 110 kernels, this many of them in every marked step."""
    period, each_ns = [*range(100, 130), *[*range(130, 140)] * 6, *range(140, 160)], 10
    rows = [event(s, each_ns * at, each_ns * at + 8) for at, s in enumerate(period * 20)]
    long = each_ns * len(period) * per_step
    marks = [span(STEP, long * number - 1, long * (number + 1) - 1) for number in range(20 // per_step)]
    names = [NAMES[name] if name < len(NAMES) else f"k{name}" for name in range(160)]
    (loop,) = find(make_trace(rows, annotations=marks, names=names))
    return loop


def test_markers_that_agree_leave_the_loop_to_the_miner() -> None:
    loop = passes_in_steps(1)
    assert (loop.period, loop.iterations.height) == (110, 20)
    assert loop.evidence.startswith("110 kernels repeat 20.0 times")


def test_a_step_of_two_equal_passes_is_what_its_marker_says() -> None:
    loop = passes_in_steps(2)
    assert (loop.period, loop.iterations.height) == (220, 10)
    assert loop.evidence == "10 iterations between ProfilerStep ranges: 220 kernels in each"


def test_ranges_elsewhere_neither_agree_nor_disagree_with_a_loop() -> None:
    """Three marked steps of warming up, and then another loop without a mark."""
    warming, period = list(range(20, 60)), [*range(100, 130), *[*range(130, 140)] * 6, *range(140, 160)]
    rows = [event(s, 10 * at, 10 * at + 8) for at, s in enumerate(warming * 3 + period * 20)]
    marks = [span(STEP, 400 * number - 1, 400 * number + 399) for number in range(3)]
    names = [NAMES[name] if name < len(NAMES) else f"k{name}" for name in range(160)]
    loop = max(find(make_trace(rows, annotations=marks, names=names)), key=lambda each: each.iterations.height)
    assert (loop.period, loop.iterations.height, loop.agreement) == (110, 20, None)
