"""How much a session holds, whatever a client sends."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SessionLimits"]


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds of one rank's session; some 60 bytes each for what is pending, 25 for what is held.

    `pending_records` wait for a batch to say that nothing earlier comes; beyond that they are taken as complete, and
    what comes late is dropped. `held_events` of a device are kept for iterations that are not given yet; an iteration
    that began before is given as incomplete. `devices` of a rank are followed, and among `streams` of each the main one
    is chosen. A kernel finds its launch among the latest `launches`, and `ranges` may be open or wait for a device.
    Of `families` ranges are told apart. `host_rows` are kept of a rank without a device, until its end.
    """

    pending_records: int = 1 << 20
    held_events: int = 1 << 18
    devices: int = 16
    streams: int = 1 << 10
    launches: int = 1 << 16
    ranges: int = 1 << 14
    families: int = 64
    host_rows: int = 1 << 16

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"session limit {name} must be at least 1, not {getattr(self, name)}")
