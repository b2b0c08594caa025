"""Loops without inner loops: their times, what recurs in them and what frames them distinguish them from layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.mining import Evidence, Family, MiningResult, find_loops
from deepprof.mining.candidates import measure
from deepprof.mining.extent import burst_size, measure_extent
from deepprof.mining.symbols import as_symbols
from deepprof.mining.template import Template

BODY = [1, 2, 3, 2, 4]  # a solver's, or a layer's
HEAD, TAIL = [8, 9], [10]


def mine(
    symbols: Sequence[int],
    *,
    durations: Sequence[float] | None = None,
    gaps: Sequence[float] | None = None,
    copies: npt.NDArray[np.bool_] | None = None,
    syncs: npt.NDArray[np.bool_] | None = None,
) -> MiningResult:
    """Mine kernels of ten units each, if nothing else is stated, one unit after the other."""
    times = [10.0] * len(symbols) if durations is None else durations
    pauses = [1.0] * len(symbols) if gaps is None else gaps
    return find_loops(symbols, Evidence(np.array(pauses), durations=np.array(times), copies=copies, syncs=syncs))


def every(size: int, period: int, first: int = 0) -> npt.NDArray[np.bool_]:
    """Return marks at every period from `first` on."""
    marks = np.zeros(size, np.bool_)
    marks[first::period] = True
    return marks


@pytest.mark.parametrize(("head", "tail"), [([], []), (HEAD, TAIL)])
def test_a_wait_in_each_pass_makes_a_loop_whatever_is_around(head: list[int], tail: list[int]) -> None:
    symbols = [*head, *BODY * 30, *tail]
    found = mine(symbols, syncs=every(len(symbols), len(BODY), len(head)))
    assert found.loop is not None
    assert (found.loop.period, int(found.loop.iterations.complete.sum())) == (5, 30)


def test_passes_between_a_head_and_a_tail_are_layers() -> None:
    found = mine([*HEAD, *BODY * 30, *TAIL])
    assert found.reason is not None
    assert "as around the layers of a single pass" in found.reason


def test_with_nothing_else_in_the_capture_they_are_a_loop_of_limited_confidence() -> None:
    found = mine(BODY * 30)
    assert found.loop is not None
    assert found.loop.confidence <= 0.7


def test_a_head_alone_needs_a_sign_in_each_pass() -> None:
    symbols = [*HEAD, *BODY * 30]
    assert mine(symbols).loop is None
    assert mine(symbols, copies=every(len(symbols), 5, 2)).loop is not None
    weights = every(len(symbols), 5, 2) | every(len(symbols), 5, 4)
    assert mine(symbols, copies=weights).loop is None


@pytest.mark.parametrize(("pause", "is_loop"), [(40.0, False), (400.0, True)])
def test_with_a_head_a_pause_counts_where_it_is_longer_than_the_work(pause: float, is_loop: bool) -> None:
    symbols = [*HEAD, *BODY * 30]
    gaps = np.where(every(len(symbols), 5, 2), pause, 1.0)
    assert (mine(symbols, gaps=gaps.tolist()).loop is not None) == is_loop


@pytest.mark.parametrize("body", [[1], [1, 2], [1, 1, 2], BODY])
def test_more_passes_than_a_model_has_layers_are_a_loop(body: list[int]) -> None:
    found = mine([*HEAD, *body * 200, *TAIL])
    assert found.loop is not None
    assert found.loop.period == len(body)


@pytest.mark.parametrize("body", [[1], [1, 2]])
def test_without_times_so_few_kernels_are_none(body: list[int]) -> None:
    assert find_loops([*HEAD, *body * 200, *TAIL]).loop is None


def test_a_repetition_that_takes_little_of_the_time_is_refused() -> None:
    symbols = [*BODY * 30, 20, 21, 22]
    found = mine(symbols, durations=[10.0] * 150 + [2_000.0] * 3)
    assert found.reason is not None
    assert "only 20 % of the stream's time" in found.reason


def test_passes_of_unequal_times_are_refused() -> None:
    rng = np.random.default_rng(1)
    found = mine(BODY * 30, durations=np.repeat(rng.lognormal(2, 2, 30), 5).tolist())
    assert found.reason is not None
    assert "unequal times" in found.reason


def test_bursts_of_equal_passes_are_parts_of_something_longer() -> None:
    symbols, gaps = BODY * 16, np.ones(80)
    gaps[40] = 5_000.0
    syncs = every(80, 5)
    bursts = mine(symbols, gaps=gaps.tolist(), syncs=syncs)
    assert bursts.reason is not None
    assert "bursts of 8" in bursts.reason
    stalled = np.roll(gaps, 15)
    assert mine(symbols, gaps=stalled.tolist(), syncs=syncs).loop is not None


def test_layers_of_two_passes_that_the_capture_cuts_are_no_loop() -> None:
    assert mine([*BODY * 10, *TAIL, 11, 12, *HEAD, *BODY * 24]).loop is None


def test_a_frame_of_the_same_kernels_in_another_order_is_a_frame() -> None:
    found = mine([4, 4, *BODY * 30, 3, 3, 1])
    assert found.reason is not None
    assert "as around the layers of a single pass" in found.reason


def test_a_pass_that_is_fed_once_between_a_head_and_a_tail_is_an_iteration() -> None:
    symbols = [*HEAD, *BODY * 30, *TAIL]
    fed = every(len(symbols), 5, 2)
    fed[-1:] = False
    assert mine(symbols, copies=fed).loop is not None
    fed[0] = True  # a single pass copies its own input, and its weights layer by layer
    assert mine(symbols, copies=fed).loop is None


@pytest.mark.parametrize("apart", [1, 2, 3])
def test_waits_every_so_many_kernels_say_nothing_of_what_repeats(apart: int) -> None:
    symbols = [*HEAD, *[*BODY, 5, 6] * 20, *TAIL]
    assert mine(symbols, syncs=every(len(symbols), apart)).loop is None


def test_several_waits_at_the_same_places_of_each_pass_are_a_sign() -> None:
    symbols, places = [*HEAD, *[*BODY, 5, 6] * 20, *TAIL], np.zeros(143, np.bool_)
    for place in (2, 4, 7):
        places |= every(143, 7, place)
    found = mine(symbols, syncs=places)
    assert found.loop is not None
    assert "with a host wait in each" in found.loop.evidence


def test_passes_that_differ_need_a_sign() -> None:
    body = list(range(24))
    passes = [[kernel for kernel in body if kernel not in (number, (number + 11) % 24)] for number in range(10)]
    symbols = [kernel for one in [body, body, *passes, body] for kernel in one]
    assert mine(symbols).loop is None


def chunked(chunks: int) -> list[int]:
    """Return a pass through layers of 32 kernels, of which a quarter runs this many times."""
    rng = np.random.default_rng(3)
    layer = rng.integers(0, 12, 32).tolist()
    whole = [20, 21, 22, 23, *layer * 10, 24, 25, 26, 27, 28, 29]
    return [*whole[:82], *whole[82:165] * chunks, *whole[165:]]


@pytest.mark.parametrize("chunks", [5, 9])
def test_chunks_within_one_pass_are_no_iterations(chunks: int) -> None:
    symbols = chunked(chunks)
    none = np.zeros(len(symbols), np.bool_)
    assert mine(symbols, copies=every(len(symbols), len(symbols)), syncs=none).loop is None


def hybrid(groups: int) -> list[int]:
    """Return the kernels of this many groups of layers: three with linear attention and one with full attention."""
    shared, linear, full = [1, 2, 3, 2, 3, 4, 2, 3, 5], list(range(10, 24)), list(range(30, 38))
    return [*[*linear, *shared] * 3, *full, *shared] * groups


@pytest.mark.parametrize("groups", [4, 8, 20])
def test_groups_of_layers_before_a_head_are_no_iterations(groups: int) -> None:
    found = mine([*hybrid(groups), 40, 41, 41])
    assert found.reason is not None
    assert "nothing shows that they are more than the layers" in found.reason


@pytest.mark.parametrize("tokens", [5, 40])
def test_a_loop_of_passes_through_groups_of_layers_is_one_of_whole_passes(tokens: int) -> None:
    token = [*hybrid(8), 40, 41, 42]
    found = mine([*token * tokens, 43])
    assert found.loop is not None
    assert (found.loop.period, len(found.loop.iterations.first)) == (len(token), tokens)


def test_a_model_of_two_groups_is_an_iteration_where_each_has_its_head() -> None:
    token = [*hybrid(2), *range(40, 60)]
    found = mine([*token * 10, 61])
    assert found.loop is not None
    assert found.loop.period == len(token)


def test_three_layers_forward_and_backward_are_no_group() -> None:
    forward, backward = list(range(1, 18)), [*list(range(1, 18)), *list(range(20, 42))]
    step = [50, *forward * 3, 51, *backward * 3, 1]
    found = mine([52, *step * 20, 53])
    assert found.loop is not None
    assert found.loop.period == len(step)


def test_groups_of_layers_with_a_host_wait_in_each_are_iterations() -> None:
    symbols = [*hybrid(8), 40]
    found = mine(symbols, syncs=every(len(symbols), len(hybrid(1))))
    assert found.loop is not None
    assert found.loop.period == len(hybrid(1))


@pytest.mark.parametrize("layers", [2, 4])
def test_layers_that_are_fed_together_are_one_iteration(layers: int) -> None:
    body = list(range(70))
    symbols = body * layers * 8
    found = mine(symbols, copies=every(len(symbols), 70 * layers))
    assert found.loop is not None
    assert (found.loop.period, len(found.loop.iterations.first)) == (70 * layers, 8)


def test_layers_that_one_loader_feeds_are_one_iteration() -> None:
    symbols = list(range(70)) * 24
    at = np.arange(0, len(symbols), 210)
    loader = Family("enumerate(DataLoader)#", "loop", at, ends=at)
    times = {"durations": np.full(len(symbols), 10.0), "gaps": np.ones(len(symbols))}
    found = find_loops(symbols, Evidence(families=(loader,), **times))
    assert found.loop is not None
    assert found.loop.period == 210


def test_repetitions_of_a_whole_loop_leave_it_as_it_is() -> None:
    """A benchmark of several runs copies its data for every run; 150 time steps are no layers."""
    symbols = [*range(8)] * 150
    found = mine(symbols, copies=every(len(symbols), 400))
    assert found.loop is not None
    assert found.loop.period == 8


def test_a_loader_says_nothing_of_passes_launched_before_the_capture() -> None:
    symbols = [*range(60), 60, 60, 60, 60, 61, 62, 63] * 5
    loader = Family("enumerate(DataLoader)#", "loop", np.array([268]), ends=np.array([268]))
    fed, size = every(len(symbols), 67), len(symbols)
    times = {"durations": np.full(size, 10.0), "gaps": np.ones(size), "copies": fed}
    found = find_loops(symbols, Evidence(families=(loader,), start=205, **times))
    assert found.loop is not None
    assert found.loop.period == 67


def test_one_loader_range_before_passes_with_an_input_each_says_nothing() -> None:
    loader = Family("enumerate(DataLoader)#", "loop", np.array([0]), ends=np.array([0]))
    times = {"durations": np.full(150, 10.0), "gaps": np.ones(150), "copies": every(150, 5)}
    assert find_loops(BODY * 30, Evidence(families=(loader,), **times)).loop is not None
    assert find_loops(BODY * 30, Evidence(families=(loader,), **times | {"copies": None})).loop is None


def test_inputs_of_layers_launched_before_the_capture_are_not_missed() -> None:
    fed = every(70 * 24, 280, 560)
    times = {"durations": np.full(70 * 24, 10.0), "gaps": np.ones(70 * 24), "copies": fed}
    found = find_loops([*range(70)] * 24, Evidence(start=500, **times))
    assert found.loop is not None
    assert found.loop.period == 280


def test_a_stall_in_the_middle_leaves_passes_with_an_input_each_a_loop() -> None:
    symbols, gaps = BODY * 24, np.ones(120)
    gaps[60] = 5_000.0
    fed = every(120, 5)
    assert mine(symbols, gaps=gaps.tolist(), copies=fed).loop is not None
    gaps[[30, 90]] = 5_000.0
    assert mine(symbols, gaps=gaps.tolist(), copies=fed).loop is None


@pytest.mark.parametrize("name", ["ProfilerStep", "step"])
def test_passes_within_one_step_are_parts_of_it(name: str) -> None:
    symbols = BODY * 30
    step = Family(name, "step" if name != "step" else "framework", np.array([0]), ends=np.array([150]))
    evidence = Evidence(durations=np.full(150, 10.0), gaps=np.ones(150), syncs=every(150, 5), families=(step,))
    found = find_loops(symbols, evidence)
    assert found.reason is not None
    assert f"within one {name}" in found.reason


@given(st.lists(st.tuples(st.integers(2, 12), st.floats(30.0, 9_000.0)), min_size=1, max_size=5))
def test_the_size_of_bursts_is_that_which_counting_gives(bursts: list[tuple[int, float]]) -> None:
    """Each burst is this many passes, after a pause that is shorter or longer than ten times a pass."""
    passes = sum(size for size, _ in bursts)
    gaps = np.zeros(5 * passes)
    gaps[np.cumsum([0, *(5 * size for size, _ in bursts[:-1])])] = [pause for _, pause in bursts]
    evidence = Evidence(durations=np.full(5 * passes, 1.0), gaps=gaps, length=5 * passes)
    candidate = measure(as_symbols(BODY * passes), Template(as_symbols(BODY), {}))
    assert burst_size(candidate, evidence, 2) == count_bursts(bursts)


def count_bursts(bursts: list[tuple[int, float]]) -> int:
    """Return the size of the bursts by going through them one by one; a pass needs five units."""
    sizes, inside, between = [bursts[0][0]], 5.0 * (bursts[0][0] - 1), 0.0
    steps = sorted(5.0 for _ in range(sum(size for size, _ in bursts) - len(bursts)))
    steps = sorted([*steps, *(5.0 + pause for _, pause in bursts[1:])])
    usual = float(np.median(steps))
    for size, pause in bursts[1:]:
        inside += 5.0 * (size - 1)
        if 5.0 + pause > 10 * usual:
            sizes.append(size)
            between += 5.0 + pause
        else:
            sizes[-1] += size
            inside += 5.0 + pause
    return sizes[0] if len(sizes) > 1 and len(set(sizes)) == 1 and sizes[0] > 1 and between > inside else 0


def test_the_extent_of_a_part_is_its_share_of_kernels_or_time() -> None:
    symbols = as_symbols([*HEAD, *BODY * 4])
    candidate = measure(symbols, Template(as_symbols(BODY), {}))
    times = np.array([40.0, 40.0, *[1.0] * 20])
    extent = measure_extent(candidate, Evidence(durations=times, gaps=np.zeros(22), length=22))
    assert extent.covered == pytest.approx(0.2)
    assert (extent.within, extent.steady, extent.sides) == (1.0, 1.0, 1)
