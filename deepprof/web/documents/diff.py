"""Two runs compared: from A's iteration to B's, part by part, with what is behind each."""

from __future__ import annotations

from typing import Literal

import msgspec

from deepprof.web.documents.schema import CodePlace


class DiffRow(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel, copy, layer or calling context in both runs; times are of the mean iteration."""

    title: str
    a_ns: int
    b_ns: int
    status: Literal["changed", "new", "gone"]
    source: CodePlace | None = None


class DiffStep(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the time in both runs; the differences of all steps add up to B's mean less A's."""

    name: str
    title: str
    idle: bool
    a_ns: int
    b_ns: int
    behind: list[DiffRow]


class DiffDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A before, B after; `low` and `high` bound the ratio of medians B / A with 95 % confidence."""

    schema: Literal["deepprof.view.diff/1"] = "deepprof.view.diff/1"
    a_title: str
    b_title: str
    sentence: str
    verdict: Literal["slower", "faster", "same", "unclear"]
    ratio: float
    low: float | None
    high: float | None
    a_ns: int  # of the mean iteration
    b_ns: int
    steps: list[DiffStep]
    stages: list[DiffRow]
    layers: list[DiffRow]
    kernels: list[DiffRow]
    contexts: list[DiffRow]
    differences: list[str]
    missing: list[str]
