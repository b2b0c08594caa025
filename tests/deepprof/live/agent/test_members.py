"""Processes that come, go, come back, become other programs, and are in each other's place."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import numpy as np
import pytest

from deepprof.collectors.live.packets import RANGE, CollectionLevel, Kind
from deepprof.live.agent.hello import ProtocolError, read_hello
from deepprof.live.agent.identity import CollectorRun
from deepprof.live.agent.member import RETRY_S, Peer, ProcessMember
from deepprof.live.agent.members import RETURN_S, SessionMembers
from deepprof.live.agent.rank_spool import RankSpool
from deepprof.live.agent.ranks import ProcessRefusedError
from tests.deepprof.live.agent import packets_made as made
from tests.deepprof.live.agent.test_process import Listener

SECOND = 10**9
ME = Peer(100, 0)


class Listening(Listener):
    """A rank of a member."""

    number = 0

    def has_overflowed(self) -> bool:
        return False

    def tell(self, status: object) -> None:
        self.said.append(("status", status))


@dataclass
class Place:
    """A roster with one place."""

    taken: str = ""
    asked: int = 0
    rank: Listening = field(default_factory=Listening)

    def open(self, identity: CollectorRun) -> RankSpool:
        self.asked += 1
        if self.taken:
            raise ProcessRefusedError(self.taken)
        return self.rank  # type: ignore[return-value]


def join(members: SessionMembers, peer: Peer = ME, number: int = 1, **words: object) -> ProcessMember:
    return members.join(read_hello(made.hello(f"{number:032x}", **words)), peer, 0.0)


def send(member: ProcessMember, first: int, at_ns: int = 1000) -> None:
    member.take(Kind.EVENTS, memoryview(made.events(first, made.kernels([at_ns]))))


def tick(member: ProcessMember, now_s: float) -> None:
    member.take(Kind.TICK, memoryview(made.tick(int(now_s * SECOND))))


def test_of_one_that_is_refused_no_records_are_taken() -> None:
    place = Place("taken")
    member = join(SessionMembers(place.open))
    tick(member, 1)
    send(member, 0)
    asked = place.asked
    member.take(Kind.RANGES, memoryview(made.ranges(1, np.zeros(1, RANGE))))
    member.take(Kind.MEMORY_CHANGES, memoryview(made.changes(2, made.allocations([1000]))))
    assert (place.asked, member.process.next) == (asked, 1)


def test_one_that_is_refused_asks_again_without_collecting() -> None:
    place = Place("taken")
    member = join(SessionMembers(place.open))
    tick(member, 1)
    send(member, 0)
    assert (member.refusal, member.level) == ("taken", CollectionLevel.OFF)
    for second in range(2, 62):
        tick(member, second)
        assert member.level == CollectionLevel.OFF
    assert 60 / RETRY_S - 1 <= place.asked <= 60 / RETRY_S + 1
    place.taken = ""
    tick(member, 62 + RETRY_S)
    assert (member.refusal, member.level) == ("", CollectionLevel.ON)
    send(member, 5, 63 * SECOND)
    member.process.end()
    said = [each for each in place.rank.said if each[0] != "status"]
    assert said == [("not-collected", 1), ("lost", 4), ("records", 1), ("end", {})]
    assert member.process.lost == 5


def test_one_that_never_ends_well_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Listening):
        def end(self, *_: object, **__: object) -> None:
            raise ValueError("nothing follows an End")

    broken, place = Broken(), Place()
    members = SessionMembers(
        lambda identity: broken if identity.source == "bad" else place.open(identity), lives=lambda _: False
    )  # type: ignore[arg-type, return-value]
    for number, command in ((1, "bad"), (2, "good")):
        member = join(members, Peer(number, 0), number, command=command)
        tick(member, 1)
        send(member, 0)
        members.leave(member, 0.0)
    with caplog.at_level(logging.CRITICAL):
        members.sweep(1.0)
    assert not members.present
    assert place.rank.said[-1] == ("end", {})


def test_one_that_lives_may_come_back() -> None:
    members = SessionMembers(Place().open, lives=lambda _: True)
    member = join(members)
    members.leave(member, 0.0)
    members.sweep(RETURN_S - 1)
    assert join(members, continues=1) is member
    members.leave(member, 100.0)
    members.sweep(100.0 + RETURN_S)
    assert members.ended == [member]


def test_a_program_that_took_the_process_over_ends_the_former() -> None:
    members = SessionMembers(Place().open, lives=lambda _: True)
    former = join(members, number=1)
    members.leave(former, 0.0)
    join(members, number=2)
    assert members.ended == [former]


def test_a_program_that_took_the_process_over_ends_the_former_also_where_that_is_noticed_late() -> None:
    members = SessionMembers(Place().open, lives=lambda _: True)
    former = join(members, number=1)
    later = join(members, number=2)
    assert members.ended == []  # its connection may have more to state
    members.leave(former, 0.0)
    assert (members.ended, list(members.present.values())) == ([former], [later])
    members.leave(later, 0.0)
    assert list(members.present.values()) == [later]  # it may come back


def test_processes_of_another_pid_namespace_are_not_taken_for_one() -> None:
    members, nobody = SessionMembers(Place().open, lives=lambda _: True), Peer(0, 0)
    ranks = [join(members, nobody, number, pid=7, env__RANK=number) for number in (1, 2)]  # of two containers
    ranks += [join(members, nobody, number, pid=7) for number in (3, 4)]
    for member in ranks:
        members.leave(member, 0.0)
    join(members, nobody, 5, pid=7)
    assert members.ended == []
    join(members, nobody, 6, pid=7, env__RANK=2)
    assert members.ended == [ranks[1]]


def test_what_has_ended_keeps_no_names() -> None:
    place = Place()
    members = SessionMembers(place.open, lives=lambda _: False)
    member = join(members)
    member.take(Kind.NAMES, memoryview(made.names(["a" * 1000])))
    tick(member, 1)
    send(member, 0)
    members.leave(member, 0.0)
    members.sweep(1.0)
    assert members.ended == [member]
    assert member.process.process_names.nbytes == 0
    assert (member.process.next, member.process.ended, member.process.waiting) == (1, True, 0)


def test_two_collectors_of_one_process_live_together() -> None:
    members = SessionMembers(Place().open, lives=lambda _: True)
    first = join(members, number=1)
    members.leave(first, 0.0)
    join(members, number=2, collector="torch")
    join(members, number=3, env__DEEPPROF_JOB="another")
    assert members.ended == []


def test_a_session_is_its_owners_alone() -> None:
    members = SessionMembers(Place().open)
    join(members)
    for other in (Peer(101, 0), Peer(100, 1)):
        with pytest.raises(ProtocolError, match="another process"):
            join(members, other)


def test_whose_rank_is_awaited() -> None:
    members = SessionMembers(Place().open)
    join(members, number=3)
    assert members.awaits(f"cupti-{3:032x}")
    assert members.awaits(f"cupti-{3:032x}-2")
    assert not members.awaits(f"cupti-{4:032x}")


def test_one_in_another_pid_namespace_is_not_taken_for_gone() -> None:
    members = SessionMembers(Place().open, lives=lambda _: False)
    member = join(members, Peer(0, 0))
    members.leave(member, 0.0)
    members.sweep(1.0)
    assert list(members.present.values()) == [member]
    members.sweep(RETURN_S + 1)
    assert not members.present
