"""The strip: one bar per iteration, as high as the iteration is long; on a small width a bar covers several."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from deepprof.render.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

__all__ = ["draw_strip"]

T = TypeVar("T")

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-=+*%#"
WARMUP, INCOMPLETE, NO_TIME = "w", "i", "?"


def draw_strip(iterations: pl.DataFrame, width: int, *, ascii_only: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the strip's lines with their styles: the bars, the marks under them, and what they mean.

    `iterations` has the schema `metrics.iteration.ITERATIONS`. A cell that covers several iterations shows the longest
    of them, so that a single slow one is never hidden. Bars start at zero. Yields nothing without iterations.
    """
    if not iterations.height:
        return
    times, marks = read_times(iterations), read_marks(iterations)
    per_cell = -(-len(times) // max(width, 1))
    cells = [max(group, key=lambda time: time or 0) for group in split(times, per_cell)]
    longest = max((cell for cell in cells if cell), default=0)
    yield "".join(pick_block(cell, longest, ascii_only) for cell in cells), "cyan"
    under = "".join(next((mark for mark in group if mark != " "), " ") for group in split(marks, per_cell))
    if under.strip():
        yield under.rstrip(), "dim"
    yield explain(per_cell, longest, under), "dim"


def read_times(iterations: pl.DataFrame) -> list[int | None]:
    """Return each iteration's own time: to the next one's start only where that follows directly."""
    return list((iterations["busy_ns"] + iterations["idle_ns"]).to_list())


def read_marks(iterations: pl.DataFrame) -> list[str]:
    """Return the mark of each iteration, a blank for an ordinary one."""
    flags = zip(iterations["complete"].to_list(), iterations["warmup"].to_list(), strict=True)
    return [INCOMPLETE if not complete else WARMUP if warmup else " " for complete, warmup in flags]


def split(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield `values` in groups of `size`."""
    return (values[at : at + size] for at in range(0, len(values), size))


def pick_block(time: int | None, longest: int, ascii_only: bool) -> str:
    """Return the bar of one cell."""
    blocks = ASCII_BLOCKS if ascii_only else BLOCKS
    if time is None or not longest:
        return NO_TIME
    return blocks[max(0, -(-time * len(blocks) // longest) - 1)]


def explain(per_cell: int, longest: int, marks: str) -> str:
    """Return what the cells, their height and the marks mean."""
    cell = "1 iteration" if per_cell == 1 else f"the longest of {per_cell} iterations"
    words = [f"each bar is {cell}, the highest {format_duration(longest)}"]
    words += [f"{mark} = {word}" for mark, word in ((WARMUP, "warm-up"), (INCOMPLETE, "incomplete")) if mark in marks]
    return ", ".join(words)
