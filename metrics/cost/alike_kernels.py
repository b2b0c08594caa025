"""Kernels whose launch was not recorded, and the recorded calls that they are like.

A recording begins while the device still does what was launched before: these kernels name no operator. Where programs
repeat themselves, the same kernels in the same order run again later, from calls that were recorded. A kernel is alike
if it has the same name, grid and block, and so have its neighbours on the stream: as many on every side as it needs
until all recorded kernels in such a place belong to calls with the same operands. A call is alike if all its kernels
are, and if it needed about as long as the recorded ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

WIDTHS = (1, 2, 4, 8, 16)  # neighbours on every side that are compared
MAX_TIMES = 2  # longer or shorter than all recorded calls
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # mixes numbers into a key of 64 bits


def find_alike(trace: Trace, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return `event`, `signature` and `alike` of the kernels of calls that are like recorded ones.

    `kernels` has a row for every kernel: `event` (its row of the device events), `length_ns`, and `call` and
    `signature`, null where the launch was not recorded. `alike` numbers the calls found.
    """
    if kernels["call"].null_count() in {0, kernels.height}:
        return _tabulate(kernels, *[np.zeros(0, np.int64)] * 3)
    rows = _sort_streams(trace, kernels)
    place, label = _label(rows)
    whole, alike = _number_calls(rows, place, label)
    place, label, alike = place[whole], label[whole], alike[whole]
    length_ns = np.bincount(alike, rows.length_ns[place], minlength=1)[alike]
    about = _are_as_long(rows, rows.signature[label], length_ns)
    return _tabulate(kernels, rows.row[place[about]], rows.row[label[about]], alike[about])


def _tabulate(kernels: pl.DataFrame, row: Int64s, label: Int64s, alike: Int64s) -> pl.DataFrame:
    """Return `event`, `signature` and `alike` of rows of `kernels`, which are like those in `label`."""
    found = kernels.select("event")[row].with_columns(kernels["signature"].gather(label), alike=pl.Series(alike))
    return found.cast({"alike": pl.Int64}).sort("event")


class _StreamKernels(Struct, frozen=True, eq=False):
    """Kernels stream by stream in the order of time, an element each.

    `row` is that of the table that they are from, `kind` is equal for equal name, grid and block. `call` and
    `signature` are -1 where there is none; `ordinal` is a kernel's place in its call, `count` how many the call has.
    """

    row: Int64s
    length_ns: Int64s
    stream: Int64s
    kind: Int64s
    call: Int64s
    signature: Int64s
    ordinal: Int64s
    count: Int64s


def _sort_streams(trace: Trace, kernels: pl.DataFrame) -> _StreamKernels:
    """Return the kernels as `_StreamKernels`.

    Grid and block count only where those without a launch have them too: on AMD they are recorded with the launch.
    """
    event = kernels["event"].to_numpy()
    places = trace.device_events.select("device", pl.col("context").cast(pl.Int64).fill_null(-1), "stream")[event]
    stream = _number(*places)
    order = np.lexsort((trace.device_events["start_ns"].to_numpy()[event], stream))
    call = _number_known(kernels["call"])
    shapes = _read_shapes(trace, event)
    shaped = bool(shapes[0][call < 0].all())
    kind = _number(trace.device_events["name_id"][event], *(shapes if shaped else []))
    columns = (kernels["length_ns"].to_numpy(), stream, kind, call, _number_known(kernels["signature"]))
    length, stream, kind, call, signature = (column[order] for column in columns)
    return _StreamKernels(order, length, stream, kind, call, signature, *_count_in_groups(call))


def _read_shapes(trace: Trace, event: Int64s) -> list[Int64s]:
    """Return grid and block of every event, 0 where they are not recorded."""
    found = []
    for name in ("grid", "block"):
        values = np.zeros(trace.device_events.height, np.int64)
        values[trace.launch_shapes["event"].to_numpy()] = trace.launch_shapes[name].fill_null(0).to_numpy()
        found.append(values[event])
    return found


def _number(*columns: pl.Series | Int64s) -> Int64s:
    """Return a number for every row, equal for rows that are equal in all columns; in the order of these."""
    number: Int64s = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        own = np.unique(column, return_inverse=True)[1]
        number = np.unique(number * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1]
    return number


def _number_known(column: pl.Series) -> Int64s:
    """Return a number for every value, equal for equal ones, -1 for null."""
    known = column.is_not_null().to_numpy()
    numbers = np.full(len(column), -1)
    numbers[known] = np.unique(column.drop_nulls().to_numpy(), return_inverse=True)[1]
    return numbers


def _count_in_groups(group: Int64s) -> tuple[Int64s, Int64s]:
    """Return the place of every element among those of its group, and how many these are."""
    order = np.argsort(group, kind="stable")
    _, first, numbers, counts = np.unique(group[order], return_index=True, return_inverse=True, return_counts=True)
    ordinal, count = np.empty(len(group), np.int64), np.empty(len(group), np.int64)
    ordinal[order] = np.arange(len(group)) - first[numbers]
    count[order] = counts[numbers]
    return ordinal, count


def _label(rows: _StreamKernels) -> tuple[Int64s, Int64s]:
    """Return the places of the kernels that are alike, and for each the place of a recorded one that it is like."""
    known, missing = np.flatnonzero(rows.call >= 0), np.flatnonzero(rows.call < 0)
    label, found = _number(rows.signature, rows.ordinal, rows.count), np.full(len(rows.call), -1)
    for width in WIDTHS:
        key = _key_neighbours(rows.kind, rows.stream, width)
        order = known[np.argsort(key[known], kind="stable")]
        keys, first = np.unique(key[order], return_index=True)
        one = np.minimum.reduceat(label[order], first) == np.maximum.reduceat(label[order], first)
        at = np.minimum(np.searchsorted(keys, key[missing]), len(keys) - 1)
        same = (keys[at] == key[missing]) & one[at]
        found[missing[same]] = order[first[at[same]]]
        missing = missing[~same]
    place = np.flatnonzero(found >= 0)
    return place, found[place]


def _key_neighbours(kinds: Int64s, streams: Int64s, width: int) -> UInt64s:
    """Return for every kernel a key of its kind and of its neighbours' on the stream; equal keys mean equal kinds."""
    key, numbers = np.zeros(len(kinds), np.uint64), kinds.astype(np.uint64) + np.uint64(1)
    for shift in range(-width, width + 1):
        place = np.clip(np.arange(len(kinds)) + shift, 0, max(len(kinds) - 1, 0))
        inside = (place == np.arange(len(kinds)) + shift) & (streams[place] == streams)
        key = (key ^ np.where(inside, numbers[place], np.uint64(0))) * FACTOR
        key ^= key >> np.uint64(29)
    return key


def _number_calls(rows: _StreamKernels, place: Int64s, label: Int64s) -> tuple[Bools, Int64s]:
    """Return which of the labelled kernels make up whole calls, and the number of each one's call.

    `label` is the place of a recorded kernel that the one at `place` is like.
    """
    ordinal, signature = rows.ordinal[label], rows.signature[label]
    begun = _count_begun(_number(rows.stream[place], signature), ordinal == 0)
    alike = _number(rows.stream[place], signature, begun)
    expected, size = _count_in_groups(alike)
    fits = (ordinal == expected) & (rows.count[label] == size)
    whole = np.bincount(alike, ~fits, minlength=1) == 0
    return whole[alike], alike


def _count_begun(group: Int64s, begins: Bools) -> Int64s:
    """Return for every element how many of its group have begun a call, up to it."""
    order = np.argsort(group, kind="stable")
    total = np.cumsum(begins[order])
    _, first, numbers = np.unique(group[order], return_index=True, return_inverse=True)
    before: Int64s = (total - begins[order])[first]
    begun = np.empty(len(group), np.int64)
    begun[order] = total - before[numbers]
    return begun


def _are_as_long(rows: _StreamKernels, signature: Int64s, length_ns: Int64s) -> Bools:
    """Return whether calls of these signatures and lengths used about as long as the recorded ones; -1 never does."""
    known = np.flatnonzero((rows.call >= 0) & (rows.signature >= 0))
    calls, first, numbers = np.unique(rows.call[known], return_index=True, return_inverse=True)
    lengths = np.bincount(numbers, rows.length_ns[known], minlength=len(calls))
    of_calls = rows.signature[known][first]
    many = max(0, int(rows.signature.max(initial=0))) + 1
    least, most = np.full(many, np.inf), np.zeros(many)
    np.minimum.at(least, of_calls, lengths)
    np.maximum.at(most, of_calls, lengths)
    about: Bools = (length_ns * MAX_TIMES >= least[signature]) & (length_ns <= most[signature] * MAX_TIMES)
    return about & (signature >= 0)
