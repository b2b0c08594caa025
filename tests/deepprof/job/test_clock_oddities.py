"""Clocks of jobs with a rank that recorded nothing, or whose recorder wrote nonsense."""

import pytest
from msgspec.structs import replace

from deepprof.collectors.store.rank import open_rank, write_rank
from deepprof.collectors.time_range import OUT_OF_RANGE
from deepprof.job.alignment import align
from deepprof.job.part import read_parts
from tests.deepprof.job.test_clocks import EPOCH, make_rank
from tests.tables import make_trace


def empty_rank(rank):
    """As a profiler writes that was stopped before anything ran: no event, and no time to show its clock by."""
    return replace(make_trace([], rank=rank), clock="session")


@pytest.mark.parametrize("clock", ["unix", "session"])
def test_a_rank_without_a_record_does_not_keep_the_others_apart(clock):
    ranks = [make_rank(rank, clock=clock, epoch_ns=EPOCH if clock == "session" else None) for rank in (0, 2)]
    aligned = align([ranks[0], empty_rank(1), ranks[1]])
    assert [trace.clock for trace in aligned] == ["unix"] * 3
    assert not any("not aligned" in note for trace in aligned for note in trace.notes)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("nothing", [[], [1]])
def test_a_range_counts_from_the_first_event_of_the_job_beside_an_empty_rank(tmp_path, stored, nothing):
    ranks = [make_rank(0), *map(empty_rank, nothing), make_rank(2, offset=10_000)]
    if stored:
        for index, trace in enumerate(ranks):
            write_rank(trace, tmp_path / str(index))
        ranks = [open_rank(tmp_path / str(index)) for index in range(len(ranks))]
    first, *_, last = read_parts(ranks, (0, 5_000))
    assert first.device_events.height == 5
    assert last.accounting.dropped == {OUT_OF_RANGE: 20}


@pytest.mark.parametrize("epoch", [0, 5, -1, 10**30])
def test_an_epoch_that_can_be_none_is_not_counted_with(epoch):
    """The range then counts from every rank's own first event, as for clocks that no one can compare."""
    ranks = [make_rank(0), make_rank(1, clock="session", epoch_ns=epoch, offset=77)]
    assert [part.device_events.height for part in read_parts(ranks, (0, 5_000))] == [5, 5]
