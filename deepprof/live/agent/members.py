"""All processes that are collected: joined by their sessions, and let go when they are gone."""

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

__all__ = ["SessionMembers", "is_alive"]

log = logging.getLogger(__name__)

MAX_REMEMBERED_MEMBERS = 4096
RETURN_S = 60.0  # that a living process may be without a connection
REMEMBERED = 256  # that have ended


@dataclass(slots=True)
class SessionMembers:
    """By session. `lives` tells whether a process still runs; `ended` are the latest that do not.

    `let_go` is told the collectors of those that have ended before they had a rank from this agent.
    """

    open_rank: Callable[[CollectorRun], RankSpool]
    pacing: Pacing = field(default_factory=Pacing)
    lives: Callable[[int], bool] = field(default_factory=lambda: is_alive)
    let_go: Callable[[str], None] = lambda _: None
    present: dict[str, ProcessMember] = field(default_factory=dict)
    ended: list[ProcessMember] = field(default_factory=list)

    def join(self, hello: ProcessHello, peer: Peer, unix_s: float) -> ProcessMember:
        """Return the member that says `hello`, known or new. Raises `ProtocolError`."""
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
        """End what the process was before it became another program (exec): both claim one rank."""
        for member in list(self.present.values()):
            if is_former(member, hello, peer) and not member.connections:
                self._end(member)

    def _is_over(self, member: ProcessMember) -> bool:
        """Whether the process of a member without a connection is another program by now, which was here before."""
        later = dropwhile(lambda other: other is not member, self.present.values())
        return any(is_former(member, other.hello, other.peer) for other in later if other is not member)

    def leave(self, member: ProcessMember, now_s: float) -> None:
        """Take note that a connection is lost."""
        member.connections -= 1
        if member.connections:  # it has come back before the former end of the connection was noticed
            return
        member.left_s = now_s
        if member.process.ended:
            self._close(member)
        elif self._is_over(member):
            self._end(member)

    def _is_gone(self, member: ProcessMember) -> bool:
        """Whether its process has ended; one in another pid namespace has the number 0 here, and tells nothing."""
        return member.peer.pid > 0 and not self.lives(member.peer.pid)

    def sweep(self, now_s: float) -> None:
        """End the processes that are gone, or have not come back for long."""
        for member in list(self.present.values()):
            if member.left_s is not None and (now_s - member.left_s >= RETURN_S or self._is_gone(member)):
                self._end(member)

    def pause(self) -> None:
        """Give what is held of all of them to their ranks: this agent ends."""
        for member in self.present.values():
            try:
                member.process.pause()
            except Exception:
                log.exception("not-flushed", extra={"pid": member.peer.pid})

    def awaits(self, collector: str) -> bool:
        """Whether the process that a rank's `collector` names is here."""
        return any(is_run_of(collector, member.identity.collector) for member in self.present.values())

    def _end(self, member: ProcessMember) -> None:
        """End one: what goes wrong with it concerns no other one."""
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
        """Those that are here, and the latest that were."""
        return [*self.present.values(), *self.ended]


def is_former(member: ProcessMember, hello: ProcessHello, peer: Peer) -> bool:
    """Return whether a member is what the process that says `hello` was before: two jobs of one process are two.

    All processes of other pid namespaces have the number 0 here, and in theirs each container counts from 1: of those
    it is the one that claims the same rank under the same number.
    """
    if (member.peer, member.hello.collector) != (peer, hello.collector):
        return False
    place = find_place(hello.variables)
    if (member.place.job, member.place.rank) != (place.job, place.rank):
        return False
    return peer.pid > 0 or (place.rank is not None and member.hello.pid == hello.pid)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not collected by its parent does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])
    except OSError:
        return os.path.exists(f"/proc/{pid}")
