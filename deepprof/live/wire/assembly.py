"""Assembly of the messages of one rank, in their order, into a trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from deepprof.collectors.trace import TABLES, Accounting, Trace, empty_table
from deepprof.live.wire.checking import check_batch, check_end, check_gap, check_hello
from deepprof.live.wire.cutting import INTERRUPTED
from deepprof.live.wire.errors import WireError
from deepprof.live.wire.heads import CLOCKS
from deepprof.live.wire.limits import LIMITS, WireLimits
from deepprof.live.wire.records import CheckedRecords
from deepprof.live.wire.sent_tables import SENT_RECORDS, SENT_SIDES, SENT_TABLES
from deepprof.plurals import counted, verb
from deepprof.v1 import query_pb2
from deepprof.v1 import records_pb2 as pb

WORK = ("device_events", "host_events")  # tables that iterations are found in: host events where there is no device
PAUSES = ("duty-cycle", INTERRUPTED)  # reasons of intended gaps, in which nothing was to be recorded
NEVER_NS = -(2**62)
# Tables without numbered records, and the key of their rows.
DESCRIBED = {"devices": "device", "stacks": "stack_id", "context_nodes": "context"}


class TraceAssembly:
    """A trace that is being assembled: call `add_batch` and `add_gap`, at last `add_end`, then `trace`.

    `skipped` is the number of records before the first message, which are no longer kept. Every message is checked
    against `limits`; one that breaks the contract, or repeats record numbers, raises `WireError`.
    """

    def __init__(self, hello: pb.Hello, skipped: int = 0, limits: WireLimits = LIMITS) -> None:
        self.limits = limits
        check_hello(hello, self.limits)
        self.hello, self.skipped, self.expected = hello, skipped, skipped
        self.names: list[str] = []
        self.names_nbytes = 0
        self.parts: dict[str, list[pl.DataFrame]] = {table: [] for table in SENT_TABLES}
        self.offsets: dict[str, list[int]] = {side: [] for side in SENT_SIDES}
        self.rows = dict.fromkeys(SENT_RECORDS, 0)
        self.lost: Counter[str] = Counter()  # records by reason
        self.pauses = 0  # intended gaps
        self.uncounted = 0  # other gaps, whose number of lost records is unknown
        self.newest: dict[str, int] = {}  # the latest start so far, by table
        self.breaks: list[dict[str, int]] = []  # the value of `newest` at every gap
        self.dropped: Mapping[str, int] = {}
        self.flagged: Mapping[str, int] = {}

    def add_batch(self, message: pb.Batch) -> None:
        """Add a batch; raises `WireError`. Record numbers that it skips count as a gap."""
        records = check_batch(message, self.limits, len(self.names), self.names_nbytes)
        self.follow(records.first)
        self.add_names(records)
        for side, of in SENT_SIDES.items():
            if side in records.tables:
                self.offsets[side].append(self.rows[of])
        for table, rows in records.tables.items():
            self.parts[table].append(rows)
            if table in self.rows:
                self.rows[table] += rows.height
            if table in WORK and rows.height:
                self.newest[table] = max(self.newest.get(table, NEVER_NS), int(rows["start_ns"].max()))  # type: ignore[arg-type]
        self.expected = records.first + records.count

    def add_gap(self, message: pb.Gap) -> None:
        """Add a gap, where records are missing; raises `WireError`."""
        check_gap(message, self.limits)
        self.follow(message.first)
        self.lost[message.reason] += message.lost
        meant = not message.lost and message.reason in PAUSES
        self.pauses, self.uncounted = self.pauses + meant, self.uncounted + (not message.lost and not meant)
        self.breaks.append(dict(self.newest))
        self.expected = message.first + message.lost

    def add_end(self, message: pb.End) -> None:
        """Add the counts of dropped and flagged records; raises `WireError`."""
        check_end(message, self.limits)
        self.dropped, self.flagged = dict(message.dropped), dict(message.flagged)

    def follow(self, first: int) -> None:
        """Count the records missing before the record `first`; raises `WireError` for numbers that arrived already."""
        if first < self.expected:
            raise WireError("first", f"{first} comes again after {self.expected}")
        if first > self.expected:
            self.lost[""] += first - self.expected
            self.breaks.append(dict(self.newest))

    def add_names(self, records: CheckedRecords) -> None:
        """Add new names; raises `WireError` where the text of a recognized name has changed."""
        known = len(self.names) - records.first_name
        if list(records.names[:known]) != self.names[records.first_name :][: len(records.names)]:
            raise WireError("names", "a name that is known has another text now")
        self.names += records.names[known:]
        self.names_nbytes += sum(len(name.encode()) for name in records.names[known:])

    def take_rows(self) -> dict[str, pl.DataFrame]:
        """Return the rows of the record tables, and contexts, in the order in which they arrived; forget all rows.

        A context may come several times; its first row holds.
        """
        rows = {table: _concat(table, self.parts[table]) for table in (*SENT_RECORDS, "context_nodes")}
        self.parts = {table: [] for table in SENT_TABLES}
        self.offsets = {side: [] for side in SENT_SIDES}
        self.breaks = []
        return rows

    def trace(self) -> Trace:
        """Return the trace of all messages added; raises `ValueError` where they do not make one."""
        parts = self.parts | {table: _drop_repeated(self.parts[table], key) for table, key in DESCRIBED.items()}
        tables = {table: _concat(table, pieces) for table, pieces in parts.items()}
        for side, of in SENT_SIDES.items():
            tables[side] = _shift(tables[side], self.parts[side], self.offsets[side])
            tables[side] = _renumber(tables[side], tables[of])
        tables = {table: _sort(rows) for table, rows in tables.items()}
        kept = sum(tables[table].height for table in SENT_RECORDS)
        hello = self.hello
        return Trace(
            path=hello.source,
            format=hello.format,
            names=pl.Series("name", self.names, dtype=pl.String),
            accounting=Accounting(kept + sum(self.dropped.values()), kept, self.dropped, self.flagged),
            clock="unix" if hello.clock == CLOCKS["unix"] else "session",
            epoch_ns=hello.epoch_unix_ns if hello.HasField("epoch_unix_ns") else None,
            rank=hello.rank if hello.rank_known else None,
            world_size=hello.world_size or None,
            notes=(*hello.notes, *self.remarks()),
            breaks_ns=tuple(self.find_breaks()),
            **tables,  # type: ignore[arg-type]
        )

    def find_breaks(self) -> list[int]:
        """Return the times at which records are missing: right after the latest start before each gap.

        As for a running job, device events decide where there are any. Records that arrive after a gap do not move it.
        """
        work = next((table for table in WORK if self.rows[table]), WORK[0])
        return sorted({known[work] + 1 for known in self.breaks if work in known})

    def remarks(self) -> Iterator[str]:
        """Yield the notes about records that are missing."""
        if self.skipped:
            first = f"the first {counted(self.skipped, 'record')} {verb(self.skipped)}"
            yield f"{first} no longer kept; this is what came later"
        for reason, count in self.lost.items():
            if count:
                because = f" ({reason})" if reason else ""
                yield f"{counted(count, 'record')} in between {verb(count)} lost{because}"
        if self.pauses:
            times = "once" if self.pauses == 1 else f"{self.pauses:,} times"
            yield f"the recording pauses {times}; what ran meanwhile was not to be recorded"
        if self.uncounted:
            yield f"records in between are lost, how many is not known (gaps: {self.uncounted})"


def assemble_all(answers: Iterable[query_pb2.ReadWindowResponse], limits: WireLimits = LIMITS) -> list[Trace]:
    """Return the traces, by rank, from the answers to `Query.ReadWindow`; those of every rank are in order.

    Raises `WireError` for answers that break the contract, and `ValueError` where they do not make a trace.
    """
    ranks: dict[int, TraceAssembly] = {}
    for answer in answers:
        kind = answer.WhichOneof("message")
        if kind == "hello":
            ranks[answer.rank] = TraceAssembly(answer.hello, answer.skipped, limits)
        elif answer.rank not in ranks:
            raise WireError("rank", f"{answer.rank} has said no Hello")
        elif kind == "batch":
            ranks[answer.rank].add_batch(answer.batch)
        elif kind == "gap":
            ranks[answer.rank].add_gap(answer.gap)
        elif kind == "end":
            ranks[answer.rank].add_end(answer.end)
    return [ranks[rank].trace() for rank in sorted(ranks)]


def _concat(table: str, parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat([empty_table(TABLES[table]), *parts]).rechunk()


def _drop_repeated(parts: Sequence[pl.DataFrame], key: str) -> list[pl.DataFrame]:
    """Return the parts without the rows that an earlier part has: a batch without numbered records may come twice."""
    if len(parts) < 2:
        return list(parts)
    rows = pl.concat([part.with_columns(part=pl.lit(i)) for i, part in enumerate(parts)])
    return [rows.filter(pl.col("part") == pl.col("part").min().over(key)).drop("part")]


def _shift(rows: pl.DataFrame, parts: list[pl.DataFrame], offsets: list[int]) -> pl.DataFrame:
    """Return a side table whose `event` counts from the first row of the trace, not from that of its batch."""
    added = np.repeat(np.array(offsets, np.uint32), [part.height for part in parts])
    return rows.with_columns(event=rows["event"] + pl.Series(added, dtype=pl.UInt32))


def _renumber(side: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return a side table with the row numbers that its events have after `rows` are sorted."""
    times = rows.to_series(0)
    if times.is_sorted() or not side.height:
        return side
    places = np.empty(len(times), np.uint32)
    places[np.argsort(times.to_numpy(), kind="stable")] = np.arange(len(times), dtype=np.uint32)
    return side.with_columns(event=pl.Series(places[side["event"].to_numpy()], dtype=pl.UInt32))


def _sort(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a table sorted by its first column, as every table of a trace is."""
    return rows if rows.to_series(0).is_sorted() else rows.sort(rows.columns[0], maintain_order=True)
