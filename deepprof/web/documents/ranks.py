"""The ranks of a job side by side, iteration by iteration."""

from __future__ import annotations

from typing import Literal

import msgspec


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rank and device: medians per iteration, null where they are not known; `loop` null without one."""

    rank: int
    device: int
    title: str
    loop: int | None
    iteration_ns: int | None
    own_ns: int | None
    waiting_ns: int | None
    score: float | None


class RanksDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks, the worst first. `own_ns[r][i]` is what rank `r` needed itself for iteration `index[i]`, null: unknown.

    `waiting_ns` is how long it waited for others. `matched`: columns are the same moment in all ranks.
    """

    schema: Literal["deepprof.view.ranks/1"] = "deepprof.view.ranks/1"
    rows: list[RankRow]
    index: list[int]
    own_ns: list[list[int | None]]
    waiting_ns: list[list[int | None]]
    matched: bool
    missing: str  # which ranks no trace is of, empty for none
    left_out: int = 0  # iterations that are not in it
