"""The Chrome JSON that `rpd2tracing.py` makes from an .rpd file: it is read where the database is gone.

Numbers are texts, times are microseconds, and events have no category: the names of processes separate GPUs from hosts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.amd import words
from deepprof.collectors.importers.amd.places import RocmProcessor
from deepprof.collectors.importers.amd.rocprof_trace import DEVICE, HOST, Loose, RocmTrace, frame, make_trace
from deepprof.collectors.importers.amd.rpd_tables import shape_calls
from deepprof.collectors.importers.files import read_bytes
from deepprof.collectors.importers.json_bounds import check_values
from deepprof.collectors.trace import Trace

TEXT_PID = re.compile(rb'"pid"\s*:\s*"-?\d+"')
OWN_WORDS = re.compile(rb'"name"\s*:\s*"(?:GPU-?\d+|Hip \d+|Hsa \d+)"')
GPU = re.compile(r"GPU\s*(-?\d{1,9})")
LEFT_OUT = {"M": "metadata", "C": "counter", "s": "flow", "t": "flow", "f": "flow", None: "metadata"}
ADVICE = "convert an .rpd file that has operations, or name that file itself"
DAMAGED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
Scalar = str | int | float | bool | None


class _RpdArgs(msgspec.Struct):
    """`name` of metadata; `desc` is an operation's type, or a call's arguments."""

    name: Scalar = None
    desc: Scalar = None


class _RpdEvent(msgspec.Struct):
    """The fields of an event that are read."""

    ph: str | None = None
    name: str | None = None
    pid: Scalar = None
    tid: Scalar = None
    ts: Scalar = None
    dur: Scalar = None
    id: Scalar = None
    args: _RpdArgs | None = None


class _Wrapped(msgspec.Struct):
    """The object that holds the list of events."""

    events: msgspec.Raw = msgspec.field(name="traceEvents")


class RpdJson:
    """Importer of what rpd2tracing writes."""

    name = "rpd-json"
    suffixes = (".json", ".json.gz")

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head`, the first 64 KiB of the content of `path`, is rpd2tracing's; never raises."""
        opening = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"[", b"{")
        return opening and bool(OWN_WORDS.search(head)) and bool(TEXT_PID.search(head))

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the trace in `path`, with clock "session"; its times have whole microseconds.

        Memory is the content, at most 2 GiB, and about 600 bytes for every event. Raises `TraceError` when the file
        cannot be read, is damaged or is something else.
        """
        content, loose = read_bytes(path), Loose()
        if not self.accepts(bytes(content[:65536]), path):
            raise TraceError(path, "is no JSON of rpd2tracing", ADVICE)
        check_values(path, content)
        events, read = decode(path, content, loose)
        rows = _tabulate(events)
        _add_rows(rows, loose)
        return make_trace(RocmTrace(path, self.name, ADVICE), loose, read)


def decode(path: Path, content: bytearray, loose: Loose) -> tuple[list[_RpdEvent], int]:
    """Return the events in `content`, without items that are no events, and the number of all items."""
    try:
        text = content.decode("utf-8", "replace").removeprefix("\ufeff").encode()
        listed = text if text.lstrip().startswith(b"[") else msgspec.json.decode(text, type=_Wrapped).events
        try:
            events = msgspec.json.decode(listed, type=list[_RpdEvent])
        except msgspec.ValidationError:
            parts = [_decode_one(part) for part in msgspec.json.decode(listed, type=list[msgspec.Raw])]
            events = [event for event in parts if event is not None]
            loose.tally.dropped["invalid"] += len(parts) - len(events)
            return events, len(parts)
    except DAMAGED as error:
        raise TraceError(path, f"is truncated or damaged JSON ({error})", "copy or convert it again") from error
    return events, len(events)


def _decode_one(part: msgspec.Raw) -> _RpdEvent | None:
    """Return `part` as an event; None if it is none."""
    try:
        return msgspec.json.decode(part, type=_RpdEvent)
    except DAMAGED:
        return None


def _tabulate(events: Sequence[_RpdEvent]) -> pl.DataFrame:
    """Return `events` as a frame of texts."""

    def column(name: str, values: Sequence[Scalar]) -> pl.Series:
        return pl.Series(name, [_as_text(value) for value in values], dtype=pl.String)

    simple = [
        column(name, [getattr(event, name) for event in events])
        for name in ("ph", "name", "pid", "tid", "ts", "dur", "id")
    ]
    args = [event.args or _RpdArgs() for event in events]
    return pl.DataFrame([*simple, column("label", [a.name for a in args]), column("desc", [a.desc for a in args])])


def _as_text(value: Scalar) -> str | None:
    """Return `value` as it would be written as text, without an exponent."""
    if isinstance(value, float):
        return f"{value:.3f}"  # microseconds: further digits come only from binary fractions
    return value if value is None or isinstance(value, str) else str(int(value))


def _nanoseconds(column: str) -> pl.Expr:
    """Return the microseconds in `column` as whole nanoseconds; null for a text that is no number."""
    whole = pl.col(column).str.extract(r"^\s*(-?\d{1,15})(?:\.\d*)?\s*$").cast(pl.Int64, strict=False)
    part = pl.col(column).str.extract(r"\.(\d{1,3})").fill_null("").str.pad_end(3, "0").cast(pl.Int64)
    below = pl.col(column).str.contains(r"^\s*-")
    return whole * 1000 + pl.when(below).then(-part).otherwise(part)


def _add_rows(rows: pl.DataFrame, loose: Loose) -> None:
    """Add the spans in `rows` to `loose`, and count the rest."""
    for phase, count in rows.filter(pl.col("ph").ne_missing("X")).group_by("ph").len().iter_rows():
        loose.tally.dropped[LEFT_OUT.get(phase, "unsupported")] += count
    gpus = _find_gpus(rows)
    loose.agents.extend(RocmProcessor(key=pid, number=number) for pid, number in gpus.items())
    times = rows.with_columns(start=_nanoseconds("ts"), end=_nanoseconds("ts") + _nanoseconds("dur"))
    spans = times.filter(pl.col("ph") == "X")
    on_gpu = pl.col("pid").is_in(list(gpus)).fill_null(False)
    calls = spans.filter(~on_gpu).with_row_index("call_id", offset=1).with_columns(pl.col("call_id").cast(pl.Int64))
    launches = _link(times, calls)
    loose.device.append(_device_rows(spans.filter(on_gpu), launches))
    loose.host.append(_host_rows(calls, launches))


def _find_gpus(rows: pl.DataFrame) -> dict[str, int]:
    """Return the numbers of the GPUs by the process id that represents each."""
    named = rows.filter((pl.col("ph") == "M") & (pl.col("name") == "process_name")).select("pid", "label").drop_nulls()
    found = {pid: GPU.fullmatch(label.strip()) for pid, label in named.unique(maintain_order=True).iter_rows()}
    return {pid: int(match[1]) for pid, match in found.items() if match}


def _link(times: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the call that launched each operation: its `call_id`, and the operation's `pid`, `tid` and `start`.

    A flow arrow begins inside a call and ends where an operation starts.
    """
    keys = ["pid", "tid"]
    begins = (
        times.filter(pl.col("ph") == "s")
        .select(*keys, "id", "start")
        .drop_nulls()
        .unique("id", keep="first")
        .sort("start")
    )
    ends = times.filter(pl.col("ph") == "f").select(*keys, "id", "start").drop_nulls()
    spans = calls.select(*keys, "call_id", "start", call_end="end").drop_nulls().sort("start")
    begins = begins.join_asof(spans, on="start", by=keys, strategy="backward", check_sortedness=False)
    begins = begins.filter(pl.col("start") <= pl.col("call_end")).select("id", "call_id")
    launches = ends.join(begins, on="id", how="inner", maintain_order="left")
    return launches.with_columns(at=pl.int_range(pl.len()).over(*keys, "start"))


def _device_rows(rows: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    keys = ["pid", "tid", "start", "at"]
    rows = rows.with_columns(at=pl.int_range(pl.len()).over(*keys[:3]))
    rows = rows.join(launches.select(*keys, "call_id"), on=keys, how="left", maintain_order="left")
    operation = pl.when(pl.col("desc") != "").then("desc").otherwise("name")
    rows = rows.with_columns(operation=operation)
    rows = words.labelled(
        rows, "operation", activity=words.activity_of, copy_kind=words.copy_kind_of, copy=words.operation_label
    )
    kernel = pl.col("activity") == "kernel"
    columns = {
        "start_ns": pl.col("start"),
        "end_ns": pl.col("end"),
        "process": 0,
        "agent": pl.col("pid"),
        "queue": pl.col("tid").cast(pl.Int64, strict=False),
        "activity": pl.col("activity"),
        "name": pl.when(kernel).then(words.kernel_label(pl.col("name"))).otherwise("copy"),
        "correlation": pl.col("call_id"),
        "copy_kind": pl.when(pl.col("activity") == "memcpy").then("copy_kind"),
    }
    return frame(DEVICE, columns, rows)


def _host_rows(rows: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Return the spans of hosts as HOST rows, with the categories that the calls of an .rpd file get."""
    integer = {name: pl.col(name).cast(pl.Int64, strict=False) for name in ("pid", "tid")}
    rows = rows.with_columns(
        integer["pid"], integer["tid"], call="name", args="desc", domain=pl.lit(None, pl.String), id="call_id"
    )
    named = pl.when(pl.col("args") != "").then("args").alias("args")
    return shape_calls(rows.with_columns(named), launches.select(api_id="call_id")).select(*HOST)
