"""Calling contexts of one rank: from the threads down, or from what took the time up to its callers."""

from __future__ import annotations

from typing import Literal

import msgspec


class FlameMeasureEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What frames are measured by."""

    name: str
    title: str
    unit: Literal["ns", "bytes", "count"]


class FlameDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Frames, columns; the first is around all, parents stand before their children.

    `value[m][f]` is what frame `f` took by measure `m`, with all within it. `name`, `kind` and `file` are numbers of
    `strings`, -1 for none; `line` -1 for none. `finding` is the number of the finding that is about it, -1 for none.
    With `before`, of the same shape, two runs are compared: `value` is B's, `before` A's. `left_out` frames are too
    small; what they took is their parents' own.
    """

    schema: Literal["deepprof.view.flame/1"] = "deepprof.view.flame/1"
    direction: Literal["down", "up"]
    rank: int
    measures: list[FlameMeasureEntry]
    strings: list[str]
    parent: list[int]
    name: list[int]
    kind: list[int]
    file: list[int]
    line: list[int]
    finding: list[int]
    value: list[list[int]]
    before: list[list[int]] | None = None
    left_out: int = 0
