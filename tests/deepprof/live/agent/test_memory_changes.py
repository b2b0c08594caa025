"""Changes of memory on their way through a process's decoder: tables, clocks, order, counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.importers.flags import NBYTES_LIMIT
from deepprof.collectors.live.packets import MEMORY_CHANGE, NO_TOTAL, RANGE, Kind, Reason
from deepprof.collectors.trace import DEVICES, MEMORY_EVENTS
from deepprof.live.agent.accounting import describe_account
from deepprof.live.agent.process_decoder import LEAST_HOLD_NS, ProcessDecoder
from tests.deepprof.live.agent import packets_made as made
from tests.deepprof.live.agent.test_accounting import arrived
from tests.deepprof.live.agent.test_process import SECOND, UNIX, Listener, make, say

NOW = 100 * SECOND


def memory(rank: Listener) -> pl.DataFrame:
    """Return the memory events that a rank was given, in order."""
    return pl.concat([pl.DataFrame(schema=MEMORY_EVENTS), *(t for t in rank.rows if t.schema == MEMORY_EVENTS)])


def operators(starts: list[int]) -> np.ndarray:
    rows = np.zeros(len(starts), RANGE)
    rows["start_ns"] = starts
    rows["end_ns"], rows["name"], rows["thread"] = rows["start_ns"] + 100, 1, 9
    return rows


def test_a_change_is_a_row_with_what_is_known_of_it() -> None:
    process, rank = make()
    rows = made.allocations([NOW - 9, NOW - 5, NOW - 4], device=0)
    rows["nbytes"] = [512, -512, 0]
    rows["allocated_nbytes"], rows["reserved_nbytes"] = [512, 0, 7], [1024, NO_TOTAL, 1024]
    rows[1:]["address"], rows[2:]["thread"] = [4096, 0], 0
    rows[1:2]["allocated_nbytes"] = NO_TOTAL
    say(process, (Kind.MEMORY_CHANGES, made.changes(0, rows)), (Kind.TICK, made.tick(NOW, next=3, offset_ns=UNIX)))
    process.end()
    assert memory(rank).rows() == [
        (UNIX + NOW - 9, 1, 9, 0, 4096, 512, 512, 1024),
        (UNIX + NOW - 5, 1, 9, 0, 4096, -512, None, None),
        (UNIX + NOW - 4, 1, None, 0, None, 0, 7, 1024),
    ]
    assert rank.said[-1] == ("end", {})
    assert rank.devices == []


def test_the_size_of_a_device_is_told_with_what_is_in_use_on_it() -> None:
    process, rank = make()
    rows = made.allocations([NOW - 9, NOW - 8, NOW - 7, NOW - 6])
    rows["device"], rows["device_nbytes"] = [0, 3, 0, -1], [5, 0, 2**36, 7]
    say(process, (Kind.MEMORY_CHANGES, made.changes(0, rows)), (Kind.TICK, made.tick(NOW, next=4)))
    process.end()
    assert rank.devices == [dict.fromkeys(DEVICES) | {"device": 0, "memory_nbytes": 2**36}]


def test_they_wait_for_their_turn_beside_events_and_ranges() -> None:
    process, rank = make()
    say(process, (Kind.TICK, made.tick(NOW)))
    held, early = NOW - 1000, NOW - LEAST_HOLD_NS - 5000
    say(process, (Kind.EVENTS, made.events(0, made.kernels([held]))))
    say(process, (Kind.MEMORY_CHANGES, made.changes(1, made.allocations([held, early]), kernel=1)))
    say(process, (Kind.TICK, made.tick(NOW + SECOND, next=3, events_until_ns=NOW)))
    assert memory(rank)["time_ns"].to_list() == [early]
    assert process.waiting == 2
    process.end()
    assert memory(rank)["time_ns"].to_list() == [early, held]
    assert process.account.given == Counter(memory=2, kernel=1)


def test_what_is_late_or_impossible_is_counted_by_reason() -> None:
    process, rank = make()
    say(process, (Kind.TICK, made.tick(NOW)))
    say(process, (Kind.MEMORY_CHANGES, made.changes(0, made.allocations([NOW - 5]))))
    say(process, (Kind.TICK, made.tick(NOW + 9 * SECOND, next=1)))
    rows = made.allocations([NOW, NOW + 9 * SECOND, NOW + 9 * SECOND, NOW + 9 * SECOND, NOW + 10_000 * SECOND])
    rows["device"], rows["nbytes"] = [0, -2, 2**16, 0, 0], [1, 1, 1, NBYTES_LIMIT + 1, -NBYTES_LIMIT]
    say(process, (Kind.MEMORY_CHANGES, made.changes(1, rows, memory=1)), (Kind.END, made.end(6, memory=6)))
    assert rank.said[-1] == ("end", {"late": 1, "unknown-device": 2, "invalid-bytes": 1, "invalid-time": 1})
    assert process.account.left_out == {
        reason: Counter(memory=count) for reason, count in process.dropped.items() if count
    }
    assert memory(rank).height == 1


def test_lost_ones_are_of_their_kind() -> None:
    process, rank = make()
    say(process, (Kind.TICK, made.tick(NOW)))
    say(process, (Kind.MEMORY_CHANGES, made.changes(0, made.allocations([NOW - 5]))))
    say(process, (Kind.END, made.end(8, Reason.BUFFER_FULL, memory=6, range=2)))
    assert process.account.lost == {"buffer-full": Counter(memory=5, range=2)}
    assert rank.said == [("records", 1), ("buffer-full", 7), ("end", {})]
    found = describe_account(process.account, arrived(1, memory_events=1), ended=True, stand_in=False)  # type: ignore[arg-type]
    assert (found.made, found.kept) == ({"memory": 6, "range": 2}, {"memory": 1})


def test_an_agent_that_had_no_rank_for_them_leaves_the_clock_to_its_successor() -> None:
    process, _ = make()
    say(process, (Kind.TICK, made.tick(NOW, offset_ns=UNIX)))
    other, rank = make()
    other.after(process)
    say(other, (Kind.MEMORY_CHANGES, made.changes(0, made.allocations([NOW - 5]))))
    other.end()
    assert memory(rank)["time_ns"].to_list() == [UNIX + NOW - 5]


def stand_in(starts: list[int], times: list[int], cuts: list[int]) -> tuple[ProcessDecoder, Listener]:
    """Operators and changes of a process without a device, given in parts of time that end at `cuts`."""
    process, rank = make(stand_in=1)
    say(process, (Kind.NAMES, made.names(["aten::mm"])))
    number, before = 0, 0
    for until in cuts:
        own = operators([at for at in starts if before <= at < until])
        say(process, (Kind.RANGES, made.ranges(number, own)))
        number += len(own)
        rows = made.allocations([at for at in times if before <= at < until])
        say(process, (Kind.MEMORY_CHANGES, made.changes(number, rows)))
        number, before = number + len(rows), until
        say(process, (Kind.TICK, made.tick(max(until, NOW), device=False, ranges_until_ns=until, next=number)))
    process.end()
    return process, rank


@pytest.mark.parametrize("count", [0, 1, 3, 300])
def test_where_operators_stand_for_kernels_they_go_with_these(count: int) -> None:
    """The rank's listener refuses rows before its watermark or behind that of their own batch."""
    starts = [NOW + at * SECOND // 50 for at in range(count)]
    times = [at + 50 for at in starts]
    process, rank = stand_in(starts, times, [NOW + cut * SECOND for cut in range(1, 8)])
    assert memory(rank)["time_ns"].to_list() == times
    assert process.account.given == +Counter(memory=count, range=count)
    assert rank.said[-1:] == ([("end", {})] if count else [])


@given(
    st.lists(st.integers(0, 900), max_size=30).map(sorted),
    st.lists(st.integers(0, 900), max_size=30).map(sorted),
    st.lists(st.integers(1, 900), max_size=6).map(sorted),
)
def test_in_whatever_parts_they_come_all_arrive_in_order(starts: list[int], times: list[int], cuts: list[int]) -> None:
    milli = 10**7
    ends = [NOW + cut * milli for cut in [*cuts, 901]]
    process, rank = stand_in([NOW + at * milli for at in starts], [NOW + at * milli for at in times], ends)
    assert memory(rank)["time_ns"].to_list() == [NOW + at * milli for at in times]
    assert process.account.given == +Counter(memory=len(times), range=len(starts))


def test_nothing_is_nothing() -> None:
    process, rank = make()
    say(process, (Kind.MEMORY_CHANGES, made.changes(0, np.zeros(0, MEMORY_CHANGE))), (Kind.END, made.end(0)))
    assert (rank.said, process.account.made) == ([], Counter())
