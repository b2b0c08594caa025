"""The identity of a rank for the daemon: the content of its Hello."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from deepprof.collectors.errors import escaped
from deepprof.live.wire.checking import check_hello
from deepprof.live.wire.limits import LIMITS
from deepprof.v1 import records_pb2 as pb

RUN = r"(-[0-9]{1,6})+"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorRun:
    """One run of one collector on a rank of a job. `rank` None: unknown, the agent gives a number.

    `collector` names the run: the same name continues the rank, another one begins it anew.
    """

    job: str
    collector: str
    rank: int | None = None
    world_size: int | None = None
    host: str = field(default_factory=socket.gethostname)
    format: str = "cupti"
    source: str = ""
    notes: tuple[str, ...] = ()


def make_hello(identity: CollectorRun, number: int) -> pb.Hello:
    """Return the message that opens a stream, `number` being the rank's. Raises `WireError` for invalid values."""
    world = identity.world_size or 0
    hello = pb.Hello(
        job=identity.job,
        rank=number,
        rank_known=identity.rank is not None,
        world_size=world if number < world <= LIMITS.rank + 1 else 0,
        collector=identity.collector,
        clock=pb.CLOCK_UNIX,
        host=_fit(identity.host, LIMITS.host_chars),
        format=_fit(identity.format, LIMITS.format_chars),
        source=_fit(identity.source, LIMITS.source_chars),
        notes=[_fit(note, LIMITS.note_chars) for note in identity.notes[: LIMITS.notes]],
    )
    check_hello(hello, LIMITS)
    return hello


def name_runs(collector: str) -> Iterator[str]:
    """Yield a collector's name, then others: as nothing may follow an End, a collector that goes on takes the next."""
    yield collector
    for number in count(2):
        yield f"{collector}-{number}"


def is_run_of(name: str, collector: str) -> bool:
    """Return whether a name is one of those that `name_runs` yields."""
    return name == collector or re.fullmatch(re.escape(collector) + RUN, name) is not None


def _fit(text: str, chars: int) -> str:
    return escaped(text.encode("utf-8", "replace").decode())[:chars]
