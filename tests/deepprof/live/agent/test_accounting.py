"""The books of a process: every record that it has made is in one place, by kind, and what no one has is stated."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.collectors.live.packets import RANGE, RECORD_KINDS, Kind, Reason
from deepprof.collectors.trace import ACTIVITIES
from deepprof.live.agent import accounting, process_contexts, process_decoder, record_limits, uplink
from deepprof.live.agent.accounting import ProcessAccount, count_rows, describe_account
from deepprof.live.agent.answers import RecordAccount
from deepprof.live.agent.process_decoder import word_of
from deepprof.live.agent.spool import intake, reading
from deepprof.v1 import records_pb2 as pb
from tests.chance import examples
from tests.deepprof.live.agent import packets_made as made
from tests.deepprof.live.agent.test_process import Listener, make, say

SECOND = 10**9
NOW = 1000 * SECOND


@dataclass
class Numbers:
    """What an uplink and an intake know."""

    account: pb.Account | None = None
    counted: int = 0
    next: int = 0


@dataclass
class Rank:
    """A rank whose records are somewhere between here and the daemon."""

    durable: int = 0
    missing: dict[str, Counter[str]] = field(default_factory=dict)
    uplink: Numbers = field(default_factory=Numbers)
    intake: Numbers = field(default_factory=Numbers)


def arrived(count: int, **kinds: int) -> Rank:
    """A rank of which the daemon has `count` numbers, and states that it kept these."""
    told = pb.Account(kinds=[pb.KindAccount(kind=kind, accepted=number) for kind, number in kinds.items()])
    return Rank(count, uplink=Numbers(told, count), intake=Numbers(next=count))


def describe(account: ProcessAccount, rank: Any, *, ended: bool = True, stand_in: bool = False) -> RecordAccount:
    found = describe_account(account, rank, ended=ended, stand_in=stand_in)
    kept = sum((found.kept or {}).values())
    if found.kept is not None:
        assert sum(found.made.values()) == kept + sum(found.reasons.values()) + found.waiting
    return found


def mixed(counts: dict[str, int], at_ns: int = NOW) -> np.ndarray:
    """Events of these activities, all at one time."""
    activities = [RECORD_KINDS.index(kind) for kind, count in counts.items() for _ in range(count)]
    rows = made.kernels([at_ns] * len(activities))
    rows["activity"] = activities
    return rows


def test_all_that_was_made_is_kept() -> None:
    decoder, _ = make()
    counts = {"kernel": 5, "memcpy": 2, "sync": 1}
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, mixed(counts))))
    say(decoder, (Kind.END, made.end(8, **counts)))
    assert describe(decoder.account, arrived(8, **counts)) == RecordAccount(counts, counts)


def test_what_a_gap_has_lost_is_told_by_kind() -> None:
    decoder, _ = make()
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, mixed({"kernel": 3}))))
    later = mixed({"kernel": 1}, NOW + SECOND)
    say(decoder, (Kind.EVENTS, made.events(13, later, Reason.BUFFER_FULL, kernel=8, memcpy=4, range=1)))
    say(decoder, (Kind.END, made.end(16, Reason.DRIVER_DROPPED, kernel=9, memcpy=4, range=1)))
    found = describe(decoder.account, arrived(16, kernel=4))
    assert found.made == {"kernel": 9, "memcpy": 4, "range": 1, "unknown": 2}
    assert found.missing == {
        "buffer-full": {"kernel": 5, "memcpy": 4, "range": 1},
        "driver-dropped": {"unknown": 2},
    }
    assert found.waiting == 0


def test_a_process_that_does_not_count_says_no_kinds() -> None:
    decoder, _ = make()
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, mixed({"kernel": 3}))))
    say(decoder, (Kind.END, made.end(7)))
    assert describe(decoder.account, arrived(7, kernel=3)).missing == {"lost": {"unknown": 4}}


@pytest.mark.parametrize("told", [{"kernel": 5}, {"kernel": 2**63}, {"sync": 4}, {"kernel": 1}])
def test_counts_that_cannot_be_are_not_believed(told: dict[str, int]) -> None:
    decoder, _ = make()
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(3, mixed({"kernel": 3}), **told)))
    say(decoder, (Kind.END, made.end(6)))
    lost = {"kernel": 1, "unknown": 2} if told == {"kernel": 1} else {"unknown": 3}
    assert describe(decoder.account, arrived(6, kernel=3)).missing == {"not-collected": lost}


def test_what_the_agent_leaves_out_is_told_by_kind() -> None:
    decoder, _ = make()
    rows = mixed({"kernel": 2, "memcpy": 3, "memset": 1})
    rows["device"][2] = 2**31 - 1
    rows["end_ns"][3] = 0
    rows["activity"][0] = 77
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, rows)))
    say(decoder, (Kind.TICK, made.tick(NOW + 100 * SECOND)))
    say(decoder, (Kind.EVENTS, made.events(6, mixed({"sync": 2}, NOW - SECOND))), (Kind.END, made.end(8)))
    found = describe(decoder.account, arrived(3, kernel=1, memcpy=1, memset=1))
    assert found.missing == {
        "unknown-activity": {"unknown": 1},
        "unknown-device": {"memcpy": 1},
        "invalid-time": {"memcpy": 1},
        "late": {"sync": 2},
    }


def test_a_device_beyond_all_numbers_is_not_another_device() -> None:
    """CUPTI states 2**31 - 1 of a graph that starts on the host; cut to 16 bits it would be device 65535."""
    decoder, rank = make()
    rows = mixed({"graph": 3})
    rows["device"] = [2**31 - 1, 2**16, 2**16 - 1]
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, rows)), (Kind.END, made.end(3)))
    assert rank.rows[0]["device"].to_list() == [2**16 - 1]
    assert rank.said[-1] == ("end", {"unknown-device": 2})


def test_records_that_are_here_or_on_their_way_wait() -> None:
    decoder, _ = make()
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, mixed({"kernel": 9}))))
    rank = arrived(4, kernel=4)
    found = describe(decoder.account, rank, ended=False)
    assert (found.kept, found.waiting, found.uncounted, found.missing) == ({"kernel": 4}, 5, 0, {})
    say(decoder, (Kind.END, made.end(9)))
    rank.intake.next = rank.durable = 9  # the daemon has them, and has not examined them
    found = describe(decoder.account, rank)
    assert (found.waiting, found.uncounted, found.missing) == (5, 5, {})


def test_a_daemon_that_does_not_say_what_it_kept() -> None:
    decoder, _ = make()
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, mixed({"kernel": 9}))))
    say(decoder, (Kind.END, made.end(9)))
    found = describe(decoder.account, Rank(5, intake=Numbers(next=9)))
    assert (found.kept, found.waiting, found.missing) == (None, 4, {})


def test_what_the_daemon_has_dropped_is_its_own_reason() -> None:
    decoder, _ = make()
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, mixed({"kernel": 9}))))
    say(decoder, (Kind.END, made.end(9)))
    rank = arrived(9, kernel=7)
    assert rank.uplink.account is not None
    rank.uplink.account.kinds[0].dropped["late"] = 2
    assert describe(decoder.account, rank).missing == {"daemon-late": {"kernel": 2}}


def test_what_had_no_room_or_was_refused_is_told() -> None:
    decoder, _ = make()
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, mixed({"kernel": 6, "memcpy": 3}))))
    say(decoder, (Kind.END, made.end(9)))
    rank = arrived(9, kernel=2)
    rank.missing = {"spool-full": Counter(kernel=1, memcpy=3), "refused": Counter(kernel=3)}
    found = describe(decoder.account, rank)
    assert found.missing == {"spool-full": {"kernel": 1, "memcpy": 3}, "refused": {"kernel": 3}}


def test_ranges_are_ranges_whatever_the_daemon_calls_them() -> None:
    decoder, _ = make(stand_in=1, collector="operators")
    rows = np.zeros(20, RANGE)
    rows["start_ns"] = rows["end_ns"] = NOW + np.arange(20)
    say(decoder, (Kind.TICK, made.tick(NOW, device=False)), (Kind.RANGES, made.ranges(0, rows)))
    say(decoder, (Kind.EVENTS, made.events(20, mixed({"kernel": 2}))), (Kind.END, made.end(22)))
    rank = arrived(20, kernel=12, host_events=5, annotations=3)
    found = describe(decoder.account, rank, stand_in=True)
    assert (found.kept, found.missing) == ({"range": 20}, {"stand-in": {"kernel": 2}})
    assert found.made == {"range": 20, "kernel": 2}


def test_what_is_not_explained_is_said_to_be() -> None:
    decoder, _ = make()
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, mixed({"kernel": 9}))))
    say(decoder, (Kind.END, made.end(9)))
    assert describe(decoder.account, arrived(9, kernel=7)).missing == {"unexplained": {"kernel": 2}}


def test_what_was_lost_on_the_disk_is_found_out_by_kind() -> None:
    decoder, _ = make()
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, mixed({"kernel": 6, "sync": 3}))))
    say(decoder, (Kind.END, made.end(9)))
    rank = arrived(9, kernel=4, sync=1)
    rank.missing = {"damaged": Counter(unknown=4)}
    assert describe(decoder.account, rank).missing == {"damaged": {"kernel": 2, "sync": 2}}


def test_an_agent_that_goes_on_for_another_one_learns_the_kinds_from_the_daemon() -> None:
    """Of 40 records the former agent had 30, of which two were late; with it went ten that it had not spooled."""
    decoder, rank = make(source_next=30, continues=1)
    say(decoder, (Kind.TICK, made.tick(NOW)))
    say(decoder, (Kind.EVENTS, made.events(40, mixed({"kernel": 5}), Reason.DISCONNECTED, kernel=33, memcpy=7)))
    assert rank.said == [("agent-restarted", 10)]
    assert decoder.lost == 10
    assert decoder.account.missing == {"agent-restarted": {"unknown": 10}}
    say(decoder, (Kind.END, made.end(45, kernel=38, memcpy=7)))
    found = describe(decoder.account, arrived(45, kernel=30, memcpy=3))
    assert found.made == {"kernel": 38, "memcpy": 7}
    assert found.missing == {"agent-restarted": {"kernel": 8, "memcpy": 4}}


@pytest.mark.parametrize("counted", [44, 45])
def test_kinds_are_known_as_soon_as_nothing_waits(counted: int) -> None:
    """The daemon has told of all records and not yet that it has counted the end: that much is settled for `run`."""
    decoder, _ = make(source_next=30, continues=1)
    say(decoder, (Kind.TICK, made.tick(NOW)))
    say(decoder, (Kind.EVENTS, made.events(40, mixed({"kernel": 5}), Reason.DISCONNECTED, kernel=33, memcpy=7)))
    say(decoder, (Kind.END, made.end(45, kernel=38, memcpy=7)))
    rank = arrived(45, kernel=30, memcpy=5)
    rank.uplink.counted = counted
    found = describe(decoder.account, rank)
    assert (found.waiting, found.missing) == (0, {"agent-restarted": {"kernel": 8, "memcpy": 2}})


def test_what_was_sent_under_a_former_name_is_not_lost() -> None:
    rank = Listener(source_next=30, is_renamed=True)
    decoder, _ = make()
    decoder.open_rank = lambda: rank  # type: ignore[assignment, return-value]
    say(decoder, (Kind.TICK, made.tick(NOW)))
    say(decoder, (Kind.EVENTS, made.events(34, mixed({"kernel": 5}), Reason.DISCONNECTED, kernel=34)))
    say(decoder, (Kind.END, made.end(39, kernel=39)))
    assert rank.said == [("disconnected", 4), ("records", 5), ("end", {})]
    assert decoder.lost == 4
    found = describe(decoder.account, arrived(9, kernel=5))
    assert sum(found.made.values()) == 9
    assert found.missing == {"disconnected": {"unknown": 4}}


def test_one_that_was_refused_has_lost_all() -> None:
    decoder, _ = make()
    say(decoder, (Kind.TICK, made.tick(NOW)))
    decoder.account.come(count_rows(mixed({"kernel": 3})))
    decoder.account.abandon("not-collected")
    assert describe(decoder.account, None).missing == {"not-collected": {"kernel": 3}}
    assert decoder.account.held.total() == 0


def test_one_that_is_gone_had_lost_what_its_last_tick_says() -> None:
    decoder, rank = make()
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, mixed({"kernel": 3}))))
    last = made.tick(NOW + 1, next=10, reason=Reason.BUFFER_FULL, made=made.counts(kernel=9, memset=1))
    say(decoder, (Kind.TICK, last))
    found = describe(decoder.account, arrived(0), ended=False)
    assert found.missing == {"buffer-full": {"kernel": 6, "memset": 1}}
    decoder.cut()
    assert rank.said == [("records", 3), ("buffer-full", 7), ("end", {})]
    found = describe(decoder.account, arrived(10, kernel=3))
    assert found.missing == {"buffer-full": {"kernel": 6, "memset": 1}}


def test_what_a_tick_says_to_be_missing_is_counted_once() -> None:
    decoder, _ = make()
    say(decoder, (Kind.TICK, made.tick(NOW)), (Kind.EVENTS, made.events(0, mixed({"kernel": 3}))))
    say(decoder, (Kind.TICK, made.tick(NOW + 1, next=10, reason=Reason.BUSY, made=made.counts(kernel=10))))
    say(decoder, (Kind.END, made.end(10, Reason.BUFFER_FULL, kernel=10)))
    assert describe(decoder.account, arrived(10, kernel=3)).missing == {"buffer-full": {"kernel": 7}}


MODULES = (process_decoder, record_limits, process_contexts, accounting, uplink, intake, reading)  # which leave out


def test_every_reason_is_explained_to_people() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "attach.md").read_text()
    rows = "".join(line.partition("|")[2].partition("|")[0] for line in page.splitlines() if line.startswith("| `"))
    told = set(re.findall(r"`([\w-]+)`", rows))
    sources = [Path(module.__file__).read_text() for module in MODULES]
    left_out = set(re.findall(r'(?:_leave_out\(|yield |NOT_COLLECTED = )"([\w-]+)"', "".join(sources)))
    assert len(left_out) >= 6
    constants = {
        uplink.NOT_KEPT,
        uplink.REFUSED,
        intake.FULL,
        reading.DAMAGED,
        accounting.RESTARTED,
        "unexplained",
        "late",
    }
    assert {word_of(reason, opened=True) for reason in Reason} | left_out | constants <= told


kinds = st.dictionaries(st.sampled_from(RECORD_KINDS), st.integers(1, 5), max_size=4)
stretches = st.tuples(kinds, kinds, st.sampled_from(list(Reason)), st.sampled_from([0, -500 * SECOND]))


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(stretches, max_size=12))
def test_kinds_add_up_over_any_stretches(steps: list[tuple]) -> None:
    """What was made = what the rank was given + what is missing, of every kind, whatever was lost, late or unsound."""
    decoder, rank = make()
    truth: Counter[str] = Counter()
    now_ns = NOW
    say(decoder, (Kind.TICK, made.tick(now_ns)))
    for lost, sent, reason, age_ns in steps:
        truth.update(lost)
        events = mixed({kind: count for kind, count in sent.items() if kind in ACTIVITIES}, now_ns + age_ns)
        say(decoder, (Kind.EVENTS, made.events(truth.total(), events, reason, **truth)))
        truth.update(count_rows(events))
        rows = np.zeros(sent.get("range", 0), RANGE)
        rows["start_ns"] = rows["end_ns"] = now_ns + age_ns
        say(decoder, (Kind.RANGES, made.ranges(truth.total(), rows, **truth)))
        truth.update(count_rows(rows))
        now_ns += 20 * SECOND
        say(decoder, (Kind.TICK, made.tick(now_ns, next=truth.total(), made=made.counts(**truth))))
    say(decoder, (Kind.END, made.end(truth.total(), **truth)))
    account = decoder.account
    assert account.made == truth
    assert account.given.total() == sum(rows.height for rows in rank.rows)
    assert account.given + sum(account.missing.values(), Counter()) == truth
    assert account.held.total() == 0
