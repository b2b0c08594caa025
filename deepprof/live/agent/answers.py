"""What the agent answers to whoever asks how it does: the JSON of ANSWER, read and checked."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "CUT",
    "SCHEMA",
    "UNKNOWN",
    "AgentStatus",
    "CollectorNotice",
    "ProcessStatus",
    "RecordAccount",
    "RefusedProcess",
    "SpoolState",
    "read_answer",
]

SCHEMA = "deepprof.live.agent/1"
UNKNOWN = "unknown"  # kind of records that were lost before anybody had read them
CUT = 1 << 32  # code of the notice on a process that was gone before it had said its end; a collector's own are less


class CollectorNotice(msgspec.Struct, frozen=True):
    """A line for people that a collector said."""

    code: int = 0
    text: str = ""


class SpoolState(msgspec.Struct, frozen=True):
    """What waits on disk, and how much may."""

    nbytes: int = 0
    limit_nbytes: int = 0


class RecordAccount(msgspec.Struct, frozen=True):
    """What became of a process's records, by kind: made = kept + missing (by reason) + waiting.

    Kinds are kernel, memcpy, memset, graph, sync, range, and unknown: lost before anybody had read them. `kept` is the
    daemon's word, None where it gives none. Of the `waiting` ones the daemon has the `uncounted` and has still to say
    what becomes of them.
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
    """A process that collects or did.

    `records` are all that it has numbered, the `lost` ones among them. `next` is the number after the rank's last
    record, `durable` that after the last one the daemon has on disk; a gap has the numbers of those that it lost.
    `rank` is None until its first records. `account` says what became of each record, `refusal` what the daemon said of
    those that it refused last.
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
        """The account; of an agent of an earlier release, which has none, what its numbers say."""
        if self.account.made or not self.records:
            return self.account
        missing = {"lost": {UNKNOWN: self.lost}} if self.lost else {}
        waiting = min(self.unsent, max(0, self.records - self.lost))
        return RecordAccount({UNKNOWN: self.records}, None, missing, waiting)

    @property
    def unsent(self) -> int:
        """Records that the daemon has not acknowledged yet, and gaps as long as what they lost."""
        return max(0, self.next - self.durable)


class RefusedProcess(msgspec.Struct, frozen=True):
    """A process whose records the agent did not take."""

    pid: int = 0
    why: str = ""


class AgentStatus(msgspec.Struct, frozen=True):
    """How the agent does: where it sends to, whether that answers, and every process it knows."""

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
        """Why the daemon does not take records, without its address and the advice; None where nobody knows of any."""
        if not self.problem:
            return None
        return self.problem.partition("; ")[0].removeprefix(f"daemon at {self.to}: ")


def read_answer(payload: bytes) -> AgentStatus:
    """Return what the agent says. Raises `ValueError` for what no agent of this release says."""
    answer = msgspec.json.decode(payload, type=AgentStatus)  # its errors are ValueErrors
    if answer.schema != SCHEMA:
        raise ValueError(f"it answers as {answer.schema!r}, not {SCHEMA!r}")
    return answer
