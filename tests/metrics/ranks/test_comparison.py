"""Ranks side by side: every wait against one found a nanosecond at a time, on jobs whose truth is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import deepprof
from deepprof.collectors.clocks import shift
from deepprof.collectors.trace import Accounting, Trace
from deepprof.metrics.loop import Loop
from deepprof.metrics.ranks.alignment import match_passes, turns_between
from deepprof.metrics.ranks.collectives import PASSES, Passes, read_passes
from deepprof.metrics.ranks.comparison import GROUP_SKEWS, GROUP_WAITS, RankComparison, compare_ranks
from deepprof.metrics.ranks.ranks_table import RANKS
from tests.chance import examples
from tests.rank_jobs import RankJob, facts_of
from tests.tables import event, make_trace

SEND = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
BROADCAST = "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"


def compared(loops: list[Loop], traces: list[Trace]) -> RankComparison:
    found = compare_ranks(loops, facts_of(loops, traces))
    assert found is not None
    assert found.ranks.schema == RANKS
    assert found.skews.schema == GROUP_SKEWS
    assert all(group.waits.schema == GROUP_WAITS for group in found.groups)
    return found


def constant(*per_rank: int, iterations: int = 6, places: int = 1) -> npt.NDArray[np.int64]:
    """What each rank computes before every collective."""
    return np.broadcast_to(np.array(per_rank)[:, None, None], (len(per_rank), iterations, places)).astype(np.int64)


def varied(seed: int, ranks: int = 3, iterations: int = 9, places: int = 2) -> npt.NDArray[np.int64]:
    """Times that vary, but not this much that an iteration passes for warm-up."""
    return np.random.default_rng(seed).integers(600, 700, (ranks, iterations, places))


def waits_of(found: RankComparison, rank: int) -> dict[int, int]:
    (group,) = found.groups
    return dict(group.waits.filter(pl.col("rank") == rank).select("iteration", "waiting_ns").rows())


SETTINGS = st.fixed_dictionaries(
    {
        "overlapping": st.booleans(),
        "linked": st.booleans(),
        "sizes": st.booleans(),
        "sequences": st.booleans(),
        "offsets_ns": st.tuples(*[st.integers(-(10**15), 10**15)] * 3),
        "skipped": st.tuples(st.just(0), st.integers(0, 2), st.integers(0, 2)),
        "turns": st.tuples(st.just(0), st.integers(0, 1), st.integers(0, 1)),
    }
).filter(lambda given: given["linked"] or not given["overlapping"])  # without launches, an overlap is not ordered


@given(st.integers(0, 10**6), SETTINGS)
@settings(max_examples=examples(25))
def test_waits_are_those_of_a_plain_count(seed: int, settings: dict[str, object]) -> None:
    job = RankJob(compute_ns=varied(seed), transfer_ns=(30, 50), **settings)  # type: ignore[arg-type]
    found, truth = compared(*job.build()), job.lost()
    assert found.groups[0].noise_ns == 0
    for rank in range(3):
        waits = waits_of(found, rank)
        assert len(waits) >= 5
        assert waits == {i: truth[rank, i] for i in waits}


@given(st.integers(0, 10**6), st.tuples(*[st.integers(-(10**15), 10**15)] * 3))
@settings(max_examples=examples(10))
def test_clocks_change_nothing(seed: int, offsets: tuple[int, ...]) -> None:
    one, other = (
        compared(*RankJob(compute_ns=varied(seed), transfer_ns=(30, 50), offsets_ns=at).build()) for at in ((), offsets)
    )
    assert one.ranks.equals(other.ranks)
    assert one.skews.equals(other.skews)
    assert one.groups[0].waits.equals(other.groups[0].waits)


def test_the_rank_that_needs_most_by_itself_comes_first() -> None:
    found = compared(*RankJob(compute_ns=constant(200, 300, 240), transfer_ns=(50,)).build())
    rows = found.ranks.select("rank", "iteration_ns", "compute_ns", "waiting_ns", "own_ns", "score").rows()
    assert rows == [
        (1, 350, 300, 0, 300, round(300 / 220, 4)),
        (2, 350, 240, 60, 240, round(240 / 250, 4)),
        (0, 350, 200, 100, 200, round(200 / 270, 4)),
    ]
    assert found.ranks["best_score"].to_list() == [1.0, 1.0, 1.0]
    assert found.skews.rows() == [(0, 0, "AllReduce", 100, 1, 0)]
    assert found.groups[0].matching == "ends"


def test_a_rank_is_also_compared_with_its_own_best() -> None:
    compute = constant(200, 200, iterations=21).copy()
    compute[1, 1:, 0] = [200, 400, 400, 400] * 5
    found = compared(*RankJob(compute_ns=compute, transfer_ns=(50,)).build())
    assert dict(found.ranks.select("rank", "best_score").rows()) == {1: 2.0, 0: 1.0}


def test_waits_that_computation_hides_cost_nothing() -> None:
    compute = constant(300, 300, places=2).copy()
    compute[0, :, 0], compute[0, :, 1] = 500, 100  # rank 1 is early at the first collective, and in time at the second
    found = compared(*RankJob(compute_ns=compute, transfer_ns=(20, 20), overlapping=True).build())
    assert found.ranks["waiting_ns"].to_list() == [0, 0]
    assert found.skews["skew_ns"].to_list() == [200, 0]


def test_numbers_of_collectives_match_ranks_before_their_ends_do() -> None:
    job = RankJob(compute_ns=constant(200, 300), sequences=True, skipped=(0, 2))
    found = compared(*job.build())
    assert found.groups[0].matching == "sequence"
    assert set(waits_of(found, 0)) == set(waits_of(found, 1)) == {2, 3, 4, 5}


def test_ranks_that_cannot_be_laid_on_each_other_are_compared_by_their_usual_times() -> None:
    draws = np.random.default_rng(5)
    one, other = (RankJob(compute_ns=draws.integers(600, 900, (2, 9, 2)), transfer_ns=(30, 50)) for _ in range(2))
    loops, traces = ([a[0], b[1]] for a, b in zip(one.build(), other.build(), strict=True))
    found = compared(loops, traces)
    (group,) = found.groups
    assert (group.matching, group.noise_ns) == (None, None)
    usual = [[np.median(job.ends[:, k] - job.begins[r, :, k]) for k in range(2)] for r, job in ((0, one), (1, other))]
    assert [usual[found.skews["latest_rank"][k]][k] for k in range(2)] == [
        min(usual[0][k], usual[1][k]) for k in range(2)
    ]
    assert group.waits["waiting_ns"].min() >= 0  # type: ignore[operator]


def test_ranks_without_collectives_are_compared_by_what_they_compute() -> None:
    loops, traces = RankJob(compute_ns=constant(200, 300)).build()
    bare = [replace_collectives(trace) for trace in traces]
    found = compared(loops, bare)
    assert found.ranks.select("rank", "compute_ns").rows() == [(1, 300), (0, 200)]
    assert found.ranks.select("waiting_ns", "own_ns", "score", "best_score").null_count().row(0) == (2, 2, 2, 2)
    assert found.skews.is_empty()


def replace_collectives(trace: Trace) -> Trace:
    """The same trace, whose collectives have the name of another kernel."""
    return replace(trace, names=trace.names.str.replace("nccl", "my"))


@pytest.mark.parametrize("name", [SEND, BROADCAST, "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"])
def test_what_does_not_hold_all_ranks_shows_no_wait(name: str) -> None:
    found = compared(*RankJob(compute_ns=constant(200, 300), names=(name,)).build())
    assert found.ranks["waiting_ns"].to_list() == [None, None]


def test_groups_of_one_name_with_too_many_ranks_are_several_groups() -> None:
    loops, traces = RankJob(compute_ns=constant(200, 300, 250), sizes=True).build()
    sized = [
        [replace(t, collectives=t.collectives.with_columns(group_size=pl.lit(size, pl.UInt32))) for t in traces]
        for size in (2, 3)
    ]
    assert compared(loops, sized[0]).ranks["waiting_ns"].null_count() == 3
    assert compared(loops, sized[1]).ranks["waiting_ns"].to_list() == [0, 50, 100]


def with_group_size(traces: list[Trace], size: int) -> list[Trace]:
    """The same traces, whose collectives state how many ranks take part."""
    sizes = pl.lit(size, pl.UInt32).alias("group_size")
    return [replace(trace, collectives=trace.collectives.with_columns(sizes)) for trace in traces]


def test_ranks_with_other_programs_are_not_compared() -> None:
    first, second = (
        RankJob(compute_ns=constant(200, 300, 9, 9)),
        RankJob(compute_ns=constant(9, 9, 50, 70, places=3), transfer_ns=(9, 9, 9)),
    )
    (loops, traces), (others, more) = first.build(), second.build()
    found = compared([*loops[:2], *others[2:]], [*traces[:2], *more[2:]])
    assert [group.places for group in found.groups] == [((0, 0), (1, 0)), ((2, 0), (3, 0))]
    assert dict(found.ranks.select("rank", "group").rows()) == {0: 0, 1: 0, 2: 1, 3: 1}
    assert found.ranks["rank"].to_list()[0] in {1, 3}
    assert set(found.skews["group"]) == {0, 1}


@pytest.mark.parametrize(
    ("world_size", "present", "missing", "text"),
    [
        (None, (0, 2), None, ""),
        (3, (0, 1, 2), (), ""),
        (3, (0, 2), ((1, 1),), "1 of 3"),
        (16, (0, 1), ((2, 15),), "2-15 of 16"),
        (16, (1, 2), ((0, 0), (3, 15)), "0, 3-15 of 16"),
        (2, (0, 2), None, ""),  # a size that its own ranks contradict
        (1 << 40, (0, 1), None, ""),
    ],
)
def test_ranks_without_a_trace_are_named(
    world_size: int | None, present: tuple[int, ...], missing: tuple[tuple[int, int], ...] | None, text: str
) -> None:
    job = RankJob(compute_ns=constant(200, 300, 250), present=present, world_size=world_size)
    found = compared(*job.build())
    assert (found.missing, found.missing_text) == (missing, text)
    assert set(found.ranks["rank"]) == set(present)


def test_traces_that_disagree_on_the_number_of_ranks_state_none() -> None:
    loops, traces = RankJob(compute_ns=constant(200, 300), world_size=4).build()
    found = compared(loops, [traces[0], replace(traces[1], world_size=8)])
    assert (found.world_size, found.missing) == (None, None)


def test_one_rank_is_not_compared_and_neither_are_ranks_without_loops() -> None:
    loops, traces = RankJob(compute_ns=constant(200, 300)).build()
    assert compare_ranks(loops[:1], facts_of(loops, traces[:1])) is None
    assert compare_ranks([], facts_of([], traces)) is None
    assert compare_ranks([], []) is None


def test_a_rank_without_a_loop_has_a_row_without_figures() -> None:
    loops, traces = RankJob(compute_ns=constant(200, 300)).build()
    bare = make_trace([event(1, 0, 9)], rank=5)
    found = compared(loops, [*traces, bare, make_trace(rank=6)])
    assert found.ranks["rank"].to_list() == [1, 0, 5, 6]
    assert found.ranks.row(2) == (5, 0, None, 0, *[None] * 6)
    assert found.ranks.row(3) == (6, None, None, 0, *[None] * 6)
    assert compared(loops[:1], [traces[0], bare]).ranks["waiting_ns"].to_list() == [None, None]


@pytest.mark.parametrize("iterations", [0, 1, 2])
def test_few_iterations_give_no_more_than_they_show(iterations: int) -> None:
    found = compared(*RankJob(compute_ns=constant(200, 300, iterations=iterations)).build())
    assert found.ranks["iterations"].to_list() == [iterations] * 2
    assert found.ranks["iteration_ns"].null_count() == (2 if iterations < 2 else 0)


def test_iterations_with_another_sequence_are_left_out() -> None:
    loops, traces = RankJob(compute_ns=varied(3), transfer_ns=(30, 50)).build()
    first = traces[0].device_events
    extra = first.filter(pl.col("stream") == 24)[4:5].with_columns(pl.col("start_ns", "end_ns") - 1)
    events = pl.concat([first, extra]).sort("start_ns")
    count = events.height + traces[0].host_events.height
    more = replace(traces[0], device_events=events, accounting=Accounting(count, count))
    truth = waits_of(compared(loops, traces), 1)
    found = waits_of(compared(loops, [more, *traces[1:]]), 1)
    assert set(truth) - set(found) == {2}
    assert found == {i: truth[i] for i in found}


@given(st.text("ab", min_size=1, max_size=9), st.integers(0, 8), st.text("ab", max_size=9))
def test_turns_are_all_ways_to_begin_elsewhere(names: str, by: int, other: str) -> None:
    turned = names[by % len(names) :] + names[: by % len(names)]
    for wanted in (turned, other):
        plain = [t for t in range(len(names)) if names[t:] + names[:t] == wanted]
        assert turns_between(list(names), list(wanted)) == plain


def test_passes_that_share_nothing_do_not_match() -> None:
    loops, traces = RankJob(compute_ns=constant(200, 300)).build()
    passes, nothing = read_passes(loops[0], traces[0]), Passes((), pl.DataFrame(schema=PASSES))
    assert match_passes(passes, nothing) is None
    assert match_passes(nothing, nothing) is None
    assert match_passes(passes, replace(passes, names=("Barrier",))) is None


@pytest.mark.traces
def test_two_trimmed_ranks_of_many_blame_nobody(traces: Path) -> None:
    files = [traces / "hta-timeline" / "sampled_rank-0.json.gz", *sorted((traces / "hta-filter-r1").iterdir())]
    analysis = deepprof.analyze(deepprof.read_job(files))
    assert analysis.loops == ()
    assert analysis.ranks is not None  # their one marked step is compared
    assert analysis.ranks.ranks["iterations"].to_list() == [0, 0]
    assert "straggler" not in [finding.rule for finding in analysis.findings]
    assert "straggler" not in {finding.rule for finding in analysis.findings}
    assert all(finding.confidence < 0.7 for finding in analysis.findings), "of one step each, no more is certain"


@pytest.mark.traces
def test_every_device_of_one_trace_has_a_row(traces: Path) -> None:
    analysis = deepprof.analyze(deepprof.read(traces / "tl-jax-conv-08" / "tw003.xplane.pb"))
    assert analysis.ranks is not None
    assert sorted(analysis.ranks.ranks["device"]) == list(range(8))
    assert analysis.ranks.ranks["iterations"].to_list() == [5] * 8
    assert analysis.ranks.ranks["waiting_ns"].null_count() == 8
    assert "straggler" not in {finding.rule for finding in analysis.findings}


@pytest.mark.traces
@pytest.mark.parametrize("name", ["tl-resnet-ckpt/resnet_act_checkpoint.json.gz", "hta-nccl-parser/nccl_data.json.gz"])
def test_a_real_rank_beside_its_own_twin_waits_for_nothing(traces: Path, name: str) -> None:
    rank = deepprof.read(traces / name)
    twin = replace(shift(rank, 10**9), rank=1)
    analysis = deepprof.analyze([rank, twin])
    assert analysis.ranks is not None
    assert analysis.ranks.groups[0].matching is not None
    assert analysis.ranks.groups[0].noise_ns == 0
    assert analysis.ranks.ranks["waiting_ns"].to_list() == [0, 0]
    assert analysis.ranks.ranks["score"].to_list() == [1.0, 1.0]
    assert analysis.ranks.missing == (() if rank.world_size == 2 else ((2, 7),))
    assert "straggler" not in {finding.rule for finding in analysis.findings}
