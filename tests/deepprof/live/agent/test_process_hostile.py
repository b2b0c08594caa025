"""What a process must not be able to do to its own records, nor to the agent."""

from __future__ import annotations

import numpy as np
import pytest

from deepprof.collectors.live.packets import NO_TIME, RANGE, Kind, Reason
from deepprof.live.agent import process_decoder as module
from deepprof.live.agent.hello import ProtocolError
from tests.deepprof.live.agent import packets_made as made
from tests.deepprof.live.agent.test_process import SECOND, UNIX, device, make, say

NOW = 1000 * SECOND


def test_unknown_activities_are_left_out() -> None:
    process, rank = make()
    rows = made.kernels([NOW - 1000, NOW - 900])
    rows["activity"] = [0, 77]
    say(process, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, rows)), (Kind.END, made.end(2)))
    assert rank.said == [("records", 1), ("end", {"unknown-activity": 1})]


def test_records_without_a_clock_are_counted() -> None:
    process, rank = make()
    say(process, (Kind.EVENTS, made.events(0, made.kernels([1, 2]))))
    process.end()
    assert rank.said == [("end", {"no-clock": 2})]


def test_events_may_come_before_their_clock() -> None:
    process, rank = make()
    say(process, (Kind.TICK, made.tick(NOW, device=False)))
    say(process, (Kind.EVENTS, made.events(0, made.kernels([NOW - 1000, -(2**63), NOW + 9 * SECOND]))))
    say(process, (Kind.TICK, made.tick(NOW + SECOND)), (Kind.END, made.end(3)))
    assert rank.said == [("records", 1), ("end", {"invalid-time": 2})]


def test_what_waits_for_a_clock_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_NBYTES", 50_000)
    process, _ = make()
    for number in range(100):
        say(process, (Kind.EVENTS, made.events(number * 100, made.kernels([1] * 100))))
    assert process.events.order.nbytes <= 50_000
    process.end()
    assert process.dropped == {"no-clock": 10_000}


def test_what_waits_for_its_turn_is_bounded_where_all_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HELD_NBYTES", 50_000)
    process, rank = make()
    say(process, (Kind.TICK, made.tick(NOW)))
    for number in range(100):
        say(process, (Kind.EVENTS, made.events(number * 100, made.kernels([NOW + number] * 100))))
        assert process.events.order.nbytes <= 50_000
    process.end()
    assert device(rank).height == 10_000


def test_nothing_follows_the_end() -> None:
    process, _ = make()
    say(process, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, made.kernels([1]))), (Kind.END, made.end(1)))
    for packet in ((Kind.EVENTS, made.events(1, made.kernels([2]))), (Kind.TICK, made.tick(NOW)), (Kind.END, b"")):
        with pytest.raises(ProtocolError, match="behind its end"):
            say(process, packet)


def test_an_end_has_no_records() -> None:
    process, _ = make()
    with pytest.raises(ProtocolError, match="size"):
        say(process, (Kind.END, made.head(0, 5, 0)))


def test_a_packet_of_a_wrong_size_does_not_count() -> None:
    process, _ = make()
    with pytest.raises(ProtocolError, match="size"):
        say(process, (Kind.EVENTS, made.events(0, made.kernels([1, 2]))[:-1]))
    assert process.next == 0


def test_one_record_far_ahead_does_not_make_all_others_late() -> None:
    process, rank = make()
    say(process, (Kind.TICK, made.tick(NOW)))
    say(process, (Kind.EVENTS, made.events(0, made.kernels([NOW - 5, NOW + 500 * SECOND, NOW + 3600 * SECOND]))))
    say(process, (Kind.TICK, made.tick(NOW + SECOND, events_until_ns=NO_TIME)))
    say(process, (Kind.EVENTS, made.events(3, made.kernels([NOW + SECOND]), Reason.DUTY_CYCLE)))
    say(process, (Kind.EVENTS, made.events(4, made.kernels([NOW + 2 * SECOND]))))
    say(process, (Kind.TICK, made.tick(NOW + 3 * SECOND)), (Kind.END, made.end(5)))
    assert sum(rows.height for rows in rank.rows) == 3
    assert rank.said[-1] == ("end", {"invalid-time": 2})


def test_a_tick_from_the_future_promises_nothing() -> None:
    process, rank = make()
    say(process, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, made.kernels([NOW - 5]))))
    say(process, (Kind.TICK, made.tick(NOW + SECOND, events_until_ns=2**62, ranges_until_ns=2**62)))
    say(process, (Kind.EVENTS, made.events(1, made.kernels([NOW + SECOND]))), (Kind.END, made.end(2)))
    assert sum(rows.height for rows in rank.rows) == 2
    assert rank.said[-1] == ("end", {})


def test_a_clock_that_is_set_stretches_nothing_that_was_held() -> None:
    process, rank = make()
    say(process, (Kind.TICK, made.tick(NOW, offset_ns=UNIX)))
    say(process, (Kind.EVENTS, made.events(0, made.kernels([NOW - 5 * SECOND, NOW + SECOND - 5]))))
    say(process, (Kind.TICK, made.tick(NOW + SECOND, offset_ns=UNIX)))
    ahead = UNIX + 3600 * SECOND
    say(process, (Kind.TICK, made.tick(NOW + 2 * SECOND, offset_ns=ahead)), (Kind.END, made.end(2)))
    assert rank.said == [("records", 1), ("clock-set", 0), ("records", 1), ("end", {})]
    assert rank.source[:2] == [1, 1]
    assert device(rank)["start_ns"].to_list() == [UNIX + NOW - 5 * SECOND, ahead + NOW + SECOND - 5]


def test_held_records_keep_their_names_over_a_new_connection() -> None:
    process, rank = make()
    say(process, (Kind.NAMES, made.names(["gemm"])), (Kind.TICK, made.tick(NOW)))
    say(process, (Kind.EVENTS, made.events(0, made.kernels([NOW - 5]))))
    process.reconnect(process.hello)
    say(process, (Kind.TICK, made.tick(NOW + 2 * SECOND)), (Kind.END, made.end(1)))
    assert [rank.rank_names.texts[name] for name in device(rank)["name_id"]] == ["gemm"]


def test_losses_before_there_is_a_rank_are_counted_once() -> None:
    process, rank = make()
    say(process, (Kind.RANGES, made.ranges(0, np.zeros(0, RANGE))))
    say(process, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(7, made.kernels([NOW]))))
    assert process.lost == 7
    assert rank.said == [("not-collected", 7)]


def test_another_thread_that_trains_is_a_gap() -> None:
    process, rank = make(stand_in=1, collector="operators")
    say(process, (Kind.NAMES, made.names(["aten::mm", "autograd::engine::evaluate_function: MmBackward0"])))
    count = 0

    def train(thread: int, begin_ns: int, names: list[int]) -> None:
        nonlocal count
        rows = np.zeros(40, RANGE)
        rows["start_ns"] = begin_ns + np.arange(40) * 10**6
        rows["end_ns"], rows["category"], rows["thread"] = rows["start_ns"] + 1000, 255, thread
        rows["name"] = np.resize(names, 40)
        say(process, (Kind.RANGES, made.ranges(count, rows)))
        count += 40

    for second in range(4):  # no backward pass: the thread is taken for want of a better one
        train(7, NOW + second * SECOND, [1])
        say(process, (Kind.TICK, made.tick(NOW + (second + 1) * SECOND, device=False)))
    train(8, NOW + 5 * SECOND, [1, 2])
    say(process, (Kind.TICK, made.tick(NOW + 7 * SECOND, device=False)), (Kind.END, made.end(count)))
    assert ("thread-changed", 0) in rank.said
    assert rank.source == sorted(rank.source)
    assert rank.said[-1] == ("end", {})
    assert sum(rows.height for rows in rank.rows) == count
