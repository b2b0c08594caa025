"""Batches of Kineto events sorted by kind into columns, which are taken out one at a time.

A trace has more columns than any one kind of event fills, and many hold one value in many rows: a piece of a column
with a single value is stored as that value only. Times are still microseconds as written: `ts` and `dur`, Float64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.importers.kineto.batches import INTEGERS, MISSING, ROW
from deepprof.collectors.importers.kineto.kinds import DROPPED_KINDS
from deepprof.collectors.importers.kineto.labels import KINDS, Labels
from deepprof.collectors.importers.launch_shapes import volume_of
from deepprof.collectors.importers.value_columns import integers, numbers, texts, unsigned

if TYPE_CHECKING:
    import numpy.typing as npt

    from deepprof.collectors.importers.kineto.batches import EventBatch
    from deepprof.collectors.importers.kineto.kineto_schema import KinetoEvent

    Array = npt.NDArray[Any]

UNSIGNED = {
    *("external_id", "old_external_id", "correlation", "graph_node", "flops", "address"),
    *("allocated_nbytes", "reserved_nbytes"),
}
PLACES = {place: at for at, place in enumerate(INTEGERS)}
MISSING_SMALL = -(2**31)  # means `MISSING` in a column of int32
THREAD = {"pid": "pid", "tid": "tid"}
LAUNCHED = {
    **THREAD,
    "external_id": "args.external_id",
    "old_external_id": "args.old_external_id",
    "correlation": "args.correlation",
}
PLACED = {"device": "args.device", "stream": "args.stream"}
DEVICE = {
    **LAUNCHED,
    **PLACED,
    "context": "args.context",
    "nbytes": "args.nbytes",
    "graph_node": "args.graph_node",
}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "kernel": DEVICE,
    "memcpy": DEVICE,
    "memset": DEVICE,
    "sync": DEVICE,
    "op": {
        **THREAD,
        "external_id": "args.external_id",  # operators have always had this spelling
        "sequence": "args.sequence",
        "forward_thread": "args.forward_thread",
        "flops": "args.flops",
    },
    "runtime": LAUNCHED,
    "python": {
        **THREAD,
        "span_id": "args.span_id",
        "parent_id": "args.parent_id",
        "module_id": "args.module_id",
    },
    "overhead": THREAD,
    "host annotation": THREAD,
    "device annotation": {**THREAD, **PLACED},
    "memory": {
        **THREAD,
        "device_type": "args.device_type",
        "device_id": "args.device_id",
        "nbytes": "args.changed",
        "address": "args.address",
        "allocated_nbytes": "args.allocated",
        "reserved_nbytes": "args.reserved",
    },
}


def _json_texts(values: Sequence[Any]) -> pl.Series:
    """Return raw JSON `values` as String, null for `null`; equal texts are stored once: operands repeat."""
    places: dict[bytes, int] = {}
    rows = [places.setdefault(bytes(value), len(places)) for value in values]
    decoded = [str(text, errors="replace") for text in places]
    distinct = pl.Series([None if text == "null" else text for text in decoded], dtype=pl.String)
    return distinct.gather(pl.Series(rows, dtype=pl.UInt32))


def _volumes(values: Sequence[Any]) -> pl.Series:
    """Return the products of the sides that raw JSON `values` list, as Int64; each distinct list is read once."""
    known = {text: volume_of(text) for text in {bytes(value) for value in values}}
    return pl.Series([known[bytes(value)] for value in values], dtype=pl.Int64)


Extra = Mapping[str, tuple[str, Callable[[Sequence[Any]], pl.Series]]]
COLLECTIVE: Extra = {
    "collective": ("collective", texts),
    "dtype": ("dtype", texts),
    "in_elements": ("in_elements", unsigned),
    "out_elements": ("out_elements", unsigned),
    "group": ("group", texts),
    "group_size": ("group_size", unsigned),
    "sequence": ("collective_sequence", unsigned),
}
DETAILS: Extra = {
    "dims": ("dims", _json_texts),
    "old_dims": ("old_dims", _json_texts),
    "dtypes": ("dtypes", _json_texts),
    "values": ("values", _json_texts),
    "strides": ("strides", _json_texts),
    "stack": ("stack", texts),
}
LAUNCH: Extra = {
    "registers": ("registers", unsigned),
    "shared_nbytes": ("shared_nbytes", unsigned),
    "grid": ("grid", _volumes),
    "block": ("block", _volumes),
}


class EventColumns:
    """Collects batches of events into columns by kind.

    `heights` counts the events of each kind, `read` all events, `tally` those of kinds that no table holds, `foreign`
    those of other accelerators by category.
    """

    def __init__(self, *, details: bool) -> None:
        self.read = 0
        self.tally = Tally()
        self.foreign: Counter[str] = Counter()
        self.heights: Counter[str] = Counter()
        self.labels = Labels()
        self.pieces: dict[tuple[str, str], list[tuple[Array, int]]] = {}  # values, or one for all, and the height
        self.extra_columns = {"kernel": {**COLLECTIVE, **LAUNCH}, "op": DETAILS} if details else {"kernel": COLLECTIVE}
        self.extra_pieces: dict[str, list[pl.DataFrame]] = {}

    def add(self, batch: EventBatch, keys: Sequence[bytes] = (), names: Sequence[bytes] = ()) -> None:
        """Add `batch`, whose rows' `key` and `name` index `keys` and `names`."""
        self.read += batch.count
        rows, odd = batch.rows, batch.odd
        if rows is None or odd is None:
            rows, odd = np.zeros(batch.count, ROW), np.arange(batch.count)
        codes, ids = np.empty(len(rows), np.uint8), np.empty(len(rows), np.int64)
        plain = np.delete(np.arange(len(rows)), odd) if len(odd) else slice(None)
        codes[plain], ids[plain] = self.labels.of_rows(rows[plain], keys, names)
        codes[odd], ids[odd] = self.labels.of_events(batch.events)
        for code in np.unique(codes).tolist():
            at, events = np.flatnonzero(codes == code), np.flatnonzero(codes[odd] == code)
            where = np.searchsorted(at, odd[events])
            self.add_kind(KINDS[code], rows[at], ids[at], where, [batch.events[event] for event in events.tolist()])

    def add_kind(self, kind: str, rows: Array, ids: Array, where: Array, events: list[Any]) -> None:
        """Add `rows` of one kind; the rows at `where` are still empty and are filled from `events`."""
        if kind in DROPPED_KINDS:
            self.drop(kind, np.delete(rows["key"], where), events)
            return
        if events:
            _fill(rows, where, events, kind)
            self.add_extra(kind, where, events)
        self.heights[kind] += len(rows)
        self.store(kind, "ts", rows["ts"])
        self.store(kind, "dur", rows["dur"])
        self.store(kind, "name_id", ids.astype(np.uint32))
        for column, place in COLUMNS[kind].items():
            self.store(kind, column, rows["integers"][:, PLACES[place]])

    def drop(self, kind: str, keys: Array, events: list[Any]) -> None:
        """Count rows with these `keys`, and `events`, as dropped."""
        self.tally.dropped[kind] += len(keys) + len(events)
        if kind == "other-device":
            self.foreign.update(self.labels.categories[key] for key in keys.tolist())
            self.foreign.update(event.cat for event in events)

    def add_extra(self, kind: str, where: Array, events: list[KinetoEvent]) -> None:
        """Store the fields that only a few `events` of a kind have, with the position of each among its kind."""
        columns = self.extra_columns.get(kind, {})
        args = [event.args for event in events]
        found = {name: convert([*map(attrgetter(place), args)]) for name, (place, convert) in columns.items()}
        rows = pl.DataFrame({"position": pl.Series(where + self.heights[kind]), **found})
        rows = rows.filter(pl.any_horizontal(pl.exclude("position").is_not_null())) if found else rows.clear()
        if rows.height:
            self.extra_pieces.setdefault(kind, []).append(rows)

    def store(self, kind: str, column: str, values: Array) -> None:
        """Append `values` to a column, as one value if they are all the same."""
        same = bool((values == values[0]).all())
        self.pieces.setdefault((kind, column), []).append((_narrow(values[:1] if same else values), len(values)))

    def take(self, kind: str, column: str) -> pl.Series:
        """Return a column of the events of `kind`, in the order of the document, and remove it."""
        pieces = self.pieces.pop((kind, column))
        whole = np.concatenate([np.broadcast_to(_widen(values), height) for values, height in pieces])
        return (_nullable(whole, column in UNSIGNED) if whole.dtype == np.int64 else pl.Series(whole)).alias(column)

    def has(self, kind: str, column: str) -> bool:
        """Return whether `take` would return a column."""
        return (kind, column) in self.pieces

    def times_us(self) -> Array:
        """Return the `ts` of all events as float64, in no order."""
        pieces = [piece for (_, column), pieces in self.pieces.items() if column == "ts" for piece in pieces]
        return np.concatenate([np.empty(0), *(np.broadcast_to(values, height) for values, height in pieces)])

    def peek(self, kind: str, column: str) -> pl.Series:
        """Return a column as `take` does, and keep it."""
        pieces = self.pieces[kind, column]
        values = self.take(kind, column)
        self.pieces[kind, column] = pieces
        return values

    def frame(self, kind: str) -> pl.DataFrame:
        """Return the remaining columns of the events of `kind`, and remove them; an empty frame if there are none."""
        columns = [column for of, column in self.pieces if of == kind]
        return pl.DataFrame([self.take(kind, column) for column in columns])

    def extra_rows(self, kind: str) -> pl.DataFrame:
        """Return the details that only some events of `kind` have: a column each, and `position` among their kind."""
        pieces = self.extra_pieces.get(kind)
        return pl.concat(pieces) if pieces else pl.DataFrame(schema={"position": pl.Int64})


def _fill(rows: Array, where: Array, events: Sequence[KinetoEvent], kind: str) -> None:
    """Write the fields of `events`, which are of one kind, into `rows` at `where`."""
    args = [event.args for event in events]  # once: two look-ups per value would cost four times as much
    rows["ts"][where] = numbers([event.ts for event in events])
    rows["dur"][where] = numbers([event.dur for event in events])
    for column, place in COLUMNS[kind].items():
        values = [*map(attrgetter(place.removeprefix("args.")), args if "." in place else events)]
        found = unsigned(values).reinterpret(signed=True) if column in UNSIGNED else integers(values)
        rows["integers"][where, PLACES[place]] = found.fill_null(MISSING).to_numpy()


def _narrow(values: Array) -> Array:
    """Return a copy of `values`, int64 as int32 if all fit: most are counters, and all stay in memory for a while."""
    if values.dtype != np.int64:
        return values.copy()
    missing = values == MISSING
    small = np.where(missing, MISSING_SMALL, values.astype(np.int32))
    fits = missing | ((small == values) & (small != MISSING_SMALL))
    return small.astype(np.int32) if fits.all() else values.copy()


def _widen(values: Array) -> Array:
    """Return the values that `_narrow` was given."""
    if values.dtype != np.int32:
        return values
    return np.where(values == MISSING_SMALL, MISSING, values.astype(np.int64))


def _nullable(values: Array, is_unsigned: bool) -> pl.Series:
    """Return int64 `values` as Int64 or UInt64, null where they are `MISSING`."""
    series = pl.Series(values)
    missing = values == MISSING
    if missing.all():
        series = pl.repeat(None, len(values), dtype=pl.Int64, eager=True)
    elif missing.any():
        series = series.set(pl.Series(missing), None)
    return series.reinterpret(signed=False) if is_unsigned else series
