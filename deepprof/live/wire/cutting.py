"""A trace as batches in time order: the messages that a sender sends between Hello and End."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from deepprof.collectors.context_nodes import select_needed
from deepprof.collectors.trace import Trace
from deepprof.live.wire.checking import count_records
from deepprof.live.wire.decoding import encode_table
from deepprof.live.wire.errors import WireError
from deepprof.live.wire.limits import LIMITS, WireLimits
from deepprof.live.wire.naming import NewNames
from deepprof.live.wire.records import KINDS
from deepprof.live.wire.sent_tables import SENT_RECORDS, SENT_SIDES, as_sent
from deepprof.v1 import records_pb2 as pb

Ends = tuple[int, ...]
"""How many rows of each table come before a place in time."""
NOTHING: Ends = (0,) * len(SENT_RECORDS)
INTERRUPTED = "interrupted"  # reason of a gap at a break of the recording
HOST, SUMS = SENT_RECORDS.index("host_events"), SENT_RECORDS.index("context_sums")
RECORDS = 8192  # of a batch: some half a megabyte, so that the overhead per message and per table is negligible
Part = tuple[Ends, list[pb.Table]]


def cut(trace: Trace, *, records: int = RECORDS, limits: WireLimits = LIMITS) -> Iterator[pb.Batch]:
    """Yield the trace as batches of `records` rows, fewer where texts would make a message too large, or at a break.

    Devices come first, then the records of all tables in time order, with names and stacks at their first use. Put
    together again (`TraceAssembly`) the batches give the same trace, as far as it is sent (`as_sent`). Takes memory for
    a few batches. Raises `WireError` for a record that no message can hold.
    """
    cutter, names = _TraceCutter(as_sent(trace), limits), NewNames(trace.names, limits)
    first, at = 0, NOTHING
    for until, tables in cutter.parts(max(1, min(records, limits.batch_records))):
        pieces = list(names.take(cutter.names_used(at, until)))
        for piece in pieces[:-1]:
            yield _make_batch(first, cutter.next_start(at), piece)
        yield _make_batch(first, cutter.next_start(until), pieces[-1] if pieces else (names.sent, []), tables)
        first, at = first + sum(until) - sum(at), until
    for piece in names.take(len(trace.names)):
        yield _make_batch(first, cutter.next_start(at), piece)


def cut_with_gaps(trace: Trace, *, records: int = RECORDS) -> Iterator[pb.Batch | pb.Gap]:
    """Yield the batches of `cut`, and a gap of unknown size where the recording was interrupted. Raises `WireError`."""
    breaks = list(trace.breaks_ns)
    for batch in cut(trace, records=records):
        yield batch
        if breaks and breaks[0] <= batch.complete_until_ns:
            breaks = [time for time in breaks if time > batch.complete_until_ns]
            yield pb.Gap(first=batch.first + count_records(batch), reason=INTERRUPTED)


def _make_batch(
    first: int, complete_until_ns: int, names: tuple[int, list[str]], tables: Sequence[pb.Table] = ()
) -> pb.Batch:
    """Return a batch; `names` are the first id and the texts from that id on."""
    first_name, texts = names
    return pb.Batch(first=first, complete_until_ns=complete_until_ns, first_name=first_name, names=texts, tables=tables)


class _TraceCutter:
    """A trace's tables and their sorted start times."""

    def __init__(self, trace: Trace, limits: WireLimits) -> None:
        self.tables: list[pl.DataFrame] = [getattr(trace, table) for table in SENT_RECORDS]
        self.starts = [rows.to_series(0).to_numpy() for rows in self.tables]
        sides = {side: getattr(trace, side).drop_nulls("event") for side in SENT_SIDES}
        self.sides = {side: (rows, rows["event"].to_numpy()) for side, rows in sides.items()}
        self.breaks = [self.place_of(time) for time in trace.breaks_ns]
        self.devices, (self.stacks, self.unused) = trace.devices, _order_stacks(trace)
        self.first_use = self.stacks["row"].to_numpy()
        self.contexts = trace.context_nodes
        named = self.contexts["name_id"].max()
        self.context_names = named + 1 if isinstance(named, int) else 0
        self.most_nbytes = limits.message_nbytes // 4 * 3 - 1024  # the rest is for names
        self.most_rows = limits.batch_records

    def place_of(self, time_ns: int) -> Ends:
        """Return how many rows of every table start before a time."""
        return tuple(int(np.searchsorted(times, time_ns)) for times in self.starts)

    def parts(self, records: int) -> Iterator[Part]:
        """Yield the tables of every batch, and where the batch ends."""
        end: Ends = tuple(rows.height for rows in self.tables)
        for table in self.fit_rows("devices", self.devices):
            yield NOTHING, [table]
        since = NOTHING
        for until in [*self.breaks, end]:
            yield from self.fit_records(since, until, records)
            since = until
        for at in range(0, self.unused.height, records):
            for table in self.fit_rows("stacks", self.unused.slice(at, records)):
                yield end, [table]
        used = select_needed(self.contexts, self.tables[SUMS]["context"])["context"]
        unused = self.contexts["context"].filter(~self.contexts["context"].is_in(used.implode()))
        for table in self.fit_contexts(unused) if len(unused) else ():
            yield end, [table]

    def fit_records(self, since: Ends, until: Ends, records: int) -> Iterator[Part]:
        """Yield the records in sections of `records`; a section that is too large is halved. Raises `WireError`."""
        for end in _find_stretches(self.starts, since, until, records):
            tables = dict(self.select(since, end))
            encoded = [encode(table, rows) for table, rows in tables.items()]
            if self.fits(tables, encoded):
                yield end, encoded
            else:
                _refuse_single(sum(end) - sum(since), self.most_nbytes)
                yield from self.fit_records(since, end, (sum(end) - sum(since) + 1) // 2)
            since = end

    def fits(self, tables: Mapping[str, pl.DataFrame], encoded: Iterable[pb.Table]) -> bool:
        """Return whether tables fit into a message; contexts are more than their sums, or many small rows."""
        rows = sum(rows.height for rows in tables.values())
        return rows <= self.most_rows and sum(table.ByteSize() for table in encoded) <= self.most_nbytes

    def fit_rows(self, table: str, rows: pl.DataFrame) -> Iterator[pb.Table]:
        """Yield rows that are not records, in as many pieces as the message size requires. Raises `WireError`."""
        if not rows.height:
            return
        encoded = encode(table, rows)
        if encoded.ByteSize() <= self.most_nbytes:
            yield encoded
            return
        _refuse_single(rows.height, self.most_nbytes)
        for half in (rows.head(rows.height // 2), rows.slice(rows.height // 2)):
            yield from self.fit_rows(table, half)

    def fit_contexts(self, contexts: pl.Series) -> Iterator[pb.Table]:
        """Yield contexts with the paths to them, in as many pieces as messages require. Raises `WireError`."""
        rows = select_needed(self.contexts, contexts)
        encoded = encode("context_nodes", rows)
        if rows.height <= self.most_rows and encoded.ByteSize() <= self.most_nbytes:
            yield encoded
            return
        _refuse_single(len(contexts), self.most_nbytes)
        for half in (contexts.head(len(contexts) // 2), contexts.slice(len(contexts) // 2)):
            yield from self.fit_contexts(half)

    def select(self, since: Ends, until: Ends) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield the records between two places, and their side tables, stacks and contexts, each with its table."""
        for table, rows, a, b in zip(SENT_RECORDS, self.tables, since, until, strict=True):
            if a < b:
                yield table, rows.slice(a, b - a)
        for side, (rows, events) in self.sides.items():
            a, b = (ends[SENT_RECORDS.index(SENT_SIDES[side])] for ends in (since, until))
            first, last = np.searchsorted(events, (a, b)).tolist()
            if first < last:
                yield side, rows.slice(first, last - first).with_columns(pl.col("event") - a)
        first, last = np.searchsorted(self.first_use, (since[HOST], until[HOST])).tolist()
        if first < last:
            stacks = self.stacks.drop("row").slice(first, last - first)
            yield "stacks", stacks.sort("stack_id", maintain_order=True)
        if since[SUMS] < until[SUMS]:
            sums = self.tables[SUMS].slice(since[SUMS], until[SUMS] - since[SUMS])
            yield "context_nodes", select_needed(self.contexts, sums["context"])

    def names_used(self, since: Ends, until: Ends) -> int:
        """Return how many names the records between two places need: their highest name id plus one.

        The first sums of contexts, and tables without records, need those of all contexts.
        """
        named = [
            (rows, a, b) for rows, a, b in zip(self.tables, since, until, strict=True) if "name_id" in rows.columns
        ]
        of_contexts = self.context_names if since[SUMS] < until[SUMS] or since == until else 0
        of_rows = (int(rows["name_id"].slice(a, b - a).max()) + 1 if a < b else 0 for rows, a, b in named)  # type: ignore[arg-type]
        return max(of_contexts, *of_rows)

    def next_start(self, at: Ends) -> int:
        """Return the earliest start in ns of the records from `at` on; behind the last record, its start plus 1 ns."""
        after = [int(times[a]) for times, a in zip(self.starts, at, strict=True) if a < len(times)]
        return min(after) if after else max((int(times[-1]) + 1 for times in self.starts if len(times)), default=0)


def _find_stretches(starts: Sequence[NDArray[np.int64]], since: Ends, until: Ends, records: int) -> Iterator[Ends]:
    """Yield where each section of `records` rows ends, from `since` to `until`; the last may have fewer.

    `starts` are the sorted times of every table. Among rows of the same time those of an earlier table come first.
    Takes memory for one section."""
    at = since
    while at != until:
        rest = [times[a : min(a + records, b)] for times, a, b in zip(starts, at, until, strict=True)]
        taken = _count_taken(rest, records)
        at = tuple(a + int(more) for a, more in zip(at, taken, strict=True))
        yield at


def _count_taken(rest: Sequence[NDArray[np.int64]], records: int) -> Sequence[int]:
    """Return how many rows of every table are among the first `records` rows."""
    sizes = [len(times) for times in rest]
    if sum(sizes) <= records:
        return sizes
    if max(sizes) == sum(sizes):
        return [min(size, records) for size in sizes]
    sources = np.repeat(np.arange(len(rest)), sizes)
    order = np.argsort(np.concatenate(rest), kind="stable")[:records]
    counts: list[int] = np.bincount(sources[order], minlength=len(rest)).tolist()
    return counts


def encode(table: str, rows: pl.DataFrame) -> pb.Table:
    """Return rows as a message."""
    return pb.Table(kind=KINDS[table], arrow=encode_table(rows))


def _refuse_single(rows: int, nbytes: int) -> None:
    """Raise `WireError` for a single row, which cannot be halved."""
    if rows == 1:
        raise WireError("tables", f"one row takes more than {nbytes} bytes, all that a message has for it")


def _order_stacks(trace: Trace) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the stacks in the order of their first use, with its host event as `row`, and the stacks without a use."""
    row = trace.host_events["stack_id"].to_frame().with_row_index("row").drop_nulls()
    first = row.group_by("stack_id").agg(pl.col("row").min())
    stacks = trace.stacks.join(first, on="stack_id", how="left", maintain_order="left")
    unused = stacks.filter(pl.col("row").is_null()).drop("row")
    return stacks.drop_nulls("row").sort("row", maintain_order=True), unused
