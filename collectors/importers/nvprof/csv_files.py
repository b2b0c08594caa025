"""nvprof's CSV: `--print-gpu-trace --csv`, `--print-api-trace --csv` or both, from a terminal or a log file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

import polars as pl
from msgspec import Struct, field

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.assembly import Records, assemble
from deepprof.collectors.importers.files import read_head, read_pieces
from deepprof.collectors.importers.nvprof.csv_lines import split_fields
from deepprof.collectors.importers.nvprof.csv_rows import (
    TIME_UNITS,
    NvprofCsvHeader,
    NvprofCsvProcess,
    pair_ranges,
    read_rows,
)
from deepprof.collectors.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"\xef\xbb\xbf": "utf-8"}
HEADER = re.compile(rb'^[ ]*"?Start"?([,;\t])"?Duration"?\1(?:[^\n]*\1)?"?Name"?(?:\1[^\n]*)?$', re.M)
REMARK = re.compile(rb"^={2,}(?:(\d{1,10})={2,})? ?([^\n]*)\n?", re.M)
COMPLAINT = re.compile(r"(?:Warning|Error): |^No kernels were profiled|^No API activities were profiled")
KINDS = {
    "trace": HEADER,
    "pyprof": re.compile(rb'^"?(?:Idx|Kernel|Direction|Sub|Module|Op)"?,[^\n]*\bSil\(ns\)', re.M),
    "summary": re.compile(rb'^"?(?:Type"?,"?)?Time\(%\)"?,"?Time"?,"?Calls"?', re.M),
    "metrics": re.compile(rb'^"?Device"?,"?Kernel"?,"?Invocations"?,', re.M),
    "table": re.compile(rb"^ +Start +Duration +[^\n]*Name *$", re.M),
    "summary-table": re.compile(rb"^ *(?:Type +)?Time\(%\) +Time +Calls\b", re.M),
    "banner": re.compile(rb"^==\d+== (?:NVPROF is profiling|Profiling (?:application|result))", re.M),
}
AGAIN = "record again with `nvprof --print-gpu-trace --csv --log-file trace.csv`"
OTHERS = {
    "pyprof": (
        "is the table that pyprof makes of a profile: durations by operator, without the times of the kernels",
        "give the database that it was made from (nvprof -o, often .sql or .nvvp)",
    ),
    "summary": ("is a summary of nvprof: totals by kernel, without their times", AGAIN),
    "metrics": ("is a table of nvprof's metrics or events by kernel, without their times", AGAIN),
    "table": ("is a trace of nvprof in the form for reading, in which names are cut", AGAIN),
    "summary-table": ("is a summary of nvprof: totals by kernel, without their times", AGAIN),
    "banner": ("holds no trace table of nvprof", AGAIN),
}
PIECE_NBYTES = 4 * 1024**2  # is parsed at once, into some 20 times as much memory
LINE_LIMIT = PIECE_NBYTES
COLUMN_LIMIT = 1000  # nvprof has 25, and one for every metric
TABLE_LIMIT = 10_000  # one process has one or two
QUOTES = 5
SIBLINGS = 1000


class NvprofCsv:
    """Importer of what nvprof prints as CSV."""

    name = "nvprof-csv"
    suffixes = (".csv", ".log")

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head` is of any of `KINDS`, of which `read` refuses all but a trace; never raises."""
        return kind_of_text(head) is not None

    def covers(self, path: Path) -> tuple[Path, ...]:
        """Return the files next to `path` that describe a profile and are no trace."""
        return list_others(path)

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the trace in `path`, with clock "session"; times are as precise as nvprof printed them.

        Memory: about the size of the file for the columns that are kept, twice that at the end, and some 100 MB while
        it is read. Raises `TraceError` when the file cannot be read or contains no trace.
        """
        kind = kind_of_text(read_head(path))
        if kind is not None and kind not in ("trace", "banner"):
            raise TraceError(path, *OTHERS[kind])
        reader = _NvprofCsvReader(path)
        for piece in _whole_lines(path):
            reader.feed(piece)
        if not reader.tables:
            raise TraceError(path, *_describe_missing(reader.remarks))
        return _make_trace(reader)


def kind_of_text(head: bytes) -> str | None:
    """Return which of `KINDS` a file that starts with `head` is, None for none of them."""
    text = _as_utf8(head, _encoding_of(head))
    return None if b"\0" in text else next((kind for kind, looks in KINDS.items() if looks.search(text)), None)


def _describe_other(head: bytes) -> bool:
    """Return whether `head` is of a file that describes a profile without being a trace."""
    return kind_of_text(head) in ("pyprof", "summary", "metrics", "table", "summary-table")


def list_others(path: Path) -> tuple[Path, ...]:
    """Return the CSV files next to `path` that `_describe_other` recognises."""
    try:
        return tuple(other for other in _others_in(path.parent, path.parent.stat().st_mtime_ns) if other != path)
    except OSError:
        return ()


@lru_cache(maxsize=4)
def _others_in(directory: Path, changed_ns: int) -> tuple[Path, ...]:
    """Return the files in `directory`, last changed at `changed_ns`, that `_describe_other` recognises.

    The result is cached, because every trace in the directory needs the same one.
    """
    return tuple(sibling for sibling in islice(sorted(directory.glob("*.csv")), SIBLINGS) if _is_other(sibling))


def _is_other(path: Path) -> bool:
    """Return whether `path` is a file that `_describe_other` recognises."""
    try:
        return path.is_file() and _describe_other(read_head(path))
    except (TraceError, OSError):
        return False


def _describe_missing(remarks: list[str]) -> tuple[str, str]:
    """Return the problem and the advice for a file without a table; the problem quotes nvprof's `remarks`."""
    said = "; ".join(f"nvprof says “{text}”" for text in remarks)
    problem, advice = OTHERS["banner"]
    return (f"{problem}: {said}" if said else problem), advice


def _encoding_of(head: bytes) -> str:
    """Return the encoding of a text that starts with `head`; a Windows shell redirects output as UTF-16."""
    return next((encoding for mark, encoding in BYTE_ORDER_MARKS.items() if head.startswith(mark)), "utf-8")


def _as_utf8(content: bytes, encoding: str) -> bytes:
    """Return `content` as UTF-8 without a byte order mark, with line ends as on Unix."""
    if encoding != "utf-8":
        content = content.decode(encoding, "replace").encode("utf-8", "replace")
    content = content.removeprefix(b"\xef\xbb\xbf")
    return content.replace(b"\r\n", b"\n") if b"\r" in content else content


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the content of `path` as UTF-8 in pieces of whole lines; the last line may be cut off."""
    rest, encoding = b"", ""
    for piece in read_pieces(path, PIECE_NBYTES):
        content = rest + piece
        encoding = encoding or _encoding_of(content)
        end = _last_line_end(content, "\n".encode(encoding))
        if end == 0 and len(content) > LINE_LIMIT:
            raise TraceError(path, f"has a line of more than {LINE_LIMIT} bytes", "give a file written by nvprof")
        if end:
            yield _as_utf8(content[:end], encoding)
        rest = content[end:]
    if rest:
        yield _as_utf8(rest, encoding)


def _last_line_end(piece: bytes, newline: bytes) -> int:
    """Return where the last whole line of `piece` ends, 0 where it has none."""
    at = piece.rfind(newline)
    while len(newline) == 2 and at % 2 and at > 0:  # the match consists of halves of two characters
        at = piece.rfind(newline, 0, at + 1)
    return at + len(newline) if at >= 0 else 0


class _NvprofCsvReader(Struct):
    """The state of reading one file: the current table, and the processes found so far."""

    path: Path
    processes: dict[int | None, NvprofCsvProcess] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    process: int | None = None
    header: NvprofCsvHeader | None = None
    tables: int = 0
    coarse: bool = False  # a table gives its start times in seconds

    def feed(self, piece: bytes) -> None:
        """Read whole lines."""
        at = 0
        for match in HEADER.finditer(piece):
            self.take(piece[at : match.start()])
            self.open_table(match)
            at = match.end() + 1
        self.take(piece[at:])

    def take(self, content: bytes) -> None:
        """Read lines between two headers: remarks of nvprof, and rows."""
        process = self.process
        if content.startswith(b"=") or b"\n=" in content:
            for number, text in REMARK.findall(content):
                process = int(number) if number else process
                self.note(text)
            content = REMARK.sub(b"", content)
        content = content.strip(b"\n")
        if content and self.header is not None:
            if not self.header.units:
                line, _, content = content.partition(b"\n")
                self.header.units = self.read_units(line, self.header)
            if content:
                read_rows(content, self.header, self.processes.setdefault(self.process, NvprofCsvProcess()))
        elif content:
            self.note(content[:LINE_LIMIT].split(b"\n")[0])
        self.process = process

    def open_table(self, match: re.Match[bytes]) -> None:
        """Start the table whose header is `match`."""
        self.tables += 1
        if self.tables > TABLE_LIMIT:
            raise TraceError(self.path, f"has more than {TABLE_LIMIT} tables", "give a file written by nvprof")
        names = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in split_fields(match[0], match[1])]
        if len(names) > COLUMN_LIMIT:
            raise TraceError(self.path, f"has more than {COLUMN_LIMIT} columns", "give a file written by nvprof")
        columns = [name if name and name not in names[:at] else f"column {at}" for at, name in enumerate(names)]
        self.header = NvprofCsvHeader(columns, match[1])
        self.processes.setdefault(self.process, NvprofCsvProcess())

    def read_units(self, line: bytes, header: NvprofCsvHeader) -> dict[str, str]:
        """Return the unit in `line` of every column of `header`."""
        units = dict(zip(header.columns, split_fields(line, header.separator), strict=False))
        if any(units.get(column) not in TIME_UNITS for column in ("start", "duration")):
            problem = "does not say in which units its times are: the line below the header should"
            raise TraceError(self.path, problem, AGAIN)
        self.coarse |= units["start"] == "s"
        return units

    def note(self, text: bytes) -> None:
        """Store `text`, a message of nvprof about its own work, if it is a complaint."""
        words = " ".join(text[:300].decode("utf-8", "replace").split())
        if COMPLAINT.search(words) and len(self.remarks) < QUOTES:
            self.remarks.append(words)


def _make_trace(reader: _NvprofCsvReader) -> Trace:
    """Return the trace of the process that has the most GPU activities."""
    counts = {number: sum(part.height for part in each.device) for number, each in reader.processes.items()}
    number = max(counts, key=lambda key: counts[key])
    process, others = reader.processes[number], [each for key, each in reader.processes.items() if key != number]
    marks = pl.concat([pl.DataFrame(schema={"start_ns": pl.Int64, "name": pl.String}), *process.marks])
    annotations = pair_ranges(marks, process.tally).with_columns(process=pl.lit(number, pl.Int64))
    records = Records(
        device=pl.concat(process.device) if process.device else pl.DataFrame(),
        host=(pl.concat(process.host) if process.host else pl.DataFrame()).with_columns(
            process=pl.lit(number, pl.Int64)
        ),
        annotations=annotations,
        tally=process.tally,
    )
    left_out = sum(each.read for each in others)
    if left_out:
        process.tally.dropped["other-process"] += left_out
    notes = tuple(_take_notes(reader, process, counts, number))
    return assemble(
        reader.path,
        "nvprof",  # the tool, as for its databases
        records,
        read=process.read + left_out,
        clock="session",
        devices=process.list_devices(),
        notes=notes,
    )


def _take_notes(
    reader: _NvprofCsvReader, process: NvprofCsvProcess, counts: dict[int | None, int], number: int | None
) -> Iterator[str]:
    """Yield what a reader of the report should know about the file."""
    if process.tally.dropped["truncated"]:
        yield "the file breaks off in the middle of a row, which was left out: the recording may have gone on"
    if not counts[number]:
        yield f"the file has no GPU activities; {AGAIN}"
    if len(counts) > 1:
        yield (
            f"the file holds {len(counts)} processes, each with a clock of its own; only process {number} was read "
            f"({counts[number]} of {sum(counts.values())} GPU activities): write one file each with `--log-file %p.csv`"
        )
    if reader.coarse and counts[number]:
        yield (
            "start times are whole microseconds, because nvprof wrote them in seconds; "
            "`nvprof --normalized-time-unit us` keeps nanoseconds"
        )
    yield from (f"nvprof says: {text}" for text in reader.remarks)
