"""The importer of `*.trace.json.gz`, which JAX and TensorFlow write next to the XPlane profile for the trace viewer.

It is made from the profile and contains less: no memory events, no description of devices, no wall-clock time, and no
more events than the viewer can show. Both are read with the same rules (`rules`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from deepprof.collectors.importers.assembly import assemble
from deepprof.collectors.importers.files import read_bytes
from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.importers.value_columns import integers, numbers
from deepprof.collectors.importers.xla.events import STATS, Int64s, Profile, nanoseconds
from deepprof.collectors.importers.xla.rules import find_places, make_records
from deepprof.collectors.importers.xla.viewer_events import ViewerDecoder, decode_document, decode_pieces
from deepprof.collectors.importers.xla.xplane import start_clock, write_notes
from deepprof.collectors.trace import Trace

TOP_LEVEL = re.compile(rb'^(?:\xef\xbb\xbf)?\s*(?:\{\s*"|\[\s*\{)')
PLANE_NAME = re.compile(rb'"name"\s*:\s*"\\?/(?:host:CPU|device:(?:GPU|TPU|CUSTOM):)')
KINETO = re.compile(rb'"(?:schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds)"')
CAPS = (1_000_000, 5_000_000)  # events: the most that the writer keeps, by its age
NO_DURATION_PS = 1  # is written for no duration
SURE_US = 2.0**52  # a float holds whole numbers up to here
Line = tuple[Any, Any]  # pid and tid


class XlaJson:
    """Reads the trace viewer's copy of a profile of JAX or TensorFlow (see `read`)."""

    name = "xla-json"
    suffixes = (".trace.json.gz", ".trace.json")

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head` starts JSON whose processes have the names of a profile's planes."""
        return bool(TOP_LEVEL.match(head) and PLANE_NAME.search(head) and not KINETO.search(head))

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the profile in `path`; `details` adds nothing.

        Times count from the profile's start (`clock` "session"). Raises `TraceError` when the file cannot be read, is
        truncated or damaged, and when it is too large: `files.LIMIT_NBYTES` of text, in events of 48 bytes or more on
        average. Reading uses about three times the text in memory, and at most ten times.
        """
        columns, decoder = _ViewerColumns(), ViewerDecoder(path)
        for events in decode_pieces(decode_document(read_bytes(path), path), decoder):
            columns.add(events)
        columns.tally.dropped.update({"undecodable": decoder.undecodable} if decoder.undecodable else {})
        return _make_trace(path, columns, decoder.read)


class _ViewerColumns:
    """Collects events into a `Profile`, and the names that metadata events give to processes and threads."""

    def __init__(self) -> None:
        self.profile, self.tally = Profile(), Tally()
        self.lines: dict[Line, int] = _ViewerLines()
        self.labels: dict[Line, str] = {}

    def add(self, events: Sequence[Any]) -> None:
        """Add a batch of decoded `events`."""
        complete = [event for event in events if event.ph == "X"]
        metadata = [event for event in events if event.ph in {"M", ""}]  # the last one is empty
        self.labels.update(_name_lines(metadata))
        other = {"metadata": len(metadata), "other": len(events) - len(complete) - len(metadata)}
        self.tally.dropped.update({reason: count for reason, count in other.items() if count})
        self.profile.read += len(complete)
        lines = [self.lines[event.pid, event.tid] for event in complete]
        names = [self.profile.names[event.name or "unknown"] for event in complete]
        times = _read_times([event.ts for event in complete], [event.dur for event in complete])
        self.profile.add(lines, names, times, _collect_stats(complete))

    def finished(self) -> Profile:
        """Return the profile, with its lines named."""
        threads = integers([thread for _, thread in self.lines])
        for line, thread in zip(self.lines, threads, strict=True):
            self.profile.add_line(self.labels.get((line[0], None), ""), self.labels.get(line, ""), thread, None)
        return self.profile


class _ViewerLines(dict[Line, int]):
    """Lines in order of first use."""

    def __missing__(self, line: Line) -> int:
        self[line] = len(self)
        return len(self) - 1


def _name_lines(metadata: Sequence[Any]) -> Iterator[tuple[Line, str]]:
    """Yield the names that metadata events give: to a process under (pid, None), to a thread under (pid, tid)."""
    for event in metadata:
        if event.name in {"process_name", "thread_name"} and isinstance(event.args.name, str):
            yield (event.pid, event.tid if event.name == "thread_name" else None), event.args.name


def _collect_stats(events: Sequence[Any]) -> Mapping[str, list[Any]]:
    """Return the stats that any of `events` has, by column."""
    args = [event.args for event in events]
    found = dict[str, list[Any]]()
    for key, (column, _) in STATS.items():
        values = [getattr(each, key) for each in args]
        if values.count(None) < len(values):
            known = found.get(column, values)
            found[column] = [new if old is None else old for old, new in zip(known, values, strict=True)]
    return found


def _read_times(ts: Sequence[Any], dur: Sequence[Any]) -> pl.DataFrame:
    """Return `start_ns` and `end_ns` of microseconds with picosecond fractions; null for invalid times."""
    whole, part = split(numbers(ts))
    whole_us, part_ps = split(numbers(dur))
    lasted = np.where(whole_us < 0, -1, whole_us * 10**6 + part_ps)
    return nanoseconds(whole * 1000, part, np.where(lasted == NO_DURATION_PS, 0, lasted))


def split(us: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[Int64s, Int64s]:
    """Return whole microseconds and the remaining picoseconds; -1 and 2**62, which no time has, for invalid values.

    At most half a nanosecond is added, the amount by which the float may be below the decimal number in the file.
    """
    sound = np.isfinite(us) & (np.abs(us) < SURE_US)
    us = np.where(sound, us, 0.0)
    whole = np.floor(us)
    part = np.round((us - whole) * 1e6 + np.minimum(np.spacing(np.abs(us)) * 1e6, 500.0))
    return np.where(sound, whole, -1).astype(np.int64), np.where(sound, part, 2.0**62).astype(np.int64)


def _make_trace(path: Path, columns: _ViewerColumns, read: int) -> Trace:
    """Return the trace of `columns`; the file has `read` events of all kinds."""
    profile, tally = columns.finished(), columns.tally
    places = find_places(profile.line_table())
    records = make_records(profile, places, tally)
    clock, _ = start_clock(records.device, records.host, None)
    notes = [*write_notes(places, records)]
    if profile.read in CAPS:
        notes.append(f"has {profile.read} events, the most that its writer keeps: those after them are lost")
    return assemble(path, XlaJson.name, records, read=read, clock=clock, notes=tuple(notes))
