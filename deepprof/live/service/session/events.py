"""The events that a session reports in addition to iterations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["lock", "review", "drift", "lost", "gap", "main", "slow"]


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """An event of a device: from the miner (`lock`, `review`, `drift`, `lost`, `gap`) or from the session.

    `main`: another stream became the main one; `slow`: an iteration lasted much longer than usual. `time_ns` is on the
    rank's clock; `loop` is -1 where the event concerns no loop.
    """

    device: int
    stream: int
    kind: Kind
    time_ns: int
    loop: int
    period: int
    confidence: float
    why: str
