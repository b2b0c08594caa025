"""The agent's answer to a client that requests its status: the JSON of ANSWER, read and checked."""

from __future__ import annotations

from typing import Any

import msgspec

SCHEMA = "deepprof.agent/1"
UNKNOWN = "unknown"  # kind of records that were lost before they were read
CUT = 1 << 32  # code of the notice on a process that was gone before it sent END; a collector's own codes are lower


class CollectorNotice(msgspec.Struct, frozen=True):
    """A line for people that a collector sent."""

    code: int = 0
    text: str = ""


class SpoolState(msgspec.Struct, frozen=True):
    """How many bytes wait on disk, and how many may."""

    nbytes: int = 0
    limit_nbytes: int = 0


class RecordAccount(msgspec.Struct, frozen=True):
    """What became of a process's records, by kind: made = kept + missing (by reason) + waiting.

    Kinds are kernel, memcpy, memset, graph, sync, range, memory, context, and unknown: lost before they were read.
    `kept` is the daemon's count, None where it gives none. Of the `waiting` records the daemon has the `uncounted`
    ones, but has not reported yet what became of them.
    """

    made: dict[str, int] = {}
    kept: dict[str, int] | None = None
    missing: dict[str, dict[str, int]] = {}
    waiting: int = 0
    uncounted: int = 0

    @property
    def reasons(self) -> dict[str, int]:
        """The missing records by reason alone."""
        return {reason: sum(kinds.values()) for reason, kinds in self.missing.items()}


class ProcessStatus(msgspec.Struct, frozen=True):
    """A process that collects or has collected.

    `records` counts all that it has numbered, including the `lost` ones. `next` is the number after the rank's last
    record, `durable` the number after the last one that the daemon has on disk; a gap takes the numbers of the records
    that it lost. `rank` is None until its first records. `account` states what became of every record, `refusal` why
    the daemon refused records last.
    """

    pid: int
    session: str = ""
    job: str = ""
    rank: int | None = None
    collector: str = ""
    command: str = ""
    level: int | str | None = None
    reason: int | str | None = None
    records: int = 0
    lost: int = 0
    durable: int = 0
    next: int = 0
    ended: bool = False
    overhead_ratio: float | None = None
    notices: tuple[CollectorNotice, ...] = ()
    account: RecordAccount = RecordAccount()
    refusal: str = ""

    @property
    def books(self) -> RecordAccount:
        """The account; for an agent of an earlier release, which sends none, one made from its numbers."""
        if self.account.made or not self.records:
            return self.account
        missing = {"lost": {UNKNOWN: self.lost}} if self.lost else {}
        waiting = min(self.unsent, max(0, self.records - self.lost))
        return RecordAccount({UNKNOWN: self.records}, None, missing, waiting)

    @property
    def unsent(self) -> int:
        """Records that the daemon has not acknowledged yet; a gap counts as many as it lost."""
        return max(0, self.next - self.durable)


class RefusedProcess(msgspec.Struct, frozen=True):
    """A process whose records the agent did not take."""

    pid: int = 0
    why: str = ""


class AgentStatus(msgspec.Struct, frozen=True):
    """The state of the agent: where it sends to, whether that answers, and every process it has."""

    schema: str
    pid: int = 0
    began_unix_ns: int = 0
    socket: str = ""
    to: str = ""
    connected: bool = False
    problem: str | None = None
    spool: SpoolState = SpoolState()
    processes: tuple[ProcessStatus, ...] = ()
    refused: tuple[RefusedProcess, ...] = ()
    sources: list[dict[str, Any]] | None = None
    level_changes: Any = None

    @property
    def trouble(self) -> str | None:
        """Why the daemon does not take records, without its address and the advice; None if no problem is known."""
        if not self.problem:
            return None
        return self.problem.partition("; ")[0].removeprefix(f"daemon at {self.to}: ")


def read_answer(payload: bytes) -> AgentStatus:
    """Return the agent's answer. Raises `ValueError` for one that no agent of this release sends."""
    answer = msgspec.json.decode(payload, type=AgentStatus)  # its errors are ValueErrors
    if answer.schema != SCHEMA:
        raise ValueError(f"it answers as {answer.schema!r}, not {SCHEMA!r}")
    return answer
