"""The hottest part of a tree of contexts as lines of text: one a frame, further in for what is within."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.names.short import shorten as shorten_kernel
from deepprof.metrics.breakdown.parts import IDLE_PARTS
from deepprof.metrics.contexts.backward import ENGINE as EVALUATE
from deepprof.metrics.contexts.frames import write_line
from deepprof.metrics.contexts.paths import read_places, spread
from deepprof.metrics.contexts.views import FlameTree
from deepprof.render.plain import shorten
from deepprof.render.units import format_bytes, format_duration, format_ratio

if TYPE_CHECKING:
    from deepprof.render.page import TextPage

LEAST = 0.005  # of the whole: what is smaller is left out, with its number and sum
ALIKE = 0.995  # of the frame around: a frame that takes nearly all of it is on its line
ENGINE = f"{EVALUATE}: "  # is before the name of a backward node
ON_DEVICE = {"kernel", "graph"}
INDENT = 2
BAR = 10  # columns
LEAST_ROOM = 12  # columns for names, on the narrowest terminal
JOINT = " › "
Format = Callable[[float], str]


class FlameMeasure(Struct, frozen=True):
    """What a flame divides up: its name, its unit, the columns of contexts that it adds up, and how it is written."""

    title: str
    unit: str  # as pprof names it
    columns: tuple[str, ...]
    write: Format

    @property
    def own(self) -> pl.Expr:
        """What a context took itself."""
        return pl.sum_horizontal(pl.col(f"own_{column}") for column in self.columns)

    @property
    def whole(self) -> pl.Expr:
        """The same with all within."""
        return pl.sum_horizontal(pl.col(self.columns))


MEASURES: Mapping[str, FlameMeasure] = MappingProxyType(
    {
        "device": FlameMeasure("device time", "nanoseconds", ("device_ns",), format_duration),
        "host": FlameMeasure("host time", "nanoseconds", ("host_ns",), format_duration),
        "idle": FlameMeasure("idle time of the device", "nanoseconds", IDLE_PARTS, format_duration),
        "launches": FlameMeasure("launches", "count", ("launches",), "{:,.0f}".format),
        "bytes": FlameMeasure("bytes copied", "bytes", ("copied_nbytes",), format_bytes),
    }
)
# Of contexts that a running job sends: the `device_count` of `launches` is of events, of which a graph has many.
SENT_MEASURES: Mapping[str, FlameMeasure] = MappingProxyType(
    {
        "device": MEASURES["device"],
        "host": MEASURES["host"],
        "launches": FlameMeasure("kernels and copies launched", "count", ("device_count",), "{:,.0f}".format),
    }
)


def derive_own(contexts: pl.DataFrame, taken: pl.DataFrame) -> pl.DataFrame:
    """Return contexts with their `own` part of `whole`, which `taken` has for some `context`, with all within."""
    known = contexts.join(taken, on="context", how="left", maintain_order="left")
    known = known.with_columns(pl.col("whole").fill_null(0))
    (parent, _), whole = read_places(known), known["whole"].to_numpy()
    own = whole.copy()
    np.subtract.at(own, parent[1:], whole[1:])
    return known.with_columns(own=pl.Series(own))


def keep_found(contexts: pl.DataFrame, text: str) -> pl.DataFrame:
    """Return contexts with `own` 0 where neither they nor what is around them has a name or file with `text`."""
    has = pl.any_horizontal(pl.col("name", "file").str.to_lowercase().str.contains(text.lower(), literal=True))
    found = spread(contexts.select(has.fill_null(value=False)).to_series().to_numpy(), *read_places(contexts))
    return contexts.with_columns(own=pl.when(pl.Series(found)).then("own").otherwise(0))


def label(frame: dict[str, Any]) -> str:
    """Return a frame as people read it: of a Python function its place, of a kernel its short name."""
    name = shorten_kernel(frame["name"]) if frame["kind"] in ON_DEVICE else frame["name"].removeprefix(ENGINE)
    return str(name) if frame["file"] is None else write_line(name, frame["file"], frame["line"])


class _FlameLine(Struct, frozen=True):
    """A line: how far in, the frames on it, what they need, and how many smaller ones it represents (0: itself)."""

    level: int
    nodes: tuple[int, ...]
    value: int
    others: int = 0


def _list_lines(tree: FlameTree, depth: int) -> Iterator[_FlameLine]:
    """Yield the lines of a tree, of what is in one frame the largest first; `depth` is the number of levels."""
    yield from _FlameWalk(tree, depth).below(0, 0)


class _FlameWalk:
    """Goes through a tree from its first frame on, which is around all and has no line."""

    def __init__(self, tree: FlameTree, depth: int) -> None:
        order = np.lexsort((-tree.value, tree.parent))
        self.tree, self.depth, self.order = tree, depth, order[(order > 0) & (tree.value[order] > 0)]
        self.begins = np.searchsorted(tree.parent[self.order], np.arange(len(tree) + 1))
        self.least = LEAST * int(tree.value[0])

    def below(self, node: int, level: int) -> Iterator[_FlameLine]:
        """Yield the lines of what is in a frame."""
        inner, value = self.within(node), self.tree.value
        shown = inner[value[inner] >= self.least]
        for child in shown.tolist():
            chain = self.follow(child)
            yield _FlameLine(level, chain, int(value[child]))
            if level + 1 < self.depth:
                yield from self.below(chain[-1], level + 1)
        rest = inner[len(shown) :]
        if (sum_of_rest := int(value[rest].sum())) >= self.least and len(rest):
            yield _FlameLine(level, (), sum_of_rest, len(rest))

    def within(self, node: int) -> npt.NDArray[np.int64]:
        """Return what is directly in a frame, the largest first."""
        return self.order[self.begins[node] : self.begins[node + 1]]

    def follow(self, node: int) -> tuple[int, ...]:
        """Return a frame and those within each other that take nearly all of it."""
        chain = [node]
        while len(inner := self.within(chain[-1])) and self.tree.value[inner[0]] >= ALIKE * self.tree.value[chain[-1]]:
            chain.append(int(inner[0]))
        return tuple(chain)


def draw_flame(page: TextPage, tree: FlameTree, measure: FlameMeasure, depth: int, search: str = "") -> None:
    """Draw the hottest frames of a tree: lines of share, value, bar and frames, `depth` of them within each other.

    A line with frames that contain the text `search` begins with the first of them.
    """
    whole, labels = int(tree.value[0]), [*map(label, tree.frames.iter_rows(named=True))]
    for line in _list_lines(tree, depth):
        share = line.value / whole
        head = f"{format_ratio(share):>7} {measure.write(line.value):>9} {draw_bar(share)} "
        room = page.width - len(head) - INDENT * line.level
        names = [labels[node] for node in line.nodes] or [f"{line.others} smaller ones"]
        found = next((at for at, name in enumerate(names) if search.lower() in name.lower()), 0)
        page.draw(head + " " * INDENT * line.level + join_names(names[found:], max(room, LEAST_ROOM)))


def draw_bar(share: float) -> str:
    """Return a bar of `BAR` columns, filled by a share; what is there at all shows."""
    filled = max(1, round(share * BAR))
    return "█" * filled + " " * (BAR - filled)


def join_names(names: list[str], room: int) -> str:
    """Return the names of a line in `room` columns; of too many the last ones are most telling."""
    for dropped in range(max(1, len(names) - 1)):
        kept = names[:1] + ([f"{dropped} more"] if dropped else []) + names[1 + dropped :]
        if len(text := JOINT.join(kept)) <= room:
            return text
    return shorten(JOINT.join((names[0], names[-1])) if len(names) > 1 else names[0], room)
