"""What calling contexts did in windows of time: a tree per window, merged with others in bounded memory.

A tree is a table with a row per context, callers first. Amounts include callees but for devices, where they are what
the context launched itself. Beyond a number of contexts the first ones stay: what others launched counts for the
deepest context on their path that stays, and their time on the host is in that of their callers anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.context_nodes import AMOUNT_LIMIT
from deepprof.collectors.trace import CONTEXT_NODES

MINUTE_NS, HOUR_NS = 60 * 10**9, 3600 * 10**9
DAY_NS = 24 * HOUR_NS
STEPS_NS = (MINUTE_NS, 10 * MINUTE_NS, HOUR_NS, 6 * HOUR_NS, DAY_NS, 7 * DAY_NS, 28 * DAY_NS, 364 * DAY_NS)
AMOUNTS = ("count", "host_ns", "device_count", "device_ns")
OF_DEVICES = ("device_count", "device_ns")  # of these a context has only its own
NODE = ("context", "parent", "kind", "name", "line")
TREE = pl.Schema(
    {
        **{column: pl.String() if column == "name" else CONTEXT_NODES[column] for column in NODE},
        **dict.fromkeys(AMOUNTS, pl.Int64()),
    }
)
WINDOW_SUMS = pl.Schema(
    {"time_ns": pl.Int64(), "window_ns": pl.Int64(), "context": pl.UInt64(), **dict.fromkeys(AMOUNTS, pl.Int64())}
)
MOST_NODES = 1 << 15  # of the tree of a window
PENDING_ROWS = 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class ContextWindow:
    """The tree (`TREE`) of a rank's window, and how often contexts began that are over its limit."""

    start_ns: int
    length_ns: int
    tree: pl.DataFrame
    folded: int = 0

    def overlaps(self, start_ns: int, end_ns: int) -> bool:
        """Return whether some of it is in a time."""
        return self.start_ns < end_ns and self.start_ns + self.length_ns > start_ns


def merge_trees(parts: Sequence[pl.DataFrame], most: int = MOST_NODES) -> tuple[pl.DataFrame, int]:
    """Return one tree of all parts, and how often contexts began that it does not have.

    Parts are trees, or tables with other columns next to `context`, `parent` and the amounts, all with the same; the
    first row of a context states what it is.
    """
    rows = pl.concat(parts)
    others = [column for column in rows.columns if column not in {"context", *AMOUNTS}]
    grouped = rows.group_by("context", maintain_order=True)
    merged = grouped.agg(pl.col(others).first(), *(_sum_up(amount) for amount in AMOUNTS)).select(rows.columns)
    if merged.height <= most:
        return merged, 0
    return _fold(merged, most), count_folded(merged[most:])


def count_folded(rows: pl.DataFrame, *before: int) -> int:
    """Return how often the contexts of rows began, and `before` with it, at most the limit of amounts."""
    (count,) = rows.select(_sum_up("count")).row(0)
    return min(AMOUNT_LIMIT, sum(before, count))


def _sum_up(amount: str) -> pl.Expr:
    """Return the sum of amounts, at most the limit: sums of sums stay inside int64."""
    whole = pl.col(amount).sum()
    return (
        pl.when(pl.col(amount).cast(pl.Float64).sum() < AMOUNT_LIMIT).then(whole).otherwise(AMOUNT_LIMIT).alias(amount)
    )


def _fold(tree: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return the first `most` rows; what the others launched counts for the deepest context above them that stays."""
    kept, rest = tree.head(most), tree.slice(most)
    target = _find_kept(tree, most)
    found = target < most
    moved = {amount: kept[amount].to_numpy().copy() for amount in OF_DEVICES}
    for amount, values in moved.items():
        np.add.at(values, target[found], rest[amount].to_numpy()[found])
        np.minimum(values, AMOUNT_LIMIT, out=values)
    return kept.with_columns(pl.Series(amount, values) for amount, values in moved.items())


def _find_kept(nodes: pl.DataFrame, most: int) -> npt.NDArray[np.int64]:
    """Return for every context after the first `most` the place of the deepest of these above it; else the height."""
    places = pl.DataFrame({"context": nodes["context"]}).with_row_index("place")
    parents = nodes.select(context="parent").join(places, on="context", how="left", maintain_order="left")["place"]
    above = parents.fill_null(nodes.height).to_numpy().astype(np.int64)
    target = above[most:]
    while (beyond := (target >= most) & (target < nodes.height)).any():
        target = np.where(beyond, above[np.minimum(target, nodes.height - 1)], target)
    return target


def merge_windows(windows: Sequence[ContextWindow], start_ns: int, length_ns: int) -> ContextWindow:
    """Return one window of several within it: nothing but the time is lost, up to the limit of contexts."""
    tree, folded = merge_trees([window.tree for window in windows])
    return ContextWindow(start_ns, length_ns, tree, min(AMOUNT_LIMIT, folded + sum(each.folded for each in windows)))


def merge_hours(windows: Iterable[ContextWindow]) -> Iterator[ContextWindow]:
    """Yield the windows of every hour as one, in the order of time."""
    hours: dict[int, list[ContextWindow]] = {}
    for window in windows:
        hours.setdefault(window.start_ns // HOUR_NS * HOUR_NS, []).append(window)
    for hour, parts in sorted(hours.items()):
        yield merge_windows(parts, hour, HOUR_NS)


@dataclass(slots=True, eq=False)
class MergedWindows:
    """Windows of several ranks and times, merged to at most `most_nodes` contexts and `most_rows` sums of windows.

    Where there are more sums, windows become longer: `step_ns` is their least length. Where there are more still, there
    are fewer contexts.
    """

    most_nodes: int
    most_rows: int
    windows: int = 0
    folded: int = 0
    step_ns: int = STEPS_NS[0]
    _parts: list[pl.DataFrame] = field(default_factory=list)
    _rows: int = 0

    def add(self, window: ContextWindow) -> None:
        """Take a window."""
        times = {"time_ns": pl.lit(window.start_ns, pl.Int64), "window_ns": pl.lit(window.length_ns, pl.Int64)}
        self._parts.append(window.tree.with_columns(**times))
        self._rows += window.tree.height
        self.windows, self.folded = self.windows + 1, min(AMOUNT_LIMIT, self.folded + window.folded)
        if self._rows > PENDING_ROWS + 2 * self.most_rows:
            self._merge()

    def _merge(self) -> None:
        """Make one table of all parts that is within the limits."""
        rows = self._in_steps(pl.concat(self._parts))
        rows = self._fold(rows, self.most_nodes)
        for step in STEPS_NS:
            if rows.height > self.most_rows and step > self.step_ns:
                self.step_ns = step
                rows = self._in_steps(rows)
        if rows.height > self.most_rows:
            rows = self._fold(rows, max(1, self.most_rows // rows["time_ns"].n_unique()))
        self._parts, self._rows = [rows], rows.height

    def _in_steps(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the sums of every context in windows that are at least `step_ns` long."""
        start = pl.col("time_ns") // self.step_ns * self.step_ns
        rows = rows.with_columns(time_ns=start, window_ns=pl.max_horizontal("window_ns", pl.lit(self.step_ns)))
        grouped = rows.group_by("time_ns", "context", maintain_order=True)
        others = pl.col("parent", "kind", "name", "line").first()
        merged = grouped.agg(others, pl.col("window_ns").max(), *(_sum_up(amount) for amount in AMOUNTS))
        return merged.select(rows.columns)

    def _fold(self, rows: pl.DataFrame, most: int) -> pl.DataFrame:
        """Return the rows of the first `most` contexts, with what others launched, window by window."""
        nodes = rows.unique("context", keep="first", maintain_order=True)
        if nodes.height <= most:
            return rows
        target = _find_kept(nodes, most)
        moves = pl.DataFrame({"from": nodes["context"][most:], "place": target}).filter(pl.col("place") < most)
        stays = rows["context"].is_in(nodes["context"][:most].implode())
        rest = rows.filter(~stays)
        self.folded = count_folded(rest, self.folded)
        moved = rest.join(moves, left_on="context", right_on="from", maintain_order="left")
        into = nodes[moved["place"]].select(NODE)
        nothing = (pl.lit(0, pl.Int64).alias(amount) for amount in AMOUNTS if amount not in OF_DEVICES)
        added = moved.select(pl.exclude(*NODE, "place")).with_columns(*nothing).hstack(into)
        return self._in_steps(pl.concat([rows.filter(stays), added.select(rows.columns)]))

    def finish(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the contexts, callers first, and the sums of those that did something (`WINDOW_SUMS`)."""
        if not self._parts:
            return pl.DataFrame(schema=TREE).select(NODE), pl.DataFrame(schema=WINDOW_SUMS)
        self._merge()
        rows = self._parts[0]
        nodes = rows.unique("context", keep="first", maintain_order=True).select(NODE)
        used = rows.filter(pl.any_horizontal(pl.col(AMOUNTS) > 0)).select(WINDOW_SUMS.names())
        return nodes, used.sort("time_ns", maintain_order=True)
