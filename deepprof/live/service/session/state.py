"""The whole state of a session, as it is saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from deepprof.live.service.session.columns import FARTHEST_NS, RANGES, Columns, empty
from deepprof.live.service.session.cpu_fallback import CpuFallback
from deepprof.live.service.session.device_session import DeviceSession
from deepprof.live.service.session.intake import SessionIntake, WaitingRows
from deepprof.live.service.session.launches import Launches
from deepprof.live.service.session.limits import SessionLimits
from deepprof.live.service.session.names import RangeFamilies

__all__ = ["SavedSession", "SessionState", "UnbrokenStretch"]


@dataclass(slots=True)
class UnbrokenStretch:
    """The waiting rows between two gaps, and whether a gap or the end closes them."""

    queues: WaitingRows = field(default_factory=WaitingRows)
    closing: Literal["", "gap", "end"] = ""
    lost: int | None = None


@dataclass(slots=True)
class SessionState:
    """All of a session but its names. `backlog` are the latest ranges, for devices that appear for the first time."""

    limits: SessionLimits
    intake: SessionIntake
    launches: Launches
    families: RangeFamilies
    without: CpuFallback
    stretches: list[UnbrokenStretch] = field(default_factory=lambda: [UnbrokenStretch()])
    followers: dict[int, DeviceSession] = field(default_factory=dict)
    backlog: Columns = field(default_factory=lambda: empty(RANGES))
    host_ranges: bool = False  # the host has ranges: those of devices repeat them and are left out
    done_ns: int = -FARTHEST_NS  # all device events that start before were processed
    ended: bool = False

    @classmethod
    def make(cls, limits: SessionLimits) -> SessionState:
        """Return the state of a new session."""
        return cls(
            limits,
            SessionIntake(limits.devices),
            Launches(limits.launches),
            RangeFamilies(limits.families),
            CpuFallback(limits.host_rows),
        )


@dataclass(slots=True)
class SavedSession:
    """A session as it is saved."""

    names: list[bytes]
    state: SessionState
