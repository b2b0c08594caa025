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
from deepprof.collectors.importers.kineto.batches import INTEGERS, JSON_TEXTS, MISSING, ROW, EventBatch, EventReader
from deepprof.collectors.importers.kineto.json_texts import LEFT_OUT, JsonTexts
from deepprof.collectors.importers.kineto.kinds import DROPPED_KINDS
from deepprof.collectors.importers.kineto.kineto_schema import KinetoEvent
from deepprof.collectors.importers.kineto.labels import KINDS, Labels
from deepprof.collectors.importers.value_columns import integers, numbers, texts, unsigned

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]

UNSIGNED = {
    *("external_id", "old_external_id", "correlation", "graph_node", "flops", "address"),
    *("allocated_nbytes", "reserved_nbytes", "registers", "shared_nbytes"),
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


OPERANDS = {name: f"args.{name}" for name in ("dims", "old_dims", "dtypes", "values", "strides")}
STACK = {"stack": "args.stack"}
GRID = {"grid": "args.grid", "block": "args.block"}
LAUNCH = {"registers": "args.registers", "shared_nbytes": "args.shared_nbytes"}
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


class EventColumns:
    """Collects batches of events into columns by kind.

    `heights` counts the events of every kind, `read` all events, `tally` those of kinds that no table holds,
    `foreign` those of other accelerators by category, `left_out` the texts beyond the limit of `json`. With `shapes`
    there are the columns of operands and launch shapes, with `details` that of call stacks: numbers of `json`."""

    def __init__(self, *, details: bool = False, shapes: bool = True) -> None:
        self.read = 0
        self.tally = Tally()
        self.foreign: Counter[str] = Counter()
        self.heights: Counter[str] = Counter()
        self.labels = Labels()
        self.pieces: dict[tuple[str, str], list[tuple[Array, int]]] = {}  # values, or one for all, and the height
        self.extra_pieces: dict[str, list[pl.DataFrame]] = {}
        self.json, self.left_out = JsonTexts(), 0
        self.json_columns = {
            "op": {**(OPERANDS if shapes else {}), **(STACK if details else {})},
            "kernel": GRID if shapes else {},
        }
        self.columns = {**COLUMNS, "kernel": {**DEVICE, **(LAUNCH if shapes else {})}}

    @property
    def wanted(self) -> list[str]:
        """Those of `JSON_TEXTS` that the columns are made from."""
        return [place for columns in self.json_columns.values() for place in columns.values()]

    def add(self, batch: EventBatch, reader: EventReader) -> None:
        """Add `batch`, which `reader` has read."""
        self.read += batch.count
        self.json.learn(reader.json)
        rows, odd = batch.rows, batch.odd
        if rows is None or odd is None:
            rows, odd = np.zeros(batch.count, ROW), np.arange(batch.count)
        codes, ids = np.empty(len(rows), np.uint8), np.empty(len(rows), np.int64)
        plain = np.delete(np.arange(len(rows)), odd) if len(odd) else slice(None)
        codes[plain], ids[plain] = self.labels.of_rows(rows[plain], reader.keys, reader.names)
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
            _fill(rows, where, events, self.columns[kind])
            self.add_extra(kind, where, events)
        self.heights[kind] += len(rows)
        self.store(kind, "ts", rows["ts"])
        self.store(kind, "dur", rows["dur"])
        self.store(kind, "name_id", ids.astype(np.uint32))
        for column, place in self.columns[kind].items():
            self.store(kind, column, rows["integers"][:, PLACES[place]])
        for column, place in self.json_columns.get(kind, {}).items():
            self.store(kind, column, self.number_texts(rows, where, events, place))

    def number_texts(self, rows: Array, where: Array, events: list[Any], place: str) -> Array:
        """Return the number of every row's text, of the `events` at `where` as they state it."""
        numbers: Array = self.json.of_reader[rows["json"][:, JSON_TEXTS.index(place)]]
        if events:
            texts = map(attrgetter(place), events)
            numbers[where] = [self.json.number(bytes(text)) for text in texts]
        self.left_out += int(np.count_nonzero(numbers == LEFT_OUT))
        return numbers

    def drop(self, kind: str, keys: Array, events: list[Any]) -> None:
        """Count rows with these `keys`, and `events`, as dropped."""
        self.tally.dropped[kind] += len(keys) + len(events)
        if kind == "other-device":
            self.foreign.update(self.labels.categories[key] for key in keys.tolist())
            self.foreign.update(event.cat for event in events)

    def add_extra(self, kind: str, where: Array, events: list[KinetoEvent]) -> None:
        """Store the fields that only a few `events` of a kind have, with the position of every among its kind."""
        columns = COLLECTIVE if kind == "kernel" else {}
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
        """Return what only some events of `kind` have: a column each, and `position` among their kind."""
        pieces = self.extra_pieces.get(kind)
        return pl.concat(pieces) if pieces else pl.DataFrame(schema={"position": pl.Int64})


def _fill(rows: Array, where: Array, events: Sequence[KinetoEvent], columns: Mapping[str, str]) -> None:
    """Write the fields of `events`, which are of a kind with these columns, into `rows` at `where`."""
    args = [event.args for event in events]  # once: two look-ups per value would cost four times as much
    rows["ts"][where] = numbers([event.ts for event in events])
    rows["dur"][where] = numbers([event.dur for event in events])
    for column, place in columns.items():
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
