"""Where an iteration begins: votes counted, right starts however the capture cuts, micro-batches put together."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.mining import Evidence, find_loop
from deepprof.mining.phase import around, elect, reach_of
from tests.mining.jobs import Job, score


@st.composite
def polls(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Votes for places and for sections; whole numbers, so that sums are exact."""
    period = draw(st.integers(1, 30))
    votes = st.lists(st.integers(0, 9), min_size=period, max_size=period)
    return draw(votes), draw(votes)


def brute_totals(points: list[int], regions: list[int]) -> list[int]:
    period = len(points)
    reach = 0 if period < 8 else 1 if period < 16 else 2
    return [sum(points[(at + d) % period] for d in range(-reach, reach + 1)) + regions[at] for at in range(period)]


def distance(one: int, other: int, period: int) -> int:
    return min((one - other) % period, (other - one) % period)


@given(polls())
def test_the_place_elected_is_near_the_best_sum_over_its_neighbours(poll: tuple[list[int], list[int]]) -> None:
    points, regions = poll
    period, totals = len(points), brute_totals(*poll)
    offset, most, lead = elect(np.array(points, float), np.array(regions, float))
    reach = reach_of(period)
    assert 0 <= offset < period
    assert most == max(totals)
    winner = totals.index(most)
    near = [at for at in range(period) if distance(at, winner, period) <= reach]
    assert offset in near
    assert points[offset] == max(points[at] for at in near)
    far = [totals[at] for at in range(period) if distance(at, offset, period) > 2 * reach]
    assert lead == most - max(far, default=0) >= 0


@given(st.integers(1, 3000), st.integers(0, 2999), st.integers(1, 2))
def test_neighbours_go_round_the_nearest_first_each_once(period: int, place: int, times: int) -> None:
    place %= period
    found = around(place, period, times).tolist()
    apart = [distance(place, other, period) for other in found]
    assert found[0] == place
    assert apart == sorted(apart)
    assert len(set(found)) == len(found)
    assert max(apart) == min(times * reach_of(period), (period - 1) // 2)


def test_votes_around_the_cut_of_the_period_add_up() -> None:
    points = np.zeros(100)
    points[[99, 0, 1, 50]] = 1.0, 1.2, 1.0, 3.0
    assert elect(points, np.zeros(100)) == (0, pytest.approx(3.2), pytest.approx(0.2))


def test_a_stretch_adds_to_the_places_in_it_but_not_to_itself() -> None:
    points, region = np.zeros(100), np.zeros(100)
    points[[20, 60]] = 1.0
    region[40:80] = 0.5
    assert elect(points, region) == (60, 1.5, 0.5)
    assert elect(np.zeros(100), region)[1:] == (0.5, 0.0)


def test_without_votes_there_is_a_place_without_a_lead() -> None:
    assert elect(np.zeros(50), np.zeros(50))[1:] == (0.0, 0.0)


# --- through the whole search ---------------------------------------------------------------------------------------

CUTS = {  # kernels before, missing at the start, missing at the end, after
    "a prologue and a clean end": (200, 0, 0, 0),
    "a prologue and an epilogue": (200, 0, 0, 150),
    "whole iterations between the capture's bounds": (0, 0, 0, 0),
    "whole iterations and an epilogue": (0, 0, 0, 120),
    "cut within a forward pass at the start": (0, 60, 0, 0),
    "cut within a backward pass at the start": (0, 300, 0, 0),
    "cut within a backward pass at the end": (0, 0, 100, 0),
    "cut within a forward pass at the end": (0, 0, 320, 0),
    "a prologue, cut at the end": (200, 0, 150, 0),
    "cut at the start, with an epilogue": (0, 150, 0, 90),
}


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_iterations_begin_where_they_do_and_what_is_around_them_is_counted(name: str, seed: int) -> None:
    before, cut, lost, after = CUTS[name]
    job = Job(iterations=12, prologue=before, cut=cut, seed=seed)
    symbols = job.symbols()
    if lost:
        symbols, job.starts = symbols[:-lost], job.starts[:-1]
    tail = np.random.default_rng(seed + 100).integers(0, 90, after)
    loop = find_loop(np.concatenate([symbols, tail])).loop
    assert loop is not None
    assert loop.iterations.first[loop.iterations.complete].tolist() == job.starts
    assert (loop.prologue, loop.epilogue) == (before, after)
    assert loop.prologue == loop.iterations.first[0]
    assert loop.epilogue == len(symbols) + after - loop.iterations.end[-1]
    assert loop.iterations.complete.tolist()[0] is (cut == 0)
    assert loop.iterations.complete.tolist()[-1] is (lost == 0)


# --- iterations of several micro-batches ----------------------------------------------------------------------------


@dataclass
class Accumulating:
    """A job whose optimizer runs after every `micro_batches`; the truth is in `starts` and `period`."""

    micro_batches: int
    iterations: int = 6
    seed: int = 0
    in_each: bool = False  # an optimizer behind each pass instead, and `between` every this many
    between: tuple[int, ...] = ()
    p_insert: float = 0.0
    starts: list[int] = field(default_factory=list)
    period: int = 0

    def symbols(self) -> npt.NDArray[np.int64]:
        rng = np.random.default_rng(self.seed)
        sizes = ((0, 20, 7), (5, 40, 11), (40, 48, 7), (20, 70, 19), (70, 80, 6))
        pre, forward, loss, backward, update = (rng.integers(low, high, size) for low, high, size in sizes)
        micro = np.concatenate([pre, *[forward] * 12, loss, *[backward] * 12])
        optimizer = np.tile(update, 4)
        parts = [rng.integers(0, 90, 200)]
        for _ in range(self.iterations):
            self.starts.append(sum(map(len, parts)))
            for _ in range(self.micro_batches):
                one = np.concatenate([micro, optimizer]) if self.in_each else micro
                if rng.random() < self.p_insert:
                    one = np.insert(one, int(rng.integers(1, len(one))), rng.integers(86, 90, int(rng.integers(1, 9))))
                parts.append(one)
            parts.append(np.array(self.between, np.int64) if self.in_each else optimizer)
        self.period = self.micro_batches * (len(micro) + len(optimizer) * self.in_each) + len(parts[-1])
        return np.concatenate(parts)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("iterations", [3, 6])
@pytest.mark.parametrize("micro_batches", [2, 4, 16])
def test_the_iteration_of_several_micro_batches_is_the_optimizers(
    micro_batches: int, iterations: int, seed: int
) -> None:
    job = Accumulating(micro_batches, iterations, seed)
    loop = find_loop(job.symbols()).loop
    assert loop is not None
    assert loop.period == job.period
    assert loop.iterations.first[loop.iterations.complete].tolist() == job.starts
    assert "accumulation" not in [c.kind for c in loop.cycles]


@pytest.mark.parametrize("micro_batches", [2, 4, 16])
def test_micro_batches_are_put_together_through_noise(micro_batches: int) -> None:
    job = Accumulating(micro_batches, iterations=12, p_insert=0.1)
    loop = find_loop(job.symbols()).loop
    assert loop is not None
    assert abs(loop.period - job.period) <= 0.01 * job.period
    assert score(loop.iterations.first[loop.iterations.complete], job.starts, 10) >= 0.9


@pytest.mark.parametrize("micro_batches", [3, 6])
def test_names_put_together_any_number_of_micro_batches(micro_batches: int) -> None:
    job = Accumulating(micro_batches)
    symbols = job.symbols()
    optimizer = np.isin(np.arange(90), range(70, 80))
    loop = find_loop(symbols, Evidence(optimizer=optimizer)).loop
    assert loop is not None
    assert loop.period == job.period
    assert loop.iterations.first[loop.iterations.complete].tolist() == job.starts


@pytest.mark.parametrize("between", [(95, 96, 97, 98), tuple(range(100, 124)), (95, 96) * 12], ids=len)
@pytest.mark.parametrize("every_so_many", [4, 8])
def test_iterations_with_an_optimizer_in_each_are_not_put_together(
    every_so_many: int, between: tuple[int, ...]
) -> None:
    job = Accumulating(every_so_many, in_each=True, between=between)
    symbols = job.symbols()
    loop = find_loop(symbols).loop
    assert loop is not None
    assert loop.period == (job.period - len(between)) // every_so_many
    assert [(c.every, c.extra) for c in loop.cycles] == [(every_so_many, len(between))]
    assert loop.cycles[0].kind in ("statistics", "checkpoint")


def test_statistics_every_fourth_iteration_are_told_as_such() -> None:
    loop = find_loop(Accumulating(4, in_each=True, between=(95, 96, 97, 98)).symbols()).loop
    assert loop is not None
    assert [(c.every, c.extra, c.kind) for c in loop.cycles] == [(4, 4, "statistics")]
