"""Operators used as kernels while a job runs: the rules of `metrics/operators.py`, window by window.

A recording is examined as a whole; a stream cannot be, so two decisions are delayed here. Which thread trains is
decided once enough rows have come, and until then all rows wait. Whether an operator computes is decided once all rows
up to its end have come: a range of loading or compiling inside it may still follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from deepprof.collectors.times import TIME_LIMIT_NS
from deepprof.collectors.trace import ANNOTATIONS, HOST_EVENTS, empty_table
from deepprof.live.agent.threads import ProcessThreads
from deepprof.metrics.operators import (
    ATEN,
    MIN_OPERATORS,
    PLACE,
    Marks,
    Place,
    describe,
    find_operators,
    foreign_ranges,
    mark_names,
    marked,
    move_rows,
    on_thread,
    outermost,
    thread_times,
    untouched,
)

UNDECIDED_ROWS = 8192  # rows that wait until the thread is available: a few iterations of a small model
UNDECIDED_NS = 2_000_000_000  # how long they wait; a loop without a backward pass does not train
WAITING_ROWS = 65_536  # rows that wait for a long operator's end, as many as a message may have


@dataclass(frozen=True, slots=True, eq=False)
class OperatorSplit:
    """Rows to send on, sorted by start; no later row starts before `until_ns`. `notice` is for people, or empty.

    From a notice on the kernels are those of another thread, whose loop is not the one before.
    """

    tables: Mapping[str, pl.DataFrame]
    until_ns: int
    notice: str = ""


class OperatorKernels:
    """Turns one process's operators, which come in windows, into kernels: `split` for every window, finally `finish`.

    `note` is the Hello's note on this; empty while no thread is available, and nothing was emitted as a kernel.
    """

    def __init__(self) -> None:
        self.threads = ProcessThreads()
        self.place: Place | None = None
        self.note = ""
        self.marks: Marks = np.empty(0, np.uint8)
        self.host_events, self.annotations = empty_table(HOST_EVENTS), empty_table(ANNOTATIONS)
        self.foreign = foreign_ranges(self.host_events, self.annotations, self.marks)
        self.reach_ns: int | None = None
        self.until_ns = -TIME_LIMIT_NS

    def split(
        self, host_events: pl.DataFrame, annotations: pl.DataFrame, names: Sequence[str], until_ns: int
    ) -> OperatorSplit:
        """Return the rows that can be emitted now that all rows that start before `until_ns` have come.

        `names` are all texts by `name_id`; those of earlier calls stay. `until_ns` does not fall, and no row starts
        before the `until_ns` of the previous call.
        """
        self.read_names(names)
        self.host_events = _merge(self.host_events, host_events)
        self.annotations = _merge(self.annotations, annotations)
        self.until_ns = max(self.until_ns, until_ns)
        notice = self.follow(host_events)
        return self.give(self.find_end(), notice)

    def finish(self) -> OperatorSplit:
        """Return all waiting rows as if nothing followed: at the end, or before records that are missing.

        The kernels after it are of the same thread.
        """
        if self.place is None:
            self.settle(sure=True)
        given = self.give(2 * TIME_LIMIT_NS, "")
        self.reach_ns, self.foreign = None, self.foreign.clear()
        return OperatorSplit(given.tables, self.until_ns)

    def read_names(self, names: Sequence[str]) -> None:
        """Mark the names that are new."""
        new = names[len(self.marks) :]
        if new:
            self.marks = np.concatenate([self.marks, mark_names(pl.Series(list(new), dtype=pl.String))])

    def follow(self, host_events: pl.DataFrame) -> str:
        """Find the thread that trains, or another one that replaces it; return the notice on that, or nothing."""
        times = thread_times(outermost(find_operators(host_events, self.marks)), self.marks)
        if self.place is None:
            self.threads.take(times)
            self.settle(sure=self.threads.trains)
            return ""
        other = self.threads.find_other(self.place, times)
        if other is None:
            return ""
        notice = f"thread {self.place[1]} trains no longer; the operators of thread {other[1]} stand for kernels now"
        self.place, self.reach_ns = other, None
        return notice

    def settle(self, *, sure: bool) -> None:
        """Decide which thread trains if that is `sure`, or can wait no longer; not from fewer operators than a loop."""
        operators = find_operators(self.host_events, self.marks)
        if not marked(self.marks, operators, ATEN).any():
            return
        place = self.threads.best()
        own = outermost(on_thread(operators, place))
        if own.height < MIN_OPERATORS:
            return
        late = self.until_ns - int(own["start_ns"][0]) > UNDECIDED_NS
        if sure or late or self.waiting > UNDECIDED_ROWS:
            self.place, self.note = place, describe(place)

    @property
    def waiting(self) -> int:
        """Rows that wait."""
        return self.host_events.height + self.annotations.height

    def find_end(self) -> int:
        """Return the time before which everything can be decided."""
        if self.place is None:
            return self.until_ns if self.waiting > UNDECIDED_ROWS else self.find_first()
        if self.waiting > WAITING_ROWS:
            return self.until_ns
        own = on_thread(find_operators(self.host_events, self.marks), self.place)
        ends = np.maximum(own["end_ns"].to_numpy(), own["start_ns"].to_numpy() + 1)
        open_ones = own.filter(pl.Series(ends > self.until_ns, dtype=pl.Boolean))["start_ns"]
        return self.until_ns if open_ones.is_empty() else min(self.until_ns, int(open_ones[0]))

    def find_first(self) -> int:
        """Return where the first row that waits starts."""
        firsts = [int(rows["start_ns"][0]) for rows in (self.host_events, self.annotations) if rows.height]
        return min([self.until_ns, *firsts])

    def give(self, end_ns: int, notice: str) -> OperatorSplit:
        """Return all rows that start before `end_ns`, operators of the thread that trains as kernels."""
        early = pl.col("start_ns") < end_ns
        host, ranges = self.host_events.filter(early), self.annotations.filter(early)
        foreign = pl.concat([self.foreign, foreign_ranges(self.host_events, self.annotations, self.marks)])
        self.host_events, self.annotations = self.host_events.filter(~early), self.annotations.filter(~early)
        self.foreign = _reach_over(foreign, end_ns)
        tables = {"host_events": host, "annotations": ranges}
        if self.place is not None:
            tables = self.move(self.place, host, ranges, foreign)
        return OperatorSplit({name: rows for name, rows in tables.items() if rows.height}, end_ns, notice)

    def move(
        self, place: Place, host: pl.DataFrame, ranges: pl.DataFrame, foreign: pl.DataFrame
    ) -> dict[str, pl.DataFrame]:
        """Return the tables with the thread's outermost operators among the device events."""
        computing = untouched(on_thread(find_operators(host, self.marks), place), on_thread(foreign, place))
        moved = move_rows(host, ranges, outermost(computing, self.reach_ns), self.marks)
        if computing.height:
            reach = int(computing["end_ns"].max())  # type: ignore[arg-type]
            self.reach_ns = reach if self.reach_ns is None else max(reach, self.reach_ns)
        return {
            "device_events": moved.device_events,
            "host_events": moved.host_events,
            "annotations": moved.annotations,
        }


def _reach_over(ranges: pl.DataFrame, time_ns: int) -> pl.DataFrame:
    """Return one range for every thread that covers all its ranges across a time: rows that start then need it."""
    across = ranges.filter(pl.col("start_ns") < time_ns, pl.col("end_ns") > time_ns)
    return across.group_by(PLACE, maintain_order=True).agg(pl.col("start_ns").min(), pl.col("end_ns").max())


def _merge(waiting: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Return both together, sorted by start; of rows that start together those that waited come first."""
    return pl.concat([waiting, rows]).sort("start_ns", maintain_order=True)
