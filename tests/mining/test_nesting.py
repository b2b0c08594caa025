"""Repetition inside a template: every loop, also across the cut, and which of them are an optimizer's."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.mining.nesting import (
    NestedBlock,
    find_cyclic,
    find_nested,
    has_parameter_loop,
    nested_share,
    parameter_loops,
)
from deepprof.mining.symbols import as_symbols

FORWARD, BACKWARD = [1, 2, 3, 4, 5], [8, 2, 9, 4, 10, 11]
PASS = [0, *FORWARD * 12, 6, 7, *BACKWARD * 12, 13]
UPDATE = [20, 21] * 9

templates = st.lists(st.integers(0, 3), min_size=1, max_size=24)


def places(block: NestedBlock) -> range:
    return range(block.first, block.first + block.events * block.repeats)


def repetitions(symbols: list[int], longest: int) -> list[NestedBlock]:
    """Every section of three or more equal blocks of up to `longest` symbols, found by looking at each."""
    found = []
    for events in range(1, longest + 1):
        for first in range(len(symbols)):
            body, repeats = symbols[first : first + events], 0
            while symbols[first + repeats * events :][:events] == body and len(body) == events:
                repeats += 1
            if repeats >= 3:
                found.append(NestedBlock(first, events, repeats))
    return found


@given(templates)
def test_blocks_are_true_and_apart_and_every_repetition_meets_one_at_least_as_long(template: list[int]) -> None:
    found = find_nested(as_symbols(template))
    everything = repetitions(template, len(template) // 3)
    assert set(found) <= set(everything)
    sizes = [len(places(block)) for block in found]
    assert sizes == sorted(sizes, reverse=True)
    covered = [place for block in found for place in places(block)]
    assert len(covered) == len(set(covered))
    for one in everything:
        assert any(set(places(one)) & set(places(b)) and len(places(b)) >= len(places(one)) for b in found)
    assert nested_share(as_symbols(template)) == pytest.approx(len(covered) / len(template))


@given(templates, st.integers(0, 23))
def test_going_round_every_repetition_meets_one_at_least_as_long_wherever_the_cut(
    template: list[int], cut: int
) -> None:
    period = len(template)
    turned = template[cut % period :] + template[: cut % period]
    found = find_cyclic(as_symbols(turned))
    everything = repetitions(turned * 2, 2 * period // 3)
    assert {(b.events, b.repeats) for b in found} <= {(b.events, b.repeats) for b in everything}
    for block in found:
        assert 0 <= block.first < period
        unrolled = [turned[place % period] for place in places(block)]
        assert unrolled == unrolled[: block.events] * block.repeats

    def round_(block: NestedBlock) -> set[int]:
        return {place % period for place in places(block)}

    for one in everything:
        assert any(round_(one) & round_(b) and len(places(b)) >= len(places(one)) for b in found)


@st.composite
def made_of_loops(draw: st.DrawFn) -> tuple[list[int], list[NestedBlock]]:
    """A template of loops over their own symbols with others between, and the loops."""
    template, truth = [1000], []
    for j in range(draw(st.integers(0, 4))):
        events, repeats = draw(st.integers(1, 6)), draw(st.integers(3, 7))
        truth.append(NestedBlock(len(template), events, repeats))
        template += [10 * j + k for k in range(events)] * repeats + [1001 + j]
    return template, truth


@given(made_of_loops(), st.integers(0, 200))
def test_loops_that_share_nothing_are_found_exactly_from_every_cut(
    made: tuple[list[int], list[NestedBlock]], cut: int
) -> None:
    template, truth = made
    period, cut = len(template), cut % len(template)
    assert sorted(find_nested(as_symbols(template)), key=lambda b: b.first) == truth
    turned = as_symbols(np.roll(template, -cut))
    found = {(b.first, b.events, b.repeats) for b in find_cyclic(turned)}
    assert found >= {((b.first - cut) % period, b.events, b.repeats) for b in truth}


def test_the_same_loop_is_listed_once_going_round() -> None:
    assert find_cyclic(as_symbols([9, *[1, 2] * 5, 8])) == (NestedBlock(1, 2, 5),)
    assert find_cyclic(as_symbols([2, 1, 2, 9, 8, 1, 2, 1]))[0] == NestedBlock(5, 2, 3)


@pytest.mark.parametrize("template", [[], [1], [1, 2], [1, 1], [1, 2, 1, 2], list(range(50))], ids=len)
def test_what_does_not_repeat_three_times_has_no_blocks(template: list[int]) -> None:
    assert find_nested(as_symbols(template)) == []
    assert nested_share(as_symbols(template)) == 0.0


def test_of_blocks_that_overlap_the_longest_stretch_counts_then_the_shorter_block() -> None:
    assert find_nested(as_symbols([1, 2] * 6)) == [NestedBlock(0, 2, 6)]
    assert find_nested(as_symbols([1, 1, 1, 2] * 4)) == [NestedBlock(0, 4, 4)]
    assert find_nested(as_symbols([*[1, 1, 1, 2] * 4, 1, 1, 3, 1, 1, 1])) == [
        NestedBlock(0, 4, 4),
        NestedBlock(19, 1, 3),
    ]


# --- loops over parameters ------------------------------------------------------------------------------------------


def loops_in(template: list[int]) -> list[tuple[int, int, int]]:
    return [(b.first, b.events, b.repeats) for b, _ in parameter_loops(as_symbols(template))]


def test_a_loop_of_few_kernels_of_its_own_is_one_over_parameters() -> None:
    assert loops_in(PASS + UPDATE) == [(len(PASS), 2, 9)]
    assert [own for _, own in parameter_loops(as_symbols(PASS + UPDATE))] == [1.0]
    assert has_parameter_loop(as_symbols(PASS + UPDATE))


@pytest.mark.parametrize("cut", range(0, len(PASS + UPDATE), 7))
def test_a_loop_over_parameters_is_known_from_every_cut(cut: int) -> None:
    assert has_parameter_loop(as_symbols(np.roll(PASS + UPDATE, -cut)))


@pytest.mark.parametrize("backward", [11, 12, 13])
def test_small_layers_forward_and_backward_are_no_loop_over_parameters(backward: int) -> None:
    template = [0, *FORWARD * 12, 6, 7, *BACKWARD * backward, 13]
    assert loops_in(template) == []
    assert not has_parameter_loop(as_symbols(template))


def test_layers_beside_an_update_of_as_many_kernels_leave_the_update_out() -> None:
    update = [20, 21, 22, 23]
    assert has_parameter_loop(as_symbols(PASS + update * 7))
    assert not has_parameter_loop(as_symbols(PASS + update * 12))


@pytest.mark.parametrize(("body", "times", "is_one"), [(2, 4, True), (2, 3, False), (16, 3, True), (17, 3, False)])
def test_such_a_loop_has_eight_kernels_at_least_and_a_short_body(body: int, times: int, is_one: bool) -> None:
    update = list(range(30, 30 + body)) * times
    assert has_parameter_loop(as_symbols(PASS + update)) is is_one


def test_what_is_most_of_an_iteration_without_other_layers_is_its_layers() -> None:
    before = list(range(40, 60))
    assert has_parameter_loop(as_symbols([*before, *[1, 2, 3] * 6]))
    assert not has_parameter_loop(as_symbols([*before, *[1, 2, 3] * 7]))


@pytest.mark.parametrize(("alien", "is_one"), [(0, True), (1, True), (2, False)])
def test_most_of_its_kernels_run_nowhere_else(alien: int, is_one: bool) -> None:
    own = [20, 21, *FORWARD[:alien]]
    (share,) = {round(own, 6) for _, own in parameter_loops(as_symbols(PASS + own * 6))} or {0.0}
    assert share == pytest.approx(2 / (2 + alien))
    template = [*PASS, *[20, *FORWARD[: 2 * alien]] * 6] if alien == 2 else PASS + own * 6
    assert has_parameter_loop(as_symbols(template)) is is_one


def test_nothing_has_no_loop_over_parameters() -> None:
    assert all(not has_parameter_loop(as_symbols(some)) for some in ([], [1], [1, 2, 3]))


@given(templates)
def test_a_loop_over_parameters_is_a_block_and_its_share_a_share(template: list[int]) -> None:
    blocks = set(find_cyclic(as_symbols(template)))
    found = parameter_loops(as_symbols(template))
    for block, own in found:
        assert block in blocks
        assert 0 <= own <= 1
        assert block.events <= 16
        assert block.events * block.repeats >= 8
    assert has_parameter_loop(as_symbols(template)) == any(own >= 0.45 for _, own in found)
    assert all(a[0] != b[0] for a, b in pairwise(found))


@pytest.mark.parametrize("cut", range(0, 172, 5))
def test_a_loop_of_five_kernels_is_known_from_every_cut(cut: int) -> None:
    whole = [0, *[1, 2, 3, 4, 5] * 12, 6, 7, *[8, 2, 9, 4, 10, 11] * 12, 13, 14, *[20, 21, 22, 23, 24] * 7]
    assert has_parameter_loop(as_symbols(np.roll(whole, -cut)))
