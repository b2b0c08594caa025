"""Recordings of `deepprof accesses`: what each kernel accessed of every block of device memory, counted on the device.

A recording is a line of JSON per launch, allocation and release, as the classes here declare them; the first line is
`_StartLine`. `collectors/live/accesses/recording.c` writes it, line by line: the last line of a job that was killed
may be cut off, and `_EndLine`, which counts what was not counted, may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.assembly import Records, assemble
from deepprof.collectors.importers.files import open_file
from deepprof.collectors.importers.flags import NBYTES_LIMIT, Tally
from deepprof.collectors.trace import ACCESSES, Trace
from deepprof.plurals import counted

FORMAT = "deepprof.accesses/1"
OPENING = b'{"kind":"start","format":"deepprof.accesses/'
RECORD_AGAIN = "record it again with deepprof accesses"
FILE_LIMIT_NBYTES = 1 << 30
LINE_LIMIT_NBYTES = 1 << 25  # 2**18 blocks take half of it
BLOCKS_LIMIT = 1 << 24  # in all: 1.2 GB in memory
RECORDS_LIMIT = 1 << 21  # launches, allocations and releases
SUM_LIMIT = 1 << 62
COLUMNS = 5  # of a block: where it begins and four counts
PROBLEMS = 3  # are named
LOSSES = (
    *("skipped", "launch-limit", "other-name", "graph-kernel", "unpatched", "no-table", "unread"),  # launches
    *("copy", "memset"),  # which are no kernels
)

Count = Annotated[int, Meta(ge=0, le=SUM_LIMIT)]
Time = Annotated[int, Meta(ge=-SUM_LIMIT, le=SUM_LIMIT)]
Small = Annotated[int, Meta(ge=0, le=2**16 - 1)]


class _StartLine(msgspec.Struct, tag_field="kind", tag="start"):
    """The first line: of which process of the job, and how accesses were counted. `rank` is -1 where there is none."""

    format: str
    process: Count
    rank: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    block_nbytes: Annotated[int, Meta(ge=1, le=1 << 21)]
    slots: Count
    sees_tensor_copies: bool


class _LaunchLine(msgspec.Struct, tag_field="kind", tag="launch"):
    """One launch whose accesses were counted: in `full` those of blocks that had no room."""

    launch: Count
    name: str
    device: Small
    context: Count
    stream: Count
    grid: Count
    block: Count
    start_ns: Time
    end_ns: Time
    full: tuple[Count, Count, Count, Count]
    tensor_copies: Count
    blocks: list[Count]


class _MemoryLine(msgspec.Struct, tag_field="kind", tag="memory"):
    """One allocation of the driver, or a release, whose `nbytes` is negative."""

    time_ns: Time
    device: Small
    address: Count
    nbytes: Annotated[int, Meta(ge=-NBYTES_LIMIT, le=NBYTES_LIMIT)]


class _ProblemLine(msgspec.Struct, tag_field="kind", tag="problem"):
    """A call of the sanitizer that failed."""

    what: str
    why: str


class _EndLine(msgspec.Struct, tag_field="kind", tag="end"):
    """The last line: how many launches and others were not counted, by reason."""

    problems: Count
    lost: dict[str, Count]


_Line = _StartLine | _LaunchLine | _MemoryLine | _ProblemLine | _EndLine


class _Lines(Struct, eq=False):
    """What was read of a recording."""

    start: _StartLine | None = None
    end: _EndLine | None = None
    launches: list[_LaunchLine] = field(default_factory=list)
    blocks: list[npt.NDArray[np.uint64]] = field(default_factory=list)  # of every launch, a row each
    memory: list[_MemoryLine] = field(default_factory=list)
    problems: list[_ProblemLine] = field(default_factory=list)  # the first ones, which are named
    failed: int = 0  # how many problems there are
    rows: int = 0
    tally: Tally = field(default_factory=Tally)

    def add(self, text: bytes, decoder: msgspec.json.Decoder[_Line]) -> None:
        """Take one line; what is no line of a recording is counted."""
        try:
            line = decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.tally.dropped["invalid" if text.endswith(b"\n") else "truncated"] += 1
            return
        if isinstance(line, _LaunchLine | _MemoryLine) and len(self.launches) + len(self.memory) >= RECORDS_LIMIT:
            self.tally.dropped["too-many"] += 1
            return
        match line:
            case _LaunchLine():
                self._add_launch(line)
            case _MemoryLine():
                self.memory.append(line)
            case _ProblemLine():
                self.failed += 1
                self.problems += [line] if len(self.problems) < PROBLEMS else []
            case _EndLine():
                self.end = line
            case _StartLine():
                self.start = self.start or line

    def _add_launch(self, line: _LaunchLine) -> None:
        """Take a launch, its blocks as an array: as objects they would take ten times the memory."""
        if len(line.blocks) % COLUMNS:
            self.tally.dropped["invalid"] += 1
            return
        if self.rows + len(line.blocks) // COLUMNS > BLOCKS_LIMIT:
            self.tally.dropped["too-many"] += 1
            return
        self.rows += len(line.blocks) // COLUMNS
        self.blocks.append(np.array(line.blocks, dtype=np.uint64).reshape(-1, COLUMNS))
        line.blocks = []
        self.launches.append(line)


class AccessRecording:
    """Importer of what `deepprof accesses` writes: kernels with the blocks of memory that they access."""

    name = "accesses"
    suffixes: tuple[str, ...] = (".accesses",)
    cheap_details = True

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head` begins with the first line of a recording."""
        return head.startswith(OPENING)

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the trace in `path`; raises `TraceError`. Uses about five times the size of the file."""
        lines = _read_lines(path)
        if lines.start is None or lines.start.format != FORMAT:
            raise TraceError(path, f"is no recording of the format {FORMAT}", RECORD_AGAIN)
        accesses = _find_accesses(lines, lines.start.block_nbytes)
        if lines.end is not None and sum(lines.end.lost.values()) > SUM_LIMIT:
            raise TraceError(path, "counts more launches than there can be", RECORD_AGAIN)
        if any(float(accesses[name].cast(pl.Float64).sum()) > SUM_LIMIT for name in accesses.columns[3:]):
            raise TraceError(path, "counts more accesses than there can be", RECORD_AGAIN)
        return _assemble(path, lines, accesses, lines.start)


def _read_lines(path: Path) -> _Lines:
    lines, decoder = _Lines(), msgspec.json.Decoder(_Line)
    with open_file(path) as file:
        read_nbytes = 0
        while text := file.readline(LINE_LIMIT_NBYTES + 1):
            read_nbytes += len(text)
            if len(text) > LINE_LIMIT_NBYTES or read_nbytes > FILE_LIMIT_NBYTES:
                limits = f"lines of {LINE_LIMIT_NBYTES:,} bytes and {FILE_LIMIT_NBYTES:,} bytes in all"
                raise TraceError(path, f"holds more than the limit of {limits}", "record fewer launches")
            lines.add(text, decoder)
    return lines


def _find_accesses(lines: _Lines, block_nbytes: int) -> pl.DataFrame:
    """Return the table ACCESSES, with the number of the launch in `event`."""
    counts = [len(each) for each in lines.blocks]
    table = np.concatenate([*lines.blocks, np.empty((0, COLUMNS), dtype=np.uint64)])
    names = ("address", *list(ACCESSES)[3:])
    placed = pl.DataFrame({name: table[:, at] for at, name in enumerate(names)}, schema=dict.fromkeys(names, pl.UInt64))
    placed = placed.with_columns(event=pl.Series(np.repeat(np.arange(len(counts)), counts), dtype=pl.UInt32))
    unplaced = [(None, *each.full, at) for at, each in enumerate(lines.launches) if any(each.full)]
    rest = pl.DataFrame(unplaced, schema=placed.schema, orient="row")
    rows = pl.concat([placed, rest]).with_columns(nbytes=pl.lit(block_nbytes, pl.UInt64))
    return rows.select(list(ACCESSES)).cast(dict(ACCESSES)).sort("event", maintain_order=True)  # type: ignore[arg-type]


def _assemble(path: Path, lines: _Lines, accesses: pl.DataFrame, start: _StartLine) -> Trace:
    """Return the trace, whose kernels are in another order than the launches if these overlap."""
    tally = lines.tally
    for reason, many in (lines.end.lost if lines.end is not None else {}).items():
        tally.dropped.update({reason if reason in LOSSES else "other": many} if many else {})
    if copying := sum(each.tensor_copies > 0 for each in lines.launches):
        tally.flagged["tensor-copies"] += copying
    records = Records(device=_list_kernels(lines.launches), memory=_list_memory(lines.memory, start), tally=tally)
    read = len(lines.launches) + len(lines.memory) + tally.dropped.total()
    rank = None if start.rank < 0 else start.rank
    trace = assemble(
        path, AccessRecording.name, records, read=read, clock="unix", rank=rank, notes=tuple(_describe(lines))
    )
    launches = trace.device_events.select(launch=pl.col("correlation") - 1).with_row_index("row")
    rows = accesses.join(launches, left_on="event", right_on="launch", how="inner").sort("row", maintain_order=True)
    placed = rows.with_columns(event=pl.col("row")).select(list(ACCESSES)).cast(dict(ACCESSES))  # type: ignore[arg-type]
    bare = trace.device_events.with_columns(correlation=pl.lit(None, pl.UInt64))
    return replace(trace, accesses=placed, device_events=bare)


def _list_kernels(launches: list[_LaunchLine]) -> pl.DataFrame:
    """Return the kernels, streams numbered in order of their first launch, and the launch in `correlation`."""
    if not launches:
        return pl.DataFrame()
    streams: dict[tuple[int, int], int] = {}
    rows = {
        "start_ns": [each.start_ns for each in launches],
        "end_ns": [each.end_ns for each in launches],
        "device": [each.device for each in launches],
        "context": [each.context for each in launches],
        "stream": [streams.setdefault((each.context, each.stream), len(streams)) for each in launches],
        "name": [each.name or None for each in launches],
        "correlation": range(1, len(launches) + 1),
        "grid": [each.grid or None for each in launches],
        "block": [each.block or None for each in launches],
    }
    shapes = {"registers": pl.lit(None, pl.UInt32), "shared_nbytes": pl.lit(None, pl.UInt64)}
    return pl.DataFrame(rows, schema_overrides={"name": pl.String, "grid": pl.UInt64}).with_columns(**shapes)


def _list_memory(memory: list[_MemoryLine], start: _StartLine) -> pl.DataFrame:
    """Return allocations and releases; the recording begins before all of them, so that they add up to all in use."""
    if not memory:
        return pl.DataFrame()
    columns = {name: [getattr(each, name) for each in memory] for name in ("time_ns", "device", "address", "nbytes")}
    rows = pl.DataFrame(columns, schema_overrides={"address": pl.UInt64}).sort("time_ns", maintain_order=True)
    in_use = pl.col("nbytes").cum_sum().over("device")
    known = pl.when(in_use >= 0).then(in_use)
    return rows.with_columns(process=pl.lit(start.process), allocated_nbytes=known)


def _describe(lines: _Lines) -> Iterator[str]:
    yield "accesses were counted by patched kernels, one after the other: their times are not those of the program"
    if lines.start is not None and not lines.start.sees_tensor_copies:
        yield (
            "copies by the tensor memory accelerator (TMA) of GPUs from Hopper on are not counted: this Compute "
            "Sanitizer does not show them"
        )
    if lines.end is None:
        yield "the end of the recording is missing: how many launches were not counted is not known"
    for each in lines.problems:
        yield f"{each.what} failed: {each.why}"
    more = max(lines.failed, lines.end.problems if lines.end else 0) - PROBLEMS
    if more > 0:
        yield f"{counted(more, 'more call')} of the sanitizer failed"
