"""What a recorder makes of what happened: the tables of a trace, in the form of its tool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import polars as pl

from benchmarks.unseen.played import DeviceRow, HostRow, Played, RangeRow
from benchmarks.unseen.sketch import Recorder, Sketch
from benchmarks.unseen.steps import MAIN_STREAM, Program
from deepprof.collectors.trace import (
    ANNOTATIONS,
    DEVICE_EVENTS,
    DEVICES,
    HOST_EVENTS,
    RECORD_TABLES,
    Accounting,
    Process,
    Trace,
)

__all__ = ["keep", "write"]

UNIX_NS = 1_731_000_000_123_456_000
SESSION_NS = 4_812_345_678
FIRST_PROCESS = 20_411
BETWEEN_PROCESSES = 1_000_003  # between the numbers of one process and the next one's, where they share a file
COPY_NAMES = {"nvprof": "[CUDA memcpy {way}]", "xplane": "Memcpy{short}"}
SHORT = {"HtoD": "H2D", "DtoH": "D2H", "DtoD": "D2D"}
DEVICE_NAMES = {False: "NVIDIA A100-SXM4-80GB", True: "AMD Instinct MI300X"}


def keep(played: Played, recorder: Recorder) -> Played:
    """Return the rows that the recorder keeps."""
    same = {"marks": played.marks, "clocks": played.clocks, "late": played.late}
    if not recorder.host:
        return Played(device=played.device, **same)  # type: ignore[arg-type]
    kept = {
        "op": recorder.operators,
        "dataloader": recorder.operators,
        "runtime": recorder.calls,
        "python": recorder.frames,
        "other": recorder.system,
    }
    host = [row for row in played.host if kept[row.category]]
    waits = played.waits if recorder.waits else []
    ranges = played.ranges if recorder.ranges else []
    return Played(played.device, waits, host, ranges, **same)  # type: ignore[arg-type]


def cut(played: Played, share: float) -> Played:
    """Return what a recorder keeps that is started within the first iteration: what ran then had begun before."""
    if not share:
        return played
    first, second = played.starts()[:2]
    begin = first + round(share * (second - first))
    device = [row for row in played.device if row.start >= begin]
    waits = [row for row in played.waits if row.start >= begin]
    host = [row for row in played.host if row.start >= begin]
    return Played(device, waits, host, [row for row in played.ranges if row.start >= begin])


def write(sketch: Sketch, played: Sequence[Played]) -> tuple[Trace, ...]:
    """Return the traces of a recording: one file, or one for every process."""
    kept = [cut(keep(each, sketch.recorder), sketch.cut) for each in played]
    if sketch.separate:
        numbered = enumerate(zip(sketch.programs, kept, strict=True))
        return tuple(make_trace(sketch, [(n, program, rows)], rank=n) for n, (program, rows) in numbered)
    triples = [(n, program, rows) for n, (program, rows) in enumerate(zip(sketch.programs, kept, strict=True))]
    return (make_trace(sketch, triples, rank=None),)


def make_trace(sketch: Sketch, parts: Sequence[tuple[int, Program, Played]], rank: int | None) -> Trace:
    """Return the trace of some processes."""
    writer = Writer(sketch.recorder)
    for number, program, played in parts:
        writer.add(number, program, played)
    world = len(sketch.programs) if sketch.separate else None
    return writer.finish(rank, world, [number for number, _, _ in parts])


class Writer:
    """Collects rows of tables and gives names their numbers."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.base = UNIX_NS if recorder.style == "kineto" else SESSION_NS
        self.names: dict[str, int] = {}
        self.device: list[dict[str, Any]] = []
        self.host: list[dict[str, Any]] = []
        self.ranges: list[dict[str, Any]] = []

    def add(self, number: int, program: Program, played: Played) -> None:
        """Add the rows of a process."""
        self.offset = number * BETWEEN_PROCESSES
        self.process = FIRST_PROCESS + number
        self.threads = [self.process + each for each in program.threads]
        self.device += [self.on_device(row, number) for row in (*played.device, *played.waits)]
        self.host += [self.on_host(row) for row in played.host]
        self.ranges += [self.as_range(row) for row in played.ranges]
        if self.recorder.device_ranges and played.device:
            self.ranges += self.on_streams(played)

    def time(self, at: int) -> int:
        """Return a time on the recorder's clock."""
        return self.base + (at // 1_000 * 1_000 if self.recorder.whole else at)

    def name(self, name: str) -> int:
        """Return the number of a name."""
        vendor = name.replace("cuda", "hip", 1).replace("ncclDev", "rcclDev") if self.recorder.amd else name
        return self.names.setdefault(vendor if name.startswith(("cuda", "nccl")) else name, len(self.names))

    def on_device(self, row: DeviceRow, number: int) -> dict[str, Any]:
        """Return a row of device events."""
        correlated = self.recorder.correlated and self.recorder.style != "nvprof"
        known = self.recorder.host and self.recorder.operators and self.recorder.style == "kineto"
        return {
            "start_ns": self.time(row.start),
            "end_ns": self.time(row.end),
            "device": row.device,
            "context": number + 1,
            "stream": row.stream,
            "activity": row.activity,
            "name_id": self.name(self.copy_name(row)),
            "correlation": row.correlation + self.offset if correlated else None,
            "external_id": row.external + self.offset if known and row.external else None,
            "nbytes": row.nbytes if self.recorder.sizes else None,
            "copy_kind": row.direction,
            "graph_node": row.node,
        }

    def copy_name(self, row: DeviceRow) -> str:
        """Return the name that the recorder's tool gives to work."""
        form = COPY_NAMES.get(self.recorder.style) if row.activity == "memcpy" else None
        return form.format(way=row.direction, short=SHORT[row.direction or ""]) if form else row.name

    def on_host(self, row: HostRow) -> dict[str, Any]:
        """Return a row of host events."""
        known = self.recorder.style == "kineto" and self.recorder.operators
        return {
            **self.place(row),
            "category": row.category,
            "name_id": self.name(row.name),
            "correlation": None if row.correlation is None else row.correlation + self.offset,
            "external_id": row.external + self.offset if known and row.external else None,
        }

    def as_range(self, row: RangeRow) -> dict[str, Any]:
        """Return a row of annotations."""
        framework = row.framework and self.recorder.style == "kineto"
        return {**self.place(row), "side": "host", "name_id": self.name(row.name), "framework": framework}

    def place(self, row: HostRow | RangeRow) -> dict[str, Any]:
        """Return when and where something of the host was."""
        times = {"start_ns": self.time(row.start), "end_ns": self.time(row.end)}
        return {**times, "process": self.process, "thread": self.threads[row.thread]}

    def on_streams(self, played: Played) -> list[dict[str, Any]]:
        """Return the ranges that a recorder draws around the work of the host's ones; XLA's around all work."""
        if self.recorder.style != "kineto":
            inside = played.device[played.marks[0][0] :] if played.marks else played.device
            return [self.around("step#1", inside) | {"stream": None, "framework": True}]
        called = {row.correlation: row.start for row in played.host if row.correlation is not None}
        drawn = []
        for each in (row for row in played.ranges if not row.framework):
            inside = [row for row in played.device if each.start <= called.get(row.correlation, -1) < each.end]
            drawn += [self.around(each.name, [row for row in inside if row.stream == MAIN_STREAM])] if inside else []
        return [row for row in drawn if row]

    def around(self, name: str, rows: Sequence[DeviceRow]) -> dict[str, Any]:
        """Return a range around work of one device."""
        if not rows:
            return {}
        begin, end = min(row.start for row in rows), max(row.end for row in rows)
        place = {"device": rows[0].device, "stream": rows[0].stream, "side": "device"}
        times = {"start_ns": self.time(begin), "end_ns": self.time(end)}
        return {**times, **place, "name_id": self.name(name), "framework": False}

    def finish(self, rank: int | None, world: int | None, numbers: Sequence[int]) -> Trace:
        """Return the trace."""
        tables = {
            "device_events": to_table(self.device, DEVICE_EVENTS),
            "host_events": to_table(self.host, HOST_EVENTS),
            "annotations": to_table(self.ranges, ANNOTATIONS),
            "devices": to_table(self.models(), DEVICES),
        }
        count = sum(tables[name].height for name in RECORD_TABLES if name in tables)
        processes = tuple(Process(FIRST_PROCESS + n, "python3", (n + 1,)) for n in numbers) if len(numbers) > 1 else ()
        clock: Literal["unix", "session"] = "unix" if self.recorder.style == "kineto" else "session"
        return Trace(
            path=f"recording.{self.recorder.style}",
            format=self.recorder.style,
            names=pl.Series("name", list(self.names), dtype=pl.String()),
            accounting=Accounting(count, count),
            clock=clock,
            rank=rank,
            world_size=world,
            processes=processes,
            **tables,  # type: ignore[arg-type]
        )

    def models(self) -> Iterable[Mapping[str, Any]]:
        """Return the devices that the recording names."""
        numbers = sorted({row["device"] for row in self.device})
        return [{"device": number, "name": DEVICE_NAMES[self.recorder.amd]} for number in numbers]


def to_table(rows: Iterable[Mapping[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    """Return rows as a table, sorted by its first column; longer ones first where they begin together."""
    filled = [{name: row.get(name) for name in schema} for row in rows]
    table = pl.DataFrame(filled, schema=schema)
    if "end_ns" not in schema:
        return table
    return table.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
