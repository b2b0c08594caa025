"""The planes of an XPlane profile, decoded run by run into a `Profile`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.xla.events import OPERATION_STATS, STATS, Profile, nanoseconds
from deepprof.collectors.importers.xla.programs import PROGRAM_STATS, HloPrograms, list_programs
from deepprof.collectors.importers.xla.wire import SHORTEST_NBYTES, Cut, cut
from deepprof.collectors.importers.xla.xplane_schema import XPlaneSchema

Stats = Mapping[str, Any]

TIMELINES = 200_000  # planes and lines: a profile has one for every thread and stream
NAMES = 4_000_000  # of events and of their values
EVENT_NBYTES = 16 * 1024**2  # of one event with all its values
MANY_PLANE_EVENTS = 1_000_000  # events: an average of fewer means nothing, and they fit anywhere
THREAD_BITS = 2**32 - 1  # the bits of a thread's number that trace.json.gz keeps
ADVICE = "give a file written by the profiler of JAX or TensorFlow"


class XPlaneHeader(Struct, frozen=True):
    """The header of a profile: its errors and warnings, hosts, and the stats of every plane by the plane's name."""

    said: list[str]
    hostnames: list[str]
    planes: dict[str, Stats] = field(default_factory=dict)


class _XPlaneReader:
    """Decodes one file into `profile`, and counts its parts."""

    def __init__(self, content: bytearray, schema: XPlaneSchema, path: Path, programs: HloPrograms) -> None:
        self.content, self.schema, self.path, self.programs = content, schema, path, programs
        self.profile = Profile()
        self.timelines = self.names = self.nbytes = 0

    def count(self, *, timelines: int = 0, names: int = 0) -> None:
        """Count parts other than events; raises `TraceError` when they are more than a profile can have."""
        self.timelines, self.names = self.timelines + timelines, self.names + names
        for count, limit, parts in ((self.timelines, TIMELINES, "lines"), (self.names, NAMES, "names")):
            if count > limit:
                raise TraceError(self.path, f"is no XPlane profile: it has more than {limit} {parts}", ADVICE)

    def count_events(self, parts: Cut, nbytes: int) -> None:
        """Count the events in `parts`, a line of `nbytes`; raise `TraceError` when they are too short or too long."""
        self.profile.read, self.nbytes = self.profile.read + parts.count, self.nbytes + nbytes
        read = self.profile.read
        if read > MANY_PLANE_EVENTS and self.nbytes < SHORTEST_NBYTES * read:
            problem = f"is no XPlane profile: its first {read} events take {self.nbytes} bytes, which is too little"
            raise TraceError(self.path, problem, ADVICE)
        if any(end - start > EVENT_NBYTES for start, end in parts.runs):  # a run is longer only if one event is
            problem = f"is no XPlane profile: it has an event of more than {EVENT_NBYTES} bytes"
            raise TraceError(self.path, problem, ADVICE)


def read_space(
    content: bytearray, schema: XPlaneSchema, path: Path, programs: HloPrograms
) -> tuple[Profile, XPlaneHeader]:
    """Return the events and the header of the profile in `content`, and list its compiled programs in `programs`.

    Raises `ProtobufError` or the schema's error if it is damaged, and `TraceError` if it is made to exhaust memory.
    """
    reader = _XPlaneReader(content, schema, path, programs)
    space = cut(content, 0, len(content), number=1)
    reader.count(timelines=space.count, names=space.others)
    message = schema.space.FromString(space.rest)
    said = [[text(words) for words in field] for field in (message.errors, message.warnings)]
    header = XPlaneHeader(said=said[0] + said[1], hostnames=[text(host) for host in message.hostnames])
    for start, end in space.bodies:
        name, stats = _read_plane(reader, start, end)
        header.planes.setdefault(name, stats)
    return reader.profile, header


def _read_plane(reader: _XPlaneReader, start: int, end: int) -> tuple[str, Stats]:
    """Read the lines of one plane; return its name and its stats."""
    parts = cut(reader.content, start, end, number=3)
    reader.count(timelines=parts.count, names=parts.others)
    plane = reader.schema.plane.FromString(parts.rest)
    kinds = {number: text(kind.name) for number, kind in plane.stat_metadata.items()}
    stats = {kinds.get(stat.metadata_id, ""): _value_of(stat, kinds) for stat in plane.stats}
    if held := [number for number, kind in kinds.items() if kind in PROGRAM_STATS]:
        list_programs(reader.programs, (start, end), held)
    process = stats.get("process_id")
    names = _XPlaneKinds(plane.event_metadata, reader.profile)
    decoder = _LineDecoder(reader, text(plane.name), process if isinstance(process, int) else None, names, kinds)
    for line in parts.bodies:
        decoder.read(*line)
    return text(plane.name), stats


class _XPlaneKinds(dict[int, int]):
    """The name id of every kind of event of a plane, looked up when first seen."""

    def __init__(self, metadata: Mapping[int, Any], profile: Profile) -> None:
        super().__init__()
        self.metadata, self.names = metadata, profile.names

    def __missing__(self, kind: int) -> int:
        known = self.metadata.get(kind)
        name = (text(known.display_name) or text(known.name)) if known is not None else ""
        self[kind] = self.names[name or "unknown"]
        return self[kind]


class _LineDecoder:
    """Decodes the lines of one plane."""

    def __init__(
        self, reader: _XPlaneReader, plane: str, process: int | None, names: _XPlaneKinds, kinds: Mapping[int, str]
    ) -> None:
        self.reader, self.plane, self.process, self.names, self.kinds = reader, plane, process, names, kinds
        wanted = STATS | OPERATION_STATS
        self.columns = {number: wanted[kind][0] for number, kind in kinds.items() if kind in wanted}

    def read(self, start: int, end: int) -> None:
        """Read one line."""
        parts = cut(self.reader.content, start, end, number=4, runs=True)
        self.reader.count_events(parts, end - start)
        line = self.reader.schema.line.FromString(parts.rest)
        thread = (line.display_id or line.id) & THREAD_BITS
        label = text(line.display_name) or text(line.name)
        number = self.reader.profile.add_line(self.plane, label, thread, self.process)
        for begin, after in parts.runs:
            self.add(number, line.timestamp_ns, self.reader.content[begin:after])

    def add(self, line: int, base_ns: int, run: bytearray) -> None:
        """Add the events in `run`, which is a message of events only."""
        events = self.reader.schema.line.FromString(bytes(run)).events
        columns = [(e.metadata_id, e.offset_ps, e.duration_ps, -1 if e.num_occurrences else 0) for e in events]
        numbers = np.array(columns, dtype=np.int64)
        base, duration = np.full(len(numbers), base_ns), numbers[:, 2] | numbers[:, 3]  # an event for many has no time
        times = nanoseconds(base, numbers[:, 1], duration)
        names = [self.names[column[0]] for column in columns]
        self.reader.profile.add(np.full(len(names), line), names, times, self.stats(events))

    def stats(self, events: Any) -> dict[str, list[Any]]:
        """Return the stats of `events` that are wanted, by column."""
        wanted, found = self.columns, dict[str, list[Any]]()
        if not wanted:
            return found
        for row, stat in self.wanted(events):
            column = wanted[stat.metadata_id]
            if column not in found:
                found[column] = [None] * len(events)
            found[column][row] = _value_of(stat, self.kinds)
        return found

    def wanted(self, events: Any) -> Iterator[tuple[int, Any]]:
        """Yield the wanted stats of `events` with their row."""
        wanted = self.columns
        return ((row, stat) for row, event in enumerate(events) for stat in event.stats if stat.metadata_id in wanted)


def _value_of(stat: Any, kinds: Mapping[int, str]) -> Any:
    """Return the value of a stat; 0 where it has none."""
    if stat.str_value:
        return text(stat.str_value)
    if stat.ref_value:
        return kinds.get(stat.ref_value, "")
    return stat.int64_value or stat.uint64_value or stat.double_value or 0


def text(value: bytes) -> str:
    """Return `value` as text, bad UTF-8 replaced."""
    return value.decode(errors="replace")
