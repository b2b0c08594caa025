"""What a session says beside iterations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Kind", "SessionEvent"]

Kind: TypeAlias = Literal["lock", "review", "drift", "lost", "gap", "main", "slow"]


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """Something noticed on a device: by the miner (`lock`, `review`, `drift`, `lost`, `gap`), or here.

    `main`: another stream was found to be the main one; `slow`: an iteration took much longer than usual. `time_ns` is
    on the rank's clock; `loop` is -1 without one.
    """

    device: int
    stream: int
    kind: Kind
    time_ns: int
    loop: int
    period: int
    confidence: float
    why: str
