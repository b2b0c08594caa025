"""A rank on a slower device is the cause that others wait; where its work is larger, or all are alike, it is none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import deepprof
from benchmarks.cases.equal_kernels import MORE, load_equal
from deepprof.analysis import Analysis
from deepprof.analysis.pipeline import examine
from deepprof.diagnosis.causes import rank
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.slower_device import slower_device
from deepprof.metrics.breakdown.costs import mean_of
from deepprof.metrics.options import AnalysisOptions
from deepprof.metrics.ranks.comparison import compare_ranks
from deepprof.metrics.sharing.shared_places import SharedWork
from deepprof.metrics.sharing.work import read_work
from tests.rank_jobs import RankJob, facts_of, with_shapes

US = 1_000
Load = Callable[[str, int, float], Analysis]


@pytest.fixture(scope="module")
def examined(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """The analysis of a simulated job, made once."""

    @cache
    def load(scenario: str, ranks: int, more: float) -> Analysis:
        folder: Path = tmp_path_factory.mktemp("ranks")
        return deepprof.analyze(load_equal(scenario, ranks, more, folder))

    return load


def test_a_slower_device_is_the_cause_of_the_waiting(examined: Load) -> None:
    analysis = examined("straggler", 2, 1.0)
    (late,) = [each for each in analysis.findings if each.rule == "straggler"]
    found = analysis.headline
    assert found is not None
    assert (found.rule, found.rank, found.severity) == ("slower-device", late.rank, "critical")
    assert late.caused_by == "slower-device"
    assert {each.caused_by for each in analysis.findings if each.rule == "communication-bound"} == {"slower-device"}
    assert "nvidia-smi -q -d PERFORMANCE" in found.advice


def test_what_is_saved_is_in_one_finding_only(examined: Load) -> None:
    """The others wait 3.48 ms, of which the kernels explain 3.38: the rest is left to the symptom."""
    analysis = examined("straggler", 2, 1.0)
    found, late = (next(f for f in analysis.findings if f.rule == name) for name in ("slower-device", "straggler"))
    ratio, loop = found.evidence["kernel_time_ratio"], analysis.loops[found.rank or 0]
    assert found.headroom_ns_per_iteration == pytest.approx(mean_of(loop, "compute_ns") * (1 - 1 / ratio), rel=1e-3)  # type: ignore[operator]
    assert found.headroom_ns_per_iteration + late.headroom_ns_per_iteration == found.evidence["waited_ns"]  # type: ignore[operator]


def test_the_rank_with_more_work_is_late_on_no_slower_device(examined: Load) -> None:
    rules = {each.rule for each in examined("straggler", 2, MORE).findings}
    assert "slower-device" not in rules
    assert "straggler" in rules


def test_equal_devices_are_silent(examined: Load) -> None:
    assert {each.rule for each in examined("ranks-healthy", 2, 1.0).findings}.isdisjoint({"slower-device", "straggler"})


def one_slower(ranks: int, *slower: float, spare: int = 0, names: tuple[str, ...] = ()) -> RankJob:
    """Ranks with six kernels of 400 µs and a collective after each: five last longer on the first ranks.

    On all other ranks the sixth kernel needs `spare` longer.
    """
    compute = np.full((ranks, 12, 6), 400 * US, dtype=np.int64)
    for number, factor in enumerate(slower):
        compute[number, :, :5] = compute[number, :, :5] * factor
    compute[len(slower) :, :, 5] += spare
    return RankJob(compute_ns=compute, transfer_ns=(5 * US,) * 6, names=names)


def judge(given: RankJob) -> list[Finding]:
    """The findings on a job with launch shapes."""
    loops, bare = given.build()
    facts = facts_of(loops, [with_shapes(trace) for trace in bare])
    compared = compare_ranks(loops, facts)
    assert compared is not None
    return list(slower_device(compared, loops, facts))


def test_the_bound_is_what_the_kernels_explain() -> None:
    """1.3 times 2000 µs and 400 are 3000 µs, of which 1 − 1/1.3 are 692; the others wait 600 µs, which is less."""
    (found,) = judge(one_slower(4, 1.3))
    assert (found.rank, found.stream, found.severity) == (0, None, "critical")
    assert found.evidence["kernel_time_ratio"] == pytest.approx(1.3)
    assert found.evidence["even_ratio"] == pytest.approx(2600 / 3000, abs=1e-4)
    assert found.evidence["slower_ns"] == pytest.approx(692_308, abs=1)
    assert found.headroom_ns_per_iteration == found.evidence["waited_ns"] == 600 * US
    assert found.parts == {"exposed_communication_ns": 600 * US}


def test_a_rank_that_no_other_waits_for_is_a_remark() -> None:
    """It comes 120 µs late to five collectives, the others 600 µs to the sixth."""
    (found,) = judge(one_slower(4, 1.3, spare=600 * US))
    assert (found.severity, found.stream, set(found.parts)) == ("info", 7, {"compute_ns"})
    assert found.evidence["waited_ns"] is None
    assert "No rank waits for it" in found.summary


def test_without_collectives_its_own_time_is_lost() -> None:
    (found,) = judge(one_slower(2, 1.3, names=("all_reduce_of_my_own",) * 6))
    assert (found.rank, found.severity, set(found.parts)) == (0, "critical", {"compute_ns"})
    assert found.headroom_ns_per_iteration == found.evidence["slower_ns"]


def test_several_slower_ranks_are_one_finding() -> None:
    (found,) = judge(one_slower(8, 1.3, 1.5))
    assert (found.rank, found.evidence["ranks_slower"]) == (1, 2)
    assert "Slower as well: rank 0 (1.30 times)." in found.summary
    assert "than the others for the same kernels" in found.title


def test_of_two_ranks_the_other_is_named() -> None:
    (found,) = judge(one_slower(2, 1.3))
    assert "than the other for the same kernels" in found.title
    assert "1.30 times as long as on the other rank" in found.summary


def test_equal_ranks_and_ranks_without_shapes_are_silent() -> None:
    assert judge(one_slower(4, 1.0)) == []
    loops, bare = one_slower(4, 1.3).build()
    compared = compare_ranks(loops, facts_of(loops, bare))
    assert compared is not None
    assert list(slower_device(compared, loops, facts_of(loops, bare))) == []


def test_on_a_device_that_ranks_share_nothing_is_compared(examined: Load) -> None:
    """Work of another rank makes kernels slower there."""
    traces = examined("straggler", 2, 1.0).traces
    shared = (SharedWork("GPU-0", tuple(read_work(trace, 0) for trace in traces)),)
    for places, silent in (((), False), (shared, True)):
        _, part = examine(traces[0], AnalysisOptions(alone=False, shared=places))
        assert part.facts is not None
        assert part.facts.places[0].calls.is_empty() is silent


def test_a_slower_rank_explains_only_its_own_lateness() -> None:
    (found,) = judge(one_slower(4, 1.3))
    for number, cause in ((0, "slower-device"), (2, None)):
        late = replace(found, rule="straggler", rank=number)
        assert [each.caused_by for each in rank([found, late]) if each.rule == "straggler"] == [cause]
