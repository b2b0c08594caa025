"""All that a session holds, as it is saved."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from deepprof.service.session.columns import FARTHEST_NS, RANGES, Columns, empty
from deepprof.service.session.follower import Follower
from deepprof.service.session.intake import Intake, Queues
from deepprof.service.session.launches import Launches
from deepprof.service.session.limits import SessionLimits
from deepprof.service.session.names import Families
from deepprof.service.session.stand_in import WithoutDevice

__all__ = ["SavedSession", "State", "Stretch"]


@dataclass(slots=True)
class Stretch:
    """What came between two gaps, and what it ends with."""

    queues: Queues = field(default_factory=Queues)
    closing: Literal["", "gap", "end"] = ""
    lost: int | None = None


@dataclass(slots=True)
class State:
    """All of a session but its names. `backlog` are the latest ranges, for devices that are seen for the first time."""

    limits: SessionLimits
    intake: Intake
    launches: Launches
    families: Families
    without: WithoutDevice
    stretches: list[Stretch] = field(default_factory=lambda: [Stretch()])
    followers: dict[int, Follower] = field(default_factory=dict)
    backlog: Columns = field(default_factory=lambda: empty(RANGES))
    host_ranges: bool = False  # the host writes some: those of devices are the same ones
    done_ns: int = -FARTHEST_NS  # device events that start before were handled
    ended: bool = False

    @classmethod
    def make(cls, limits: SessionLimits) -> State:
        """Return that of a session that has seen nothing."""
        return cls(
            limits,
            Intake(limits.devices),
            Launches(limits.launches),
            Families(limits.families),
            WithoutDevice(limits.host_rows),
        )


@dataclass(slots=True)
class SavedSession:
    """A session as it is saved."""

    names: list[bytes]
    state: State
