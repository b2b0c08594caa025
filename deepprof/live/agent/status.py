"""The status of a rank's collector, as a value and as the message to the daemon."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from deepprof.live.wire.limits import COUNT_LIMIT, LIMITS, NOTICE_CHARS, OVERHEAD_LIMIT
from deepprof.render.plain import printable, shorten
from deepprof.v1 import records_pb2 as pb

CollectorLevel = Literal["full", "duty", "off"]
LEVELS: tuple[CollectorLevel, ...] = get_args(CollectorLevel)  # by the protocol's numbers, from 1 on


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionStatus:
    """The state of a collector: `level` since `since_unix_ns` (0: not known), and the reason if it is not `full`.

    `duty_ratio` is the share of the time that is recorded, `overhead_ratio` the CPU time that collecting takes over one
    core's. `lost` and `level_changes` count from the rank's beginning. `notice` is for people.
    """

    level: CollectorLevel = "full"
    reason: str = ""
    since_unix_ns: int = 0
    duty_ratio: float = 1.0
    overhead_ratio: float = 0.0
    spool_nbytes: int = 0
    lost: int = 0
    level_changes: int = 0
    notice: str = ""


def to_message(status: CollectionStatus) -> pb.Status:
    """Return the message, its values limited to what a daemon accepts: a wrong one would end the stream of records."""
    return pb.Status(
        level=LEVELS.index(status.level) + 1,  # type: ignore[arg-type]
        reason=shorten(printable(status.reason), LIMITS.reason_chars),
        since_unix_ns=min(max(status.since_unix_ns, 0), COUNT_LIMIT),
        duty_ratio=_bound(status.duty_ratio, 1.0),
        overhead_ratio=_bound(status.overhead_ratio, OVERHEAD_LIMIT),
        spool_nbytes=min(max(status.spool_nbytes, 0), COUNT_LIMIT),
        lost=min(max(status.lost, 0), COUNT_LIMIT),
        level_changes=min(max(status.level_changes, 0), COUNT_LIMIT),
        notice=shorten(printable(status.notice), NOTICE_CHARS),
    )


def _bound(ratio: float, most: float) -> float:
    """Return a ratio from 0 to `most`, 0 for one that is no number."""
    return min(max(ratio, 0.0), most) if math.isfinite(ratio) else 0.0
