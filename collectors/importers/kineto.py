"""The importer of PyTorch Kineto traces (`torch.profiler`'s Chrome JSON, plain or gzip)."""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from msgspec import Raw

from deepprof.collectors.importers import kineto_tables as tables
from deepprof.collectors.importers.files import read_bytes
from deepprof.collectors.importers.flags import flag_events
from deepprof.collectors.importers.kineto_events import EventColumns
from deepprof.collectors.importers.kineto_header import Clock, Header, read_clock, read_header
from deepprof.collectors.importers.kineto_schema import BatchDecoder, decode_document
from deepprof.collectors.trace import DEVICE_EVENTS, HOST_EVENTS, Accounting, Trace

__all__ = ["Kineto"]

BATCH = 8_192  # events decoded at a time: keeps the decoded form of a large file out of memory
VERSIONS = (None, 1)
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

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head` opens JSON with events and something that only Kineto writes."""
        if not TOP_LEVEL.match(head):
            return False
        marked = CATEGORY.search(head) or SCHEMA.search(head)
        return bool(HEADER.search(head) or (EVENTS.search(head) and marked))

    def read(self, path: Path, *, details: bool = False) -> Trace:
        """Return the trace in `path`; with `details`, operand shapes and call stacks too.

        Times are nanoseconds since the epoch where the file says so, else since an unknown start (`clock` "session").
        Raises `TraceError` when the file cannot be read, is truncated, damaged, or no Kineto trace.
        """
        with garbage_collector_off():
            return make_trace(path, *read_events(path, details=details))


@contextmanager
def garbage_collector_off() -> Iterator[None]:
    """Keep the cycle collector from walking millions of fresh objects that hold no cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_events(path: Path, *, details: bool) -> tuple[Header, EventColumns]:
    """Return the header of the document in `path`, and its events as columns."""
    document = decode_document(read_bytes(path), path)
    columns, decoder = EventColumns(details=details), BatchDecoder(details=details)
    for batch in batches(document.events):
        columns.read += len(batch)
        columns.add(decoder.decode(batch))
    return read_header(document), columns


def batches(events: list[Raw]) -> Iterator[list[Raw]]:
    """Yield `events` in order, a batch at a time, and empty the list on the way."""
    events.reverse()
    while events:
        yield events[: -BATCH - 1 : -1]
        del events[-BATCH:]


def make_trace(path: Path, header: Header, columns: EventColumns) -> Trace:
    """Return the trace of the document in `path`; what is in no table is counted."""
    names, frames = columns.names.series(), columns.frames()
    clock, traits = read_clock(frames, header.base_ns), tables.name_traits(names)
    device = tables.device_rows(frames, clock, traits)
    host = tables.host_rows(frames, clock, traits)
    annotations = tables.annotation_rows(frames, clock, traits)
    memory = tables.memory_rows(frames, clock)
    kept = device.height + host.height + annotations.height + memory.height
    return Trace(
        path=str(path),
        format=Kineto.name,
        names=names,
        accounting=Accounting(columns.read, kept, count_dropped(frames, columns, kept), flag_events(device, host)),
        device_events=device.select(list(DEVICE_EVENTS)),
        host_events=host.select(list(HOST_EVENTS)),
        annotations=annotations,
        memory_events=memory,
        devices=header.devices,
        collectives=tables.collectives(device),
        operands=tables.operands(host),
        stacks=tables.stacks(host),
        clock=clock.kind,
        rank=header.rank,
        world_size=header.world_size,
        notes=tuple(write_notes(device, columns.foreign, header, clock)),
    )


def count_dropped(frames: Mapping[str, pl.DataFrame], columns: EventColumns, kept: int) -> dict[str, int]:
    """Return counts of the events that are in no table, by reason; what has no other reason made no sense."""
    dropped = columns.dropped + tables.other_marks(frames)
    invalid = columns.read - kept - dropped.total()
    return {**dropped, "invalid": invalid} if invalid else dict(dropped)


def write_notes(device: pl.DataFrame, foreign: Counter[str], header: Header, clock: Clock) -> Iterator[str]:
    """Yield a sentence for everything the reader of a report should know about the file."""
    if not device.height and foreign:
        counts = ", ".join(f"{count} {category}" for category, count in foreign.most_common())
        devices = ", ".join(header.devices["name"].unique(maintain_order=True))
        yield f"holds no kernel: the events are of another accelerator ({devices or 'unnamed'}: {counts})"
    elif not device.height:
        yield "holds no kernel: recorded on the CPU only"
    if header.version not in VERSIONS:
        yield f"has schemaVersion {header.version!r}, known is 1"
    if header.base_ns and not clock.base_ns:
        yield "has absolute times beside baseTimeNanoseconds, which was not added"
