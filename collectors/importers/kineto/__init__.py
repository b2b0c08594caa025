"""The importer of PyTorch Kineto traces (`torch.profiler`'s Chrome JSON, plain or gzip).

`stream` reads a piece of the text at a time, `scan.c` (or `batches`, its Python fallback) finds the events, `rows`
sorts them by kind, `kineto_tables` and `host` make the tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from deepprof.collectors.importers.assembly import finish
from deepprof.collectors.importers.kineto.header import KinetoClock, KinetoHeader, read_clock, read_header
from deepprof.collectors.importers.kineto.host import host_tables
from deepprof.collectors.importers.kineto.kinds import DEVICE_KINDS
from deepprof.collectors.importers.kineto.kineto_columns import KinetoColumns, name_traits
from deepprof.collectors.importers.kineto.kineto_schema import KinetoDocument
from deepprof.collectors.importers.kineto.kineto_tables import (
    annotation_rows,
    collectives,
    device_rows,
    memory_rows,
    shapes,
)
from deepprof.collectors.importers.kineto.rows import EventColumns
from deepprof.collectors.importers.kineto.stream import read_events
from deepprof.collectors.importers.silence import OF_GPU_JOB, explain_silence
from deepprof.collectors.trace import DEVICE_EVENTS, LAYERS, Trace, empty_table

__all__ = ["Kineto"]

VERSIONS = (None, 1)
REMEDY = "record with ProfilerActivity.CUDA"
TOP_LEVEL = re.compile(rb'^(?:\xef\xbb\xbf)?\s*(?:\{\s*"|\[\s*\{)')
EVENTS = re.compile(rb'"traceEvents"|"ph"')
HEADER = re.compile(rb'"(?:deviceProperties|distributedInfo|baseTimeNanoseconds)"')
SCHEMA = re.compile(rb'"schemaVersion"')
CATEGORY = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|Operator|kernel|Kernel|gpu_\w+|cuda_\w+|python_function|user_annotation|Runtime|Mem\w+'
    rb'|mtia_\w+|cpu_instant_event|fwdbwd|ac2g)"'
)


class Kineto:
    """Reads `torch.profiler` traces of every generation since 2020 (see `read`)."""

    name = "kineto"
    suffixes = (".pt.trace.json", ".pt.trace.json.gz", ".json", ".json.gz")
    cheap_details = True

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head` starts JSON with events and with a key or category that only Kineto writes."""
        if not TOP_LEVEL.match(head):
            return False
        marked = CATEGORY.search(head) or SCHEMA.search(head)
        return bool(HEADER.search(head) or (EVENTS.search(head) and marked))

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the trace in `path`: with `shapes`, launch and operand shapes too, with `details`, call stacks.

        Times are nanoseconds since the epoch if the file states it, else since an unknown start (`clock` "session").
        Raises `TraceError` when the file cannot be read, is truncated, damaged, or no Kineto trace, and when it is
        too large: `files.LIMIT_NBYTES` of text, in events of 48 bytes or more on average. The text is read a piece at
        a time; in memory are at most the raw columns and the tables made from them, about 200 bytes an event, and
        `json_texts.LIMIT_NBYTES` of distinct operands and call stacks.
        """
        return _make_trace(path, *read_events(path, details=details, shapes=shapes))


def _make_trace(path: Path, document: KinetoDocument, columns: EventColumns) -> Trace:
    """Return the trace of the document in `path`; records that are in no table are counted."""
    header, names = read_header(document, path), columns.labels.names.series()
    device_events = sum(columns.heights[kind] for kind in DEVICE_KINDS)
    source = KinetoColumns(columns, read_clock(columns.times_us(), header.base_ns), name_traits(names))
    annotations, memory, device = annotation_rows(source), memory_rows(source), device_rows(source)
    host = host_tables(source)
    calls = host.events.select("category", "name_id", "correlation").filter(pl.col("category") == "runtime")
    calls = calls.select("correlation", name=names.gather(calls["name_id"]))
    absence = _explain_absence(device_events, columns.foreign, header, (calls["name"], names))
    tables = {"host_events": host.events, "annotations": annotations, "memory_events": memory}
    return finish(
        path,
        Kineto.name,
        {"device_events": device.select(list(DEVICE_EVENTS)), **tables},
        columns.tally,
        read=columns.read,
        names=names,
        devices=header.devices,
        collectives=collectives(source, device),
        launch_shapes=shapes(source, device, calls),
        operands=host.operands,
        stacks=host.stacks,
        layers=empty_table(LAYERS) if header.layers is None else header.layers,
        clock=source.clock.kind,
        rank=header.rank,
        world_size=header.world_size,
        notes=(*_write_notes(device.height, absence, header, source.clock), *_note_left_out(columns.left_out)),
    )


def _write_notes(kept: int, absence: str, header: KinetoHeader, clock: KinetoClock) -> Iterator[str]:
    """Yield a sentence for everything the reader of a report should know about the file.

    `kept` is the number of device events in the table, `absence` the reason if there are none.
    """
    if not kept:
        yield f"holds no kernel: {absence}"
    if header.version not in VERSIONS:
        yield f"has schemaVersion {header.version!r}, known is 1"
    if header.layers is None:
        yield "has layers of a model (deepprof_layers) that cannot be read"
    if header.base_ns and not clock.base_ns:
        yield "has absolute times beside baseTimeNanoseconds, which was not added"


def _note_left_out(texts: int) -> Iterator[str]:
    """Yield a sentence where texts of operands or call stacks were left out."""
    if texts:
        yield f"has more distinct operands than are kept: {texts} shapes, types or values of operators were left out"


def _explain_absence(
    device_events: int, foreign: Counter[str], header: KinetoHeader, named: tuple[pl.Series, pl.Series]
) -> str:
    """Return why no device event was kept; `named` are the names of the runtime calls that were kept, and all names."""
    if device_events:
        return f"all {device_events} device events have impossible times or places"
    if not foreign:
        return _explain_silence(header, *named)
    counts = ", ".join(f"{count} {category}" for category, count in foreign.most_common())
    devices = ", ".join(header.devices["name"].unique(maintain_order=True))
    return (
        f"the events are of another accelerator ({devices or 'unnamed'}: {counts}), which DeepProf does not read; "
        "use the tools of its vendor for them, or record the same program on a GPU"
    )


def _explain_silence(header: KinetoHeader, calls: pl.Series, names: pl.Series) -> str:
    """Return why there is no device event of any kind."""
    shown = names.filter(names.str.contains(OF_GPU_JOB).fill_null(value=False))
    listed = ", ".join(header.devices["name"].drop_nulls().unique(maintain_order=True))
    if len(calls) or not (len(shown) or listed):
        return explain_silence(calls, REMEDY)
    job = f"the operators are of a GPU job ({shown[0]})" if len(shown) else f"a GPU is listed ({listed})"
    return f"{job}, but the work of the device was not recorded; {REMEDY}"
