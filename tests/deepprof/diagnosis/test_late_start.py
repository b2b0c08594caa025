"""`late-start`: ranks that come late to the first collective, and to no other one."""

from __future__ import annotations

import numpy as np
import pytest

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.late_start import late_start
from deepprof.diagnosis.rules.straggler import straggler
from deepprof.metrics.ranks.comparison import compare_ranks
from tests.deepprof.diagnosis.test_straggler import job, steady
from tests.rank_jobs import RankJob, facts_of

MS = 1_000_000


def starting(*late: int, ms: int = 20, ranks: int = 4) -> RankJob:
    """Return ranks of which some compute for `ms` more before the first collective."""
    compute = steady(ranks=ranks)
    compute[list(late), 0, 0] += ms * MS
    return job(compute)


def found(given: RankJob) -> list[Finding]:
    loops, traces = given.build()
    facts = facts_of(loops, traces)
    compared = compare_ranks(loops, facts)
    assert compared is not None
    assert list(straggler(compared, loops, facts)) == []
    return list(late_start(compared, loops, facts))


def test_the_rank_that_the_others_wait_for_is_named() -> None:
    (start,) = found(starting(2))
    assert (start.severity, start.rank, start.stream) == ("info", 2, None)
    assert start.title == "Rank 2 starts late, and the other ranks wait in their first iteration"
    assert start.evidence["waiting_ns"] == pytest.approx(20 * MS, rel=0.02)
    assert start.evidence["share_ratio"] == pytest.approx(20 / (20 + 12 * 2.1), rel=0.02)
    assert (start.evidence["ranks_waiting"], start.evidence["ranks_late"]) == (3, 1)


def test_several_late_ranks_are_one_finding() -> None:
    (start,) = found(starting(0, 3))
    assert start.title.startswith("Ranks 0, 3 start late, ")
    assert start.evidence["ranks_late"] == 2


def test_no_clock_is_needed() -> None:
    given = starting(2)
    given.offsets_ns = (0, 10**12, -(10**12), 5)
    (start,) = found(given)
    assert start.rank == 2


@pytest.mark.parametrize("ms", [0, 2])
def test_ranks_that_start_together_are_silent(ms: int) -> None:
    assert found(starting(2, ms=ms)) == []


def test_a_first_iteration_that_is_long_on_all_ranks_is_no_late_start() -> None:
    assert found(starting(0, 1, 2, 3)) == []


def test_a_rank_that_is_late_later_is_no_late_start() -> None:
    compute = steady()
    compute[1, 6, 0] += 20 * MS
    assert found(job(compute)) == []


def test_a_rank_that_is_always_late_is_a_straggler() -> None:
    loops, traces = job(steady(1)).build()
    facts = facts_of(loops, traces)
    compared = compare_ranks(loops, facts)
    assert compared is not None
    assert list(late_start(compared, loops, facts)) == []
    assert np.all([loop.usual.height for loop in loops])
