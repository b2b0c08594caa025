"""Who is late where each rank recorded one marked step and no loop: what is stated of it, and when nothing is."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import deepprof
from deepprof.analysis.merging import merge
from deepprof.analysis.part import without_timelines
from deepprof.analysis.pipeline import examine
from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.lateness import LUCK, bound_chance
from deepprof.metrics.options import AnalysisOptions
from deepprof.metrics.ranks.alignment import match_single
from deepprof.metrics.ranks.collectives import PASSES, Passes
from deepprof.render.answer import describe_answer
from deepprof.render.text import print_report
from tests.chance import examples
from tests.rank_jobs import RankJob

US = 1_000
PLACES = 8
SEND = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
GENERIC = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"


def one_step(*slow: int, ranks: int = 4, places: int = PLACES, extra: float = 0.3) -> npt.NDArray[np.int64]:
    """Ranks that compute 1 ms before each collective of one step, 1 % more or less; `slow` ones last longer."""
    compute = np.random.default_rng(7).uniform(0.99, 1.01, (ranks, 1, places)) * 1_000 * US
    compute[list(slow)] *= 1 + extra
    return compute.astype(np.int64)


def job(compute_ns: npt.NDArray[np.int64], **more: object) -> RankJob:
    places = compute_ns.shape[2]
    return RankJob(compute_ns=compute_ns, transfer_ns=(50 * US,) * places, marked=True, **more)  # type: ignore[arg-type]


def late(traces: Sequence[Trace]) -> list[Finding]:
    analysis = deepprof.analyze(traces)
    return [finding for finding in analysis.findings if finding.rule == "straggler"]


def blamed(given: RankJob) -> list[Finding]:
    return late([given.trace(rank) for rank in given.ranks])


def test_one_late_rank_of_one_step_is_told_and_what_is_not_known() -> None:
    given = job(one_step(2), offsets_ns=(0, 10**12, -(10**12), 5))
    (found,) = blamed(given)
    assert (found.rank, found.device, found.stream, found.iterations) == (2, 0, None, None)
    assert (found.severity, found.confidence) == ("warning", pytest.approx(0.45, abs=0.01))
    waited = np.median(given.waiting()[[0, 1, 3]].sum(axis=2))
    assert found.headroom_ns_per_iteration == pytest.approx(waited, rel=0.05)
    assert "in the one iteration recorded" in found.title
    assert "comes late to 8 of 8 collectives" in found.summary
    assert "In other iterations another rank may be late" in found.summary
    assert "first one" not in found.summary
    assert (found.evidence["collectives_compared"], found.evidence["collectives_last"]) == (8, 8)
    assert (found.evidence["iterations_compared"], found.evidence["cause"]) == (1, "compute")


def test_ranks_of_one_step_have_rows() -> None:
    analysis = deepprof.analyze(job(one_step(2)).build()[1])
    assert (analysis.loops, len(analysis.missing)) == ((), 0)
    assert analysis.ranks is not None
    assert analysis.ranks.ranks["rank"][0] == 2
    assert analysis.ranks.ranks["iterations"].to_list() == [0] * 4  # of one step none is known to repeat
    assert analysis.ranks.ranks["waiting_ns"].null_count() == 0
    assert analysis.ranks.skews["latest_rank"].to_list() == [2] * PLACES
    page = StringIO()
    print_report(analysis, Console(file=page, width=100))
    assert "is late in the one iteration recorded" in " ".join(page.getvalue().split())


def test_late_to_the_step_is_said() -> None:
    compute = one_step(2, extra=0.08)
    compute[2, 0, 0] *= 3
    (found,) = blamed(job(compute))
    assert found.rank == 2
    assert "Most of it is at the first one" in found.summary


def test_what_ranks_wait_for_a_late_one_in_one_step_is_no_communication() -> None:
    compute = one_step(ranks=6)
    compute[:, 0, 0] = np.array([2, 8, 20, 3, 5, 9]) * 1_000 * US  # they come to the step one after the other
    compute[2, 0, 1:] += 400 * US
    analysis = deepprof.analyze(job(compute).build()[1])
    (late,) = (each for each in analysis.findings if each.rule == "straggler")
    waits = [each for each in analysis.findings if each.rule == "communication-bound"]
    assert late.evidence["waited_ratio"] > 0.9
    assert waits
    assert all(each.caused_by for each in waits)
    first = next(describe_answer(analysis))
    assert analysis.answer.loss is late or "Most of the communication is waiting for rank 2, which is late." in first


def test_ranks_that_wait_for_one_another_in_turn_communicate() -> None:
    analysis = deepprof.analyze(job(wandering()).build()[1])
    assert not [each for each in analysis.findings if each.rule == "straggler"]
    assert "waiting for rank" not in next(describe_answer(analysis))


def test_two_late_ranks_of_one_step_are_one_finding() -> None:
    (found,) = blamed(job(one_step(1, 4, ranks=8, places=12)))
    assert found.rank in {1, 4}
    assert f"Late as well: rank {5 - int(found.rank or 0)}." in found.summary


def wandering(ranks: int = 4, places: int = 16) -> npt.NDArray[np.int64]:
    """Another rank is late at every collective."""
    compute = one_step(ranks=ranks, places=places)
    for k in range(places):
        compute[k % ranks, :, k] = compute[k % ranks, :, k] * 3 // 2
    return compute


def once(ranks: int = 4) -> npt.NDArray[np.int64]:
    """One rank is late at one collective."""
    compute = one_step(ranks=ranks)
    compute[2, 0, 3] *= 4
    return compute


@pytest.mark.parametrize(
    "compute_ns",
    [
        one_step(),
        one_step(2, extra=0.03),  # as much as devices of one model differ
        wandering(),
        wandering(ranks=2),
        once(),
        one_step(2, places=6, ranks=64)[:, :, :2],  # too few collectives
        one_step(1, places=6, ranks=2)[:, :, :4],
    ],
    ids=["healthy", "small", "wandering", "two wandering", "once", "two collectives", "four between two"],
)
def test_thin_evidence_in_one_step_is_silence(compute_ns: npt.NDArray[np.int64]) -> None:
    assert blamed(job(compute_ns)) == []


def test_a_step_that_is_not_marked_is_not_compared() -> None:
    _, traces = replace(job(one_step(2)), marked=False).build()
    assert late(traces) == []
    assert deepprof.analyze(traces).ranks is None


@settings(max_examples=examples(12), deadline=None)
@given(
    ranks=st.integers(2, 8),
    places=st.integers(6, 12),
    jitter=st.floats(0, 0.05),
    overlapping=st.booleans(),
    seed=st.integers(0, 1 << 20),
)
def test_healthy_steps_blame_nobody(ranks: int, places: int, jitter: float, overlapping: bool, seed: int) -> None:
    draws = np.random.default_rng(seed)
    compute = draws.uniform(1 - jitter, 1 + jitter, (ranks, 1, places)) * draws.uniform(1, 1.015, (ranks, 1, 1))
    given = job((compute * 1_000 * US).astype(np.int64), overlapping=overlapping)
    assert blamed(given) == []


def test_wild_steps_rarely_blame_anybody() -> None:
    draws = np.random.default_rng(11)
    jobs = [job((draws.uniform(0.5, 1.5, (4, 1, 8)) * 1_000 * US).astype(np.int64)) for _ in range(examples(24))]
    assert sum(bool(blamed(each)) for each in jobs) <= 2 * LUCK * len(jobs)


def test_numbers_that_say_that_the_steps_are_others_leave_ranks_apart() -> None:
    given = job(one_step(2), sequences=True)
    _, traces = given.build()
    assert [finding.rank for finding in late(traces)] == [2]
    moved = traces[1].collectives.with_columns(pl.col("sequence") + 100)
    assert late([traces[0], msgspec.structs.replace(traces[1], collectives=moved), *traces[2:]]) == []


def test_a_step_beside_loops_is_not_compared_and_changes_nothing() -> None:
    draws = np.random.default_rng(5)
    compute = draws.uniform(0.99, 1.01, (4, 12, PLACES)) * 1_000 * US
    compute[1] *= 1.3
    given = job(compute.astype(np.int64), skipped=(0, 0, 0, 11))
    _, traces = given.build()
    analysis = deepprof.analyze(traces)
    assert {loop.rank for loop in analysis.loops} == {0, 1, 2}
    assert analysis.ranks is not None
    assert [group.places for group in analysis.ranks.groups] == [((0, 0), (1, 0), (2, 0))]
    assert analysis.ranks.ranks.filter(rank=3)["iterations"].to_list() == [0]
    (found,) = late(traces)
    assert (found.rank, found.severity, found.evidence["iterations_compared"]) == (1, "critical", 12)


def test_parts_of_other_processes_say_the_same() -> None:
    _, traces = job(one_step(2)).build()
    question = AnalysisOptions(alone=False)
    sent = [pickle.loads(pickle.dumps(without_timelines(examine(trace, question)[1]))) for trace in traces]  # noqa: S301
    merged = merge(sent, question)
    here = deepprof.analyze(traces)
    assert all(step.timeline is None for part in sent for step in part.steps)
    assert [f for f in merged.findings if f.rule == "straggler"] == late(traces) != []
    assert merged.ranks is not None
    assert here.ranks is not None
    assert merged.ranks.ranks.equals(here.ranks.ranks)


@pytest.mark.parametrize("name", [SEND, GENERIC])
@pytest.mark.parametrize(("ranged", "told"), [("nccl:all_to_all", 1), ("nccl:send 0->1", 0), ("", 0)])
def test_a_range_around_the_launch_says_which_collective_it_is(name: str, ranged: str, told: int) -> None:
    found = blamed(job(one_step(2), names=(name,) * PLACES, ranged=ranged))
    assert len(found) == told


def test_single_passes_of_other_sequences_do_not_match() -> None:
    nothing = Passes((), pl.DataFrame(schema=PASSES))
    assert match_single(nothing, nothing) is None
    assert match_single(Passes(("a", "b"), nothing.rows), Passes(("b", "a"), nothing.rows)) is None


@given(st.integers(1, 40), st.data())
def test_the_bound_is_above_the_chance(count: int, data: st.DataObject) -> None:
    hits, ranks = data.draw(st.integers(0, count)), data.draw(st.integers(2, 9))
    chance = 1 / ranks
    exact = sum(math.comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(hits, count + 1))
    assert exact <= bound_chance(hits, count, chance) * (1 + 1e-9) <= 1 + 1e-9


@pytest.mark.traces
def test_the_late_rank_of_eight_real_ones_is_told(more_traces: Path) -> None:
    analysis = deepprof.analyze(deepprof.read_job(more_traces / "param-dlrm-8rank" / "dlrm_kineto.tar.gz"))
    (found,) = [each for each in analysis.findings if each.rule == "straggler"]
    assert (found.rank, found.severity) == (7, "warning")
    assert found.confidence < 0.5
    assert (found.evidence["collectives_late"], found.evidence["collectives_compared"]) == (8, 8)
    assert analysis.ranks is not None
    first = analysis.ranks.skews.row(0, named=True)
    assert (first["latest_rank"], first["skew_ns"]) == (7, 7_625_000)
