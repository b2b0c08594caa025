"""What a rank states to the others: enough to be compared by, and no more than that."""

from __future__ import annotations

import pickle

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.metrics.ranks.collectives import Passes, read_passes
from deepprof.metrics.ranks.facts import KERNEL_TIMES, computing_spans, gather_facts, mean_times, places_of
from tests.rank_jobs import ALL_REDUCE, RankJob, facts_of, moments
from tests.tables import copy, event, make_trace


def constant(*per_rank: int, iterations: int = 6) -> RankJob:
    return RankJob(compute_ns=np.broadcast_to(np.array(per_rank)[:, None, None], (len(per_rank), iterations, 1)).copy())


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12)


@given(SPANS, SPANS, SPANS)
def test_computing_is_what_computes_within_collectives(
    kernels: list[tuple[int, int]], collectives: list[tuple[int, int]], copies: list[tuple[int, int]]
) -> None:
    rows = [event(0, start, start + length) for start, length in kernels]
    rows += [event(1, start, start + length, stream=9) for start, length in collectives]
    rows += [event(0, start, start + length, device=1) for start, length in copies]
    rows += [copy(start, start + length, 1) for start, length in copies]
    trace = make_trace(rows, names=["k", ALL_REDUCE])
    passes = Passes(
        ("AllReduce ?",), pl.DataFrame({"start_ns": s, "end_ns": s + n} for s, n in collectives or [(0, 0)])
    )
    found = computing_spans(trace, 0, passes)
    assert moments(found.starts, found.ends) == covered_moments(kernels) & covered_moments(collectives)


def covered_moments(spans: list[tuple[int, int]]) -> set[int]:
    return {moment for start, length in spans for moment in range(start, start + length)}


def test_a_rank_without_an_event_says_what_it_is() -> None:
    facts = gather_facts([], replace(make_trace(rank=3), world_size=8))
    assert (facts.rank, facts.world_size, facts.device, facts.places) == (3, 8, None, {})


def test_a_rank_speaks_for_its_own_loops_alone() -> None:
    loops, traces = constant(200, 300).build()
    facts = facts_of(loops, traces)
    assert [(each.rank, list(each.places)) for each in facts] == [(0, [0]), (1, [0])]
    assert set(places_of(facts)) == {(0, 0), (1, 0)}
    assert facts[1].places[0].passes.rows.equals(read_passes(loops[1], traces[1]).rows)


def test_without_collectives_there_is_nothing_to_compare() -> None:
    loops, traces = constant(200).build()
    silent = replace(traces[0], names=pl.Series("name", ["k"] * len(traces[0].names)))
    (place,) = gather_facts(loops, silent).places.values()
    assert place.passes.names == ()
    assert len(place.computing.starts) == 0
    assert place.kernels.is_empty()
    assert place.kernels.schema == KERNEL_TIMES


def test_one_iteration_has_no_usual_kernels() -> None:
    loops, traces = constant(200, iterations=1).build()
    assert mean_times(loops[0], traces[0]).is_empty()


def test_mean_times_are_those_of_the_kernels_by_name() -> None:
    loops, traces = constant(200, iterations=4).build()
    told = mean_times(loops[0], traces[0])
    assert told.schema == KERNEL_TIMES
    assert told["name"].to_list() == ["kernel0"]
    assert told["mean_ns"].to_list() == [200.0]


def test_facts_survive_being_sent() -> None:
    loops, traces = constant(200, 300).build()
    (facts,) = facts_of(loops, traces[:1])
    again = pickle.loads(pickle.dumps(facts))  # noqa: S301  our own
    assert again.places[0].passes.rows.equals(facts.places[0].passes.rows)
    assert np.array_equal(again.places[0].computing.starts, facts.places[0].computing.starts)
    assert again.places[0].kernels.equals(facts.places[0].kernels)
