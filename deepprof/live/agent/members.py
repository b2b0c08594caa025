"""All processes that are collected: matched by their sessions, and dropped when they are gone."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import dropwhile

from deepprof.live.agent.hello import ProcessHello, ProtocolError
from deepprof.live.agent.identity import CollectorRun, is_run_of
from deepprof.live.agent.member import Peer, ProcessMember
from deepprof.live.agent.pacing import Pacing
from deepprof.live.agent.rank_places import find_place
from deepprof.live.agent.rank_spool import RankSpool

log = logging.getLogger(__name__)

MAX_REMEMBERED_MEMBERS = 4096
RETURN_S = 60.0  # for which a living process may be without a connection
REMEMBERED = 256  # members that have ended


@dataclass(slots=True)
class SessionMembers:
    """The members by session. `lives` returns whether a process still runs; `ended` are the latest that have ended.

    `let_go` is called with the collectors of those that ended before they had a rank from this agent.
    """

    open_rank: Callable[[CollectorRun], RankSpool]
    pacing: Pacing = field(default_factory=Pacing)
    lives: Callable[[int], bool] = field(default_factory=lambda: _is_alive)
    let_go: Callable[[str], None] = lambda _: None
    present: dict[str, ProcessMember] = field(default_factory=dict)
    ended: list[ProcessMember] = field(default_factory=list)

    def join(self, hello: ProcessHello, peer: Peer, unix_s: float) -> ProcessMember:
        """Return the member that sends `hello`, known or new. Raises `ProtocolError`."""
        member = self.present.get(hello.session)
        if member is None:
            self._close_former(hello, peer)
            if len(self.present) >= MAX_REMEMBERED_MEMBERS:
                raise ProtocolError(f"there are {MAX_REMEMBERED_MEMBERS} processes already")
            member = self.present[hello.session] = ProcessMember(hello, peer, self.open_rank, self.pacing, unix_s)
        else:
            if member.peer != peer:
                raise ProtocolError("its session is another process's")
            member.process.reconnect(hello)
        member.connections, member.left_s = member.connections + 1, None
        return member

    def _close_former(self, hello: ProcessHello, peer: Peer) -> None:
        """End the member that the process was before it became another program (exec): both claim one rank."""
        for member in list(self.present.values()):
            if _is_former(member, hello, peer) and not member.connections:
                self._end(member)

    def _is_over(self, member: ProcessMember) -> bool:
        """Whether the process of a member without a connection is another program by now, which has joined already."""
        later = dropwhile(lambda other: other is not member, self.present.values())
        return any(_is_former(member, other.hello, other.peer) for other in later if other is not member)

    def leave(self, member: ProcessMember, now_s: float) -> None:
        """Note that a connection is lost."""
        member.connections -= 1
        if member.connections:  # it came back before the end of its former connection was noticed
            return
        member.left_s = now_s
        if member.process.ended:
            self._close(member)
        elif self._is_over(member):
            self._end(member)

    def _is_gone(self, member: ProcessMember) -> bool:
        """Whether its process is known to have ended; one in another pid namespace has the pid 0 here."""
        return member.peer.pid > 0 and not self.lives(member.peer.pid)

    def sweep(self, now_s: float) -> None:
        """End the members whose processes are gone, or have not come back for long."""
        for member in list(self.present.values()):
            if member.left_s is not None and (now_s - member.left_s >= RETURN_S or self._is_gone(member)):
                self._end(member)

    def pause(self) -> None:
        """Give the held records of all members to their ranks, because this agent ends."""
        for member in self.present.values():
            try:
                member.process.pause()
            except Exception:
                log.exception("not-flushed", extra={"pid": member.peer.pid})

    def awaits(self, collector: str) -> bool:
        """Whether the process that a rank's `collector` names is here."""
        return any(is_run_of(collector, member.identity.collector) for member in self.present.values())

    def _end(self, member: ProcessMember) -> None:
        """End a member; a failure does not affect the others."""
        try:
            member.process.cut()
        except Exception:
            log.exception("not-ended", extra={"pid": member.peer.pid})
        self._close(member)

    def _close(self, member: ProcessMember) -> None:
        self.present.pop(member.hello.session, None)
        self.ended = [*self.ended, member][-REMEMBERED:]
        if member.process.rank is None:
            self.let_go(member.identity.collector)

    @property
    def all(self) -> list[ProcessMember]:
        """The present members, and the latest that have ended."""
        return [*self.present.values(), *self.ended]


def _is_former(member: ProcessMember, hello: ProcessHello, peer: Peer) -> bool:
    """Return whether a member is what the process that sends `hello` was before: two jobs of one process are two.

    All processes of other pid namespaces have the pid 0 here, and each container counts its own from 1. Of those the
    former member is the one that claims the same rank under the same pid of its own.
    """
    if (member.peer, member.hello.collector) != (peer, hello.collector):
        return False
    place = find_place(hello.variables)
    if (member.place.job, member.place.rank) != (place.job, place.rank):
        return False
    return peer.pid > 0 or (place.rank is not None and member.hello.pid == hello.pid)


def _is_alive(pid: int) -> bool:
    """Whether a process runs; False for one that has ended and was not reaped by its parent."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])
    except OSError:
        return os.path.exists(f"/proc/{pid}")
