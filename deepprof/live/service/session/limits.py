"""The limits of what a session holds, whatever a client sends."""

from __future__ import annotations

from dataclasses import dataclass

from deepprof.live.service.context_windows import MOST_NODES


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of one rank's session; a pending record takes some 60 bytes, a held event 25.

    `pending_records` may wait for a watermark; beyond that the older ones are taken as complete, and records that come
    late are dropped. `held_events` per device are kept for iterations that are not emitted yet; an iteration that
    began before them is emitted as incomplete. `devices` of a rank are followed, and the main stream of each is
    chosen among `streams`. A kernel finds its launch among the latest `launches`. `ranges` may be open or wait for a
    device. `families` of ranges are distinguished. `host_rows` are kept of a rank without a device, until its end. Of a
    minute `contexts` are kept by name.
    """

    pending_records: int = 1 << 20
    held_events: int = 1 << 18
    devices: int = 16
    streams: int = 1 << 10
    launches: int = 1 << 16
    ranges: int = 1 << 14
    families: int = 64
    host_rows: int = 1 << 16
    contexts: int = MOST_NODES

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"session limit {name} must be at least 1, not {getattr(self, name)}")
