"""Who is blamed for the others' waiting, and when no one is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from msgspec.structs import replace

import deepprof
from deepprof import simulation
from deepprof.collectors.trace import COLLECTIVES, Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.straggler import straggler
from deepprof.metrics.ranks.comparison import compare_ranks
from tests.rank_jobs import RankJob, facts_of
from tests.tables import table

US = 1_000


def steady(*slow: int, ranks: int = 4, iterations: int = 12, extra: float = 0.3) -> npt.NDArray[np.int64]:
    """Ranks that compute 1 ms before each of two collectives, 1 % more or less; `slow` ones take `extra` longer."""
    compute = np.random.default_rng(7).uniform(0.99, 1.01, (ranks, iterations, 2)) * 1_000 * US
    compute[list(slow)] *= 1 + extra
    return compute.astype(np.int64)


def wandering(ranks: int = 4, iterations: int = 24) -> npt.NDArray[np.int64]:
    """Another rank is late in every iteration."""
    compute = steady(ranks=ranks, iterations=iterations)
    for i in range(iterations):
        compute[i % ranks, i] = compute[i % ranks, i] * 13 // 10
    return compute


def job(compute_ns: npt.NDArray[np.int64], **more: object) -> RankJob:
    return RankJob(compute_ns=compute_ns, transfer_ns=(50 * US, 50 * US), **more)  # type: ignore[arg-type]


def blamed(given: RankJob) -> list[Finding]:
    loops, traces = given.build()
    found = compare_ranks(loops, facts_of(loops, traces))
    assert found is not None
    return list(straggler(found, loops, facts_of(loops, traces)))


def test_the_late_rank_is_named_with_what_the_others_wait_for_it() -> None:
    given = job(steady(2), offsets_ns=(0, 10**12, -(10**12), 5))
    (found,) = blamed(given)
    assert (found.rule, found.severity, found.rank, found.device, found.stream) == ("straggler", "critical", 2, 0, None)
    waited = np.median(given.waiting()[[0, 1, 3]].sum(axis=2))
    assert found.headroom_ns_per_iteration == pytest.approx(waited, rel=0.05)
    assert found.iterations == (0, 11)
    assert found.confidence > 0.95
    assert found.evidence["consistency_ratio"] == 1
    assert found.evidence["matched_by"] == "ends"
    assert (found.evidence["ranks_compared"], found.evidence["ranks_late"]) == (4, 1)


def test_a_slow_device_takes_longer_for_the_same_kernels() -> None:
    (found,) = blamed(job(steady(1)))
    assert found.evidence["cause"] == "compute"
    assert found.evidence["kernel_time_ratio"] == pytest.approx(1.3, rel=0.02)
    assert found.location == {"rank": 1, "device": 0}
    assert "clocks" in found.advice


def test_one_slower_kernel_is_named() -> None:
    compute = steady()
    compute[1, :, 1] = compute[1, :, 1] * 3 // 2
    (found,) = blamed(job(compute))
    assert found.location == {"rank": 1, "device": 0, "kernel": "kernel1"}


def test_between_two_ranks_the_one_that_waits_less_is_late() -> None:
    (found,) = blamed(job(steady(1, ranks=2)))
    assert found.rank == 1


def test_several_late_ranks_are_one_finding() -> None:
    (found,) = blamed(job(steady(1, 4, ranks=8)))
    assert found.rank in {1, 4}
    assert found.evidence["ranks_late"] == 2
    assert f"Late as well: rank {5 - int(found.rank or 0)}." in found.summary


def test_absent_ranks_are_named_because_one_may_be_later() -> None:
    (found,) = blamed(job(steady(1), present=(0, 1), world_size=4))
    assert found.evidence["ranks_missing"] == "2-3 of 4"
    assert "2-3 of 4" in found.summary


def test_late_for_some_iterations_says_which() -> None:
    compute = steady(iterations=20)
    compute[3, 5:] = compute[3, 5:] * 13 // 10
    (found,) = blamed(job(compute))
    assert (found.rank, found.iterations) == (3, (5, 19))
    assert found.evidence["consistency_ratio"] == pytest.approx(15 / 20)


def test_iterations_are_numbered_as_in_the_late_ranks_own_loop() -> None:
    compute = steady(iterations=20)
    compute[3, 5:] = compute[3, 5:] * 13 // 10
    (found,) = blamed(job(compute, skipped=(0, 0, 0, 2), sequences=True))
    assert (found.rank, found.iterations) == (3, (3, 17))


@pytest.mark.parametrize(
    "compute_ns",
    [
        steady(),
        steady(2, extra=0.03),  # as much as devices of one model differ
        wandering(),
        wandering(ranks=2),
        steady(2, iterations=2),
        steady(2, iterations=1),
        steady(2, iterations=0),
    ],
    ids=["healthy", "small", "wandering", "two wandering", "two iterations", "one", "none"],
)
def test_thin_evidence_is_silence(compute_ns: npt.NDArray[np.int64]) -> None:
    assert blamed(job(compute_ns)) == []


def test_without_collectives_nobody_is_known_to_wait() -> None:
    assert blamed(job(steady(2), names=("my_all_reduce", "my_all_reduce"))) == []


def test_ranks_that_were_not_seen_together_are_blamed_with_less_confidence() -> None:
    draws = np.random.default_rng(3)
    slow = np.array([1.0, 1.6])[:, None, None]
    here, there = (job((draws.uniform(800, 1200, (2, 15, 2)) * US * slow).astype(np.int64)) for _ in range(2))
    loops, traces = ([a[0], b[1]] for a, b in zip(here.build(), there.build(), strict=True))
    found = compare_ranks(loops, facts_of(loops, traces))
    assert found is not None
    (finding,) = straggler(found, loops, facts_of(loops, traces))
    assert (finding.rank, finding.evidence["matched_by"]) == (1, "medians")
    assert finding.confidence < 0.8


def test_different_programs_blame_no_rank_of_each_other() -> None:
    slow, other = job(steady(1, ranks=2, extra=0.5)), RankJob(compute_ns=np.full((3, 8, 1), 9 * US))
    loops, traces = ([*a, b[2]] for a, b in zip(slow.build(), other.build(), strict=True))
    found = compare_ranks(loops, facts_of(loops, traces))
    assert found is not None
    assert [finding.rank for finding in straggler(found, loops, facts_of(loops, traces))] == [1]


def read_simulated(
    scenario: str, folder: Path, *, bare: bool = False, **options: object
) -> tuple[list[Trace], int | None]:
    """The traces of a simulated job and its slow rank; `bare` leaves out what the profiler states of collectives."""
    made = simulation.simulate_ranks(scenario, iterations=12, **options)  # type: ignore[arg-type]
    paths = [folder / f"rank-{each.rank}.json" for each in made]
    for each, path in zip(made, paths, strict=True):
        simulation.write(each, path)
    traces = [deepprof.read(path) for path in paths]
    return [without_arguments(trace) if bare else trace for trace in traces], made[0].slow_rank


def without_arguments(trace: Trace) -> Trace:

    return replace(trace, collectives=table([], COLLECTIVES))


@pytest.mark.widens(5)
@pytest.mark.parametrize(("seed", "strength", "ranks"), [(1, 0.5, 4), (2, 1.0, 3), (3, 2.0, 2), (4, 1.0, 6)])
@pytest.mark.parametrize("bare", [False, True])
def test_a_simulated_straggler_is_the_headline(
    tmp_path: Path, *, seed: int, strength: float, ranks: int, bare: bool
) -> None:
    traces, slow = read_simulated("straggler", tmp_path, bare=bare, seed=seed, strength=strength, ranks=ranks)
    analysis = deepprof.analyze(traces)
    assert [(f.rule, f.rank) for f in analysis.findings if f.rule == "straggler"] == [("straggler", slow)]
    assert analysis.ranks is not None
    assert analysis.ranks.ranks["rank"][0] == slow
    assert analysis.ranks.groups[0].matching == ("ends" if bare else "sequence")


@pytest.mark.widens(3)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_simulated_ranks_that_keep_up_are_not_blamed(tmp_path: Path, seed: int) -> None:
    traces, _ = read_simulated("ranks-healthy", tmp_path, seed=seed, ranks=4)
    analysis = deepprof.analyze(traces)
    assert analysis.ranks is not None
    assert "straggler" not in {finding.rule for finding in analysis.findings}
    assert analysis.ranks.ranks["score"].max() < 1.05  # type: ignore[operator]


def test_a_simulated_job_with_only_some_of_its_ranks_says_so(tmp_path: Path) -> None:
    traces, slow = read_simulated("straggler", tmp_path, seed=1, ranks=4)
    analysis = deepprof.analyze([trace for trace in traces if trace.rank != (0 if slow else 1)])
    assert analysis.ranks is not None
    assert analysis.ranks.missing_text == f"{0 if slow else 1} of 4"
    assert slow in {finding.rank for finding in analysis.findings if finding.rule == "straggler"}


def test_one_rank_alone_is_not_compared() -> None:
    _, traces = job(steady(0, ranks=1)).build()
    assert deepprof.analyze(traces).ranks is None
