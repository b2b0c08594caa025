"""The iterations of one loop: every one of them by parts, and what takes the time of each."""

from __future__ import annotations

from typing import Literal

import msgspec

from deepprof.web.documents.schema import Figure, TimePart
from deepprof.web.documents.session import Mark


class TopKernels(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels that take most of single iterations, columns; `index` is the iteration's, `name` a text's number."""

    index: list[int]
    name: list[int]
    calls: list[int]
    time_ns: list[int]


class TopCopies(msgspec.Struct, frozen=True, kw_only=True):
    """The copies of single iterations, columns; `direction` is a text's number, `nbytes` null where none is recorded."""

    index: list[int]
    direction: list[int]
    calls: list[int]
    nbytes: list[int | None]
    time_ns: list[int]


class IterationsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A loop's iterations, one column a list; `parts[p][i]` is what part `p` takes of iteration `i`.

    The parts of an iteration add up to `length_ns`: from its start to the next one's, or its own end. `figures` are the
    paper's Table III. `left_out` iterations, the last ones, are not in it.
    """

    schema: Literal["deepprof.view.iterations/1"] = "deepprof.view.iterations/1"
    loop: int
    strings: list[str]
    index: list[int]
    start_ns: list[int]  # since the first iteration's
    length_ns: list[int]
    iteration_ns: list[int | None]
    operation_ns: list[int]
    interval_ns: list[int | None]
    overlap_ratio: list[float | None]
    htod_nbytes: list[int]
    kernels: list[int]
    edits: list[int]
    mark: list[Mark]
    part: list[TimePart]
    parts: list[list[int]]
    top_kernels: TopKernels
    top_copies: TopCopies
    figures: list[Figure]
    left_out: int = 0
