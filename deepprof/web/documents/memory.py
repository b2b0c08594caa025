"""Copies of an iteration, and memory in use over time."""

from __future__ import annotations

from typing import Literal

import msgspec


class CopyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one direction and memory of the host per iteration; `memory` is empty where it is not recorded."""

    loop: int | None
    direction: str
    memory: str
    calls: float
    nbytes: float | None
    time_ns: float
    share_ratio: float
    gigabytes_per_s: float | None


class MemorySeries(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one device (-1: the host) over time, in at most `MOST_POINTS` stretches of equal length.

    `time_ns` is when a stretch begins, since the first; `low` and `high` what is in use at least and at most in it.
    """

    rank: int
    device: int
    title: str
    time_ns: list[int]
    low_nbytes: list[int]
    high_nbytes: list[int]
    limit_nbytes: int | None


class MemoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Copies and memory of a job; `problem` says why there is no `series`, and how to record it."""

    schema: Literal["deepprof.view.memory/1"] = "deepprof.view.memory/1"
    copies: list[CopyEntry]
    series: list[MemorySeries]
    problem: str | None
