"""A Chrome trace that is being written, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.metrics.enclosure import order_slices
from deepprof.render.lanes import assign_lanes
from deepprof.render.perfetto.clock import PerfettoClock
from deepprof.render.perfetto.layers import SliceLayer, as_text, word
from deepprof.render.perfetto.texts import arrow_text, counter_text, microseconds, slice_text

Int64s = npt.NDArray[np.int64]

PIECE = 1 << 14  # events that are text at a time: 10 MB with names of 500 characters
FIRST_TRACK = 1 << 20  # track ids are unique in the file and never a process id: viewers take those for main threads


class PerfettoResult(Struct):
    """What a file holds; `dropped` are slices of the tables that did not become text."""

    slices: int = 0
    tracks: int = 0
    flows: int = 0
    counters: int = 0
    dropped: int = 0


class PlacedLayer(Struct, frozen=True, eq=False):
    """A layer as it is in the file: its process, and the track id of every row."""

    layer: SliceLayer
    process: int
    tracks: Int64s


class PerfettoDocument:
    """The document: processes in the order of `add_process`, tracks in the order of `add`."""

    def __init__(self, file: BinaryIO, clock: PerfettoClock) -> None:
        self.file, self.clock, self.written = file, clock, PerfettoResult()
        self.processes, self.zero_ns, self.separator = 0, clock.zero_ns, b""
        about = {"producer": "deepprof", "clock": clock.kind, "zero_ns": clock.zero_ns}
        about |= {"zeros_ns": {str(rank): zero for rank, zero in clock.zeros_ns.items()}} if clock.zeros_ns else {}
        file.write(b'{"otherData":' + msgspec.json.encode(about) + b',"traceEvents":[\n')

    def begin_rank(self, rank: int) -> None:
        """Count the times of all that follows from the zero of `rank`."""
        self.zero_ns = self.clock.zeros_ns.get(rank, self.clock.zero_ns)

    def add_process(self, name: str) -> int:
        """Write a process's name and place, and return its id."""
        self.processes += 1
        self.write(_describe("process", {"pid": self.processes}, name, self.processes))
        return self.processes

    def add(self, process: int, layer: SliceLayer) -> PlacedLayer:
        """Write a layer's slices, those that cross others on their own lanes."""
        start = layer.rows["start_ns"].to_numpy() - self.zero_ns
        closed = layer.rows.select(pl.max_horizontal("start_ns", "end_ns")).to_series()  # without nulls
        end = closed.to_numpy() - self.zero_ns
        if not len(start):
            return PlacedLayer(layer, process, np.empty(0, np.int64))
        label = layer.rows["track"].cast(pl.Int64).to_numpy()
        tracks = self.add_tracks(process, layer.tracks, label, assign_lanes(label, start, end))
        placed = PlacedLayer(layer, process, tracks)
        self.write_slices(placed, start, end)
        return placed

    def write_slices(self, placed: PlacedLayer, start: Int64s, end: Int64s) -> None:
        """Write the rows of a layer, track after track, with their times from the file's zero on."""
        layer, names = placed.layer, as_text(placed.layer.names)
        text = slice_text(placed.process, layer.category, layer.args)
        for rows in _pieces(order_slices(placed.tracks, start, end)):
            part = layer.rows[rows].with_columns(
                tid=pl.Series(placed.tracks[rows]),
                ts=microseconds(start[rows]),
                dur=microseconds((end - start)[rows]),
                name=names.gather(layer.rows["name_id"][rows]),
            )
            written = self.write(part.select(text).to_series())
            self.written.slices += written
            self.written.dropped += len(rows) - written

    def add_tracks(self, process: int, labels: Sequence[str], label: Int64s, lane: Int64s) -> Int64s:
        """Write the names of the tracks and their lanes, and return each row's track id."""
        most = int(lane.max()) + 1
        known, rows = np.unique(label * most + lane, return_inverse=True)
        first = self.written.tracks
        texts = []
        for place, key in enumerate(known.tolist(), first):
            name = labels[key // most] + (f" ({key % most + 1})" if key % most else "")
            texts += _describe("thread", {"pid": process, "tid": FIRST_TRACK + place}, name, place)
        self.write(texts)
        self.written.tracks += len(known)
        return np.asarray(FIRST_TRACK + first + rows, np.int64)

    def count(self, process: int, counters: pl.DataFrame) -> None:
        """Write counters: rows of `time_ns`, `name` (one of DeepProf's own words) and `value`."""
        for rows in counters.iter_slices(PIECE):
            part = rows.with_columns(word("name"), ts=microseconds(rows["time_ns"].to_numpy() - self.zero_ns))
            self.written.counters += self.write(part.select(counter_text(process)).to_series())

    def point(self, origin: PlacedLayer, goal: PlacedLayer, rows: tuple[Int64s, Int64s]) -> None:
        """Write arrows from the starts of rows of `origin` to those of rows of `goal`, pair by pair."""
        columns = {}
        for end, placed, at in (("from", origin, rows[0]), ("to", goal, rows[1])):
            columns[f"{end}_tid"] = pl.Series(placed.tracks[at])
            columns[f"{end}_ts"] = microseconds(placed.layer.rows["start_ns"].gather(at).to_numpy() - self.zero_ns)
        arrows = pl.DataFrame(columns).with_row_index("id", offset=self.written.flows)
        for part in arrows.iter_slices(PIECE):
            begins = self.write(part.select(arrow_text("s", origin.process, "from")).to_series())
            ends = self.write(part.select(arrow_text("f", goal.process, "to")).to_series())
            self.written.flows += min(begins, ends)

    def write(self, texts: pl.Series | list[str]) -> int:
        """Write JSON objects, one a line, and return how many there were."""
        known = pl.Series(texts, dtype=pl.String).drop_nulls()
        if len(known):
            self.file.write(self.separator + known.str.join(",\n").item().encode())
            self.separator = b",\n"
        return len(known)

    def close(self) -> None:
        """Write the end of the document."""
        self.file.write(b"\n]}\n")


def _describe(what: str, at: dict[str, int], name: str, place: int) -> list[str]:
    """Return the events that name a process or a thread and give its position among others."""
    records: list[dict[str, Any]] = [
        {"ph": "M", "name": f"{what}_name", **at, "args": {"name": name}},
        {"ph": "M", "name": f"{what}_sort_index", **at, "args": {"sort_index": place}},
    ]
    return [msgspec.json.encode(record).decode() for record in records]


def _pieces(order: Int64s) -> Iterator[Int64s]:
    """Yield `PIECE` rows at a time."""
    for first in range(0, len(order), PIECE):
        yield order[first : first + PIECE]
