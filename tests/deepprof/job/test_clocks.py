"""Ranks on one clock: offsets that were put in are found, and what cannot be known is stated."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.clocks import fits, shift, to_unix
from deepprof.collectors.trace import COLLECTIVES, RECORD_TABLES
from deepprof.job.alignment import MIN_MATCHED_COLLECTIVES, align, list_ranks
from tests.collectors.test_store import make_full_trace
from tests.tables import event, make_trace, table

EPOCH = 1_700_000_000_000_000_000


def make_rank(rank, count=20, *, offset=0, jitter=(), group="0", clock="unix", **header):
    """A rank whose collectives end at the same true time on every rank, told by a clock that is `offset` ahead."""
    late = [jitter[i % len(jitter)] if jitter else 0 for i in range(count)]
    rows = [event(0, 1000 * i + offset - 10 * rank, 1000 * i + 500 + offset + late[i]) for i in range(count)]
    sides = [{"event": i, "collective": "allreduce", "group": group, "sequence": i} for i in range(count)]
    trace = replace(make_trace(rows, rank=rank), collectives=table(sides, COLLECTIVES), clock=clock, **header)
    return shift(trace, EPOCH) if clock == "unix" else trace


def starts(traces):
    return [trace.device_events["end_ns"][0] for trace in traces]


def test_a_single_trace_is_left_alone():
    trace = make_rank(0)
    assert align([trace]) == [trace]
    assert align([]) == []


@given(st.integers(-(10**12), 10**12), st.lists(st.integers(-50, 50), min_size=1, max_size=7))
def test_an_offset_that_was_put_in_is_found(offset, jitter):
    first, second = align([make_rank(0), make_rank(1, offset=offset, jitter=jitter)])
    left = second.device_events["end_ns"] - first.device_events["end_ns"]
    clear = abs(offset) > 1000
    assert left.abs().max() <= (200 if clear else 1100)
    if clear:
        assert "taken off: rank 1" in first.notes[-1]
    assert second.device_events["end_ns"].len() == 20
    assert second.notes == ()


def test_what_scatters_as_widely_as_it_is_off_is_left_and_said():
    traces = [make_rank(0), make_rank(1, offset=100, jitter=[-400, 0, 400, 250, -250])]
    assert starts(align(traces)) == starts(traces)
    assert "no clear difference" in align(traces)[0].notes[-1]


def test_too_few_collectives_are_left_and_said():
    traces = [make_rank(0), make_rank(1, MIN_MATCHED_COLLECTIVES - 1, offset=10**6)]
    assert starts(align(traces)) == starts(traces)
    assert "too few collectives" in align(traces)[0].notes[-1]


def test_other_groups_do_not_match():
    traces = [make_rank(0), make_rank(1, offset=10**6, group="1")]
    assert starts(align(traces)) == starts(traces)
    assert align(traces)[0].notes == (
        "the times of ranks 0 and 1 are unix time; how far the hosts' clocks differ is not measured",
    )


@pytest.mark.parametrize("name", ["send", "ncclRecv", "broadcast", "reduce"])
def test_collectives_that_do_not_end_together_are_not_used(name):
    traces = [make_rank(0), make_rank(1, offset=10**6)]
    one_way = [replace(t, collectives=t.collectives.with_columns(pl.lit(name).alias("collective"))) for t in traces]
    assert starts(align(one_way)) == starts(one_way)


def test_keys_that_come_twice_or_not_at_all_are_not_used():
    traces = [make_rank(0), make_rank(1, offset=10**6)]
    for change in (pl.lit(4).cast(pl.UInt64), pl.lit(None, pl.UInt64)):
        same = [replace(t, collectives=t.collectives.with_columns(change.alias("sequence"))) for t in traces]
        assert starts(align(same)) == starts(same)


def test_session_clocks_with_an_epoch_become_unix():
    traces = [make_rank(r, clock="session", epoch_ns=EPOCH + 7 * r, group=str(r)) for r in range(2)]
    aligned = align(traces)
    assert [(t.clock, t.epoch_ns) for t in aligned] == [("unix", None)] * 2
    assert starts(aligned) == [EPOCH + 500, EPOCH + 507]
    assert "ranks 0 and 1 moved to it" in aligned[0].notes[0]


def test_a_session_clock_joins_unix_ones():
    aligned = align([make_rank(0, group="a"), make_rank(1, clock="session", epoch_ns=EPOCH, group="b")])
    assert starts(aligned) == [EPOCH + 500] * 2


@pytest.mark.parametrize("epoch", [None, 0, -5, 5, 2**62, 2**80])
def test_clocks_without_a_sound_epoch_stay_and_it_is_said(epoch):
    traces = [make_rank(0, group="a"), make_rank(1, clock="session", epoch_ns=epoch, group="b")]
    aligned = align(traces)
    assert starts(aligned) == starts(traces)
    (note,) = aligned[0].notes
    assert note.startswith("the clocks of ranks 0 and 1 are not aligned: rank 1 counts from a start")


def test_collectives_align_session_clocks_too():
    aligned = align([make_rank(0), make_rank(1, clock="session", offset=12345)])
    assert starts(aligned) == [EPOCH + 500] * 2
    assert {trace.clock for trace in aligned} == {"unix"}
    assert len(aligned[0].notes) == 1


@given(st.integers(-(10**15), 10**15))
def test_a_shift_moves_every_time_and_back_is_the_same(offset):
    trace = make_full_trace()
    moved = shift(trace, offset)
    for name in RECORD_TABLES:
        assert getattr(shift(moved, -offset), name).equals(getattr(trace, name))
        first = getattr(trace, name).columns[0]
        assert (getattr(moved, name)[first] - getattr(trace, name)[first]).unique().to_list() == [offset]


def test_a_shift_out_of_bounds_is_refused():
    trace = make_full_trace()
    assert not fits(trace, 4 * 10**18)
    with pytest.raises(ValueError, match="beyond"):
        shift(trace, 4 * 10**18)
    assert fits(make_trace(), 10**30)
    assert to_unix(replace(trace, epoch_ns=None)) is None


def test_many_ranks_are_named_in_short():
    assert [list_ranks(range(n)) for n in (1, 2, 3)] == ["rank 0", "ranks 0 and 1", "ranks 0, 1 and 2"]
    assert list_ranks(range(128)) == "ranks 0, 1, 2 … 127 (128 in all)"
    many = [make_rank(r, offset=10**6 * r) for r in range(20)]
    assert len(align(many)[0].notes[-1]) < 500
