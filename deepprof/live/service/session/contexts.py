"""Sums of calling contexts of a rank, merged by minute; a minute is emitted once later ones have begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from deepprof.collectors.context_nodes import AMOUNT_LIMIT, order_by_depth, select_needed
from deepprof.live.service.context_windows import AMOUNTS, MINUTE_NS, TREE, ContextWindow, merge_trees
from deepprof.live.service.session.columns import FARTHEST_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

GRACE_NS = MINUTE_NS  # for which a minute waits for what comes late
LATE_NS = 3600 * 10**9  # what is older than the newest by this much is dropped
MOST_MINUTES = 256  # of one batch
MOST_TREE_ROWS = 1 << 17  # of one batch in all minutes, 10 MB: each has the whole paths to what it did
PART_ROWS = 1 << 14  # that wait to be merged


@dataclass(slots=True, eq=False)
class _OpenMinute:
    """The trees of a minute so far; names are the rank's ids. `folded` is how often contexts began that they lack."""

    parts: list[pl.DataFrame] = field(default_factory=list)
    rows: int = 0
    folded: int = 0

    def add(self, tree: pl.DataFrame, most: int) -> None:
        """Add a tree."""
        self.parts.append(tree)
        self.rows += tree.height
        if len(self.parts) > 1 and self.rows > PART_ROWS + self.parts[0].height:
            self.merge(most)

    def merge(self, most: int) -> None:
        """Make one tree of all parts."""
        tree, folded = merge_trees(self.parts, most)
        self.parts, self.rows, self.folded = [tree], tree.height, min(AMOUNT_LIMIT, self.folded + folded)

    def close(self, start_ns: int, texts: Sequence[str], most: int) -> ContextWindow:
        """Return the minute as a window, with the texts of its names; the minute itself is left as it is."""
        tree, folded = merge_trees(self.parts, most)
        names = pl.Series("name", [texts[number] for number in tree["name_id"]], dtype=pl.String)
        tree = tree.with_columns(names).select(TREE.names())
        return ContextWindow(start_ns, MINUTE_NS, tree, min(AMOUNT_LIMIT, self.folded + folded))


@dataclass(slots=True)
class SessionContexts:
    """The minutes of a rank that are not over, at most `most` contexts each, and those to give out."""

    most: int
    minutes: dict[int, _OpenMinute] = field(default_factory=dict)
    newest_ns: int = -FARTHEST_NS
    given: list[tuple[int, _OpenMinute]] = field(default_factory=list)

    def take(self, tables: Mapping[str, pl.DataFrame]) -> int:
        """Take the sums and contexts of a batch; return how many came too late, or with too many minutes at once."""
        sums, nodes = tables.get("context_sums"), tables.get("context_nodes")
        if sums is None or nodes is None or not sums.height:
            return 0
        rows = sums.with_columns(minute=pl.col("time_ns") // MINUTE_NS * MINUTE_NS)
        self.newest_ns = max(self.newest_ns, int(rows["minute"][-1]))
        minutes = rows["minute"].unique(maintain_order=True)[-MOST_MINUTES:]
        oldest = max(int(minutes[0]), self.newest_ns - LATE_NS)
        timely = rows.filter(pl.col("minute") >= oldest)
        room, left_out = MOST_TREE_ROWS, rows.height - timely.height
        for part in reversed(timely.partition_by("minute", maintain_order=True)):
            tree = _make_tree(nodes, part)
            room -= tree.height
            if room < 0:
                left_out += part.height
                continue
            self.minutes.setdefault(int(part["minute"][0]), _OpenMinute()).add(tree, self.most)
        self._seal(self.newest_ns - GRACE_NS)
        return left_out

    def _seal(self, before_ns: int) -> None:
        """Give out the minutes that began before a time."""
        for start in sorted(start for start in self.minutes if start < before_ns):
            self.given.append((start, self.minutes.pop(start)))

    def end(self) -> None:
        """Give out everything: nothing follows."""
        self._seal(2 * FARTHEST_NS)

    def take_given(self, texts: Sequence[str]) -> list[ContextWindow]:
        """Return the windows that are over since the last call; `texts` are the rank's names by id."""
        given, self.given = self.given, []
        return [minute.close(start, texts, self.most) for start, minute in given]

    def look(self, texts: Sequence[str]) -> Iterator[ContextWindow]:
        """Yield the minutes that are not over, as far as they are available."""
        for start, minute in sorted(self.minutes.items()):
            yield minute.close(start, texts, self.most)

    @property
    def nbytes(self) -> int:
        """The bytes held."""
        open_ones = [*self.minutes.values(), *(minute for _, minute in self.given)]
        return sum(int(part.estimated_size()) for minute in open_ones for part in minute.parts)


def _make_tree(nodes: pl.DataFrame, sums: pl.DataFrame) -> pl.DataFrame:
    """Return the contexts that `sums` need with what they did, callers first; names are ids."""
    amounts = sums.group_by("context").agg(pl.col(AMOUNTS).cast(pl.Int64).sum())
    needed = order_by_depth(select_needed(nodes, amounts["context"]))
    tree = needed.join(amounts, on="context", how="left", maintain_order="left")
    return tree.with_columns(pl.col(AMOUNTS).fill_null(0))
