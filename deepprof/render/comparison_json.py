"""A comparison as JSON, `deepprof.diff/1`: the contract that scripts are written against.

Keys are never renamed without a new schema number; all are present, null where there is no value. Times are integer
nanoseconds, and the same two runs give the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from deepprof.render.json import readable
from deepprof.version import read_version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deepprof.comparison.result import (
        Comparison,
        KernelChange,
        LoopPair,
        LoopPlace,
        OperationChange,
        PartChange,
        ProgramChange,
    )

__all__ = ["SCHEMA", "DiffReport", "encode"]

SCHEMA = "deepprof.diff/1"
MAX_NAME_CHARS = 1000  # characters of a kernel's name, which templates can make any length


class RunBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two runs."""

    paths: list[str]


class HeadlineBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The difference in a sentence, the part of the time that explains most of it, and where."""

    sentence: str
    part: str | None
    place: str | None
    share_ratio: float | None


class PlaceBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A loop of one run."""

    rank: int
    device: int
    stream: int
    period: int


class TimeBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The median iteration time of both runs; `interval` bounds B / A with 95 % confidence."""

    a_ns: int
    b_ns: int
    a_iterations: int
    b_iterations: int
    ratio: float
    interval: tuple[float, float] | None
    verdict: str


class PartBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the mean iteration."""

    a_ns: int
    b_ns: int
    difference_ns: int


class CountBlock(msgspec.Struct, frozen=True, kw_only=True):
    """What the host does per iteration."""

    a: float
    b: float


class OperationBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of the main stream that changed alike at `times` places."""

    kind: str
    a: list[str]
    b: list[str]
    times: int
    a_ns: int
    b_ns: int
    difference_ns: int


class ProgramBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Both iterations kernel by kernel."""

    aligned_ratio: float
    rotation: int
    a_kernels: int
    b_kernels: int
    kept: int
    replaced: int
    added: int
    removed: int
    problem: str | None
    operations: list[OperationBlock]


class KernelBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel by its short name, on all streams."""

    name: str
    a_count: float
    b_count: float
    a_ns: int
    b_ns: int
    difference_ns: int


class CopyBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one direction."""

    direction: str
    a_count: float
    b_count: float
    a_ns: int
    b_ns: int
    a_nbytes: int
    b_nbytes: int


class PairBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Two loops compared."""

    a: PlaceBlock
    b: PlaceBlock
    time: TimeBlock
    mean: PartBlock
    parts: dict[str, PartBlock]
    counts: dict[str, CountBlock]
    program: ProgramBlock | None
    kernels: list[KernelBlock]
    copies: list[CopyBlock]


class DifferenceBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that both runs state and that differs."""

    what: str
    a: str
    b: str


class DiffReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole comparison."""

    schema: str
    deepprof: str
    a: RunBlock
    b: RunBlock
    headline: HeadlineBlock
    pairs: list[PairBlock]
    missing: list[str]
    differences: list[DifferenceBlock]


def encode(comparison: Comparison, *, limit: int | None = None) -> str:
    """Return the comparison as indented JSON that ends with a newline; `limit` is the most rows of kernels."""
    compact = msgspec.json.encode(describe(comparison, limit))
    return msgspec.json.format(compact, indent=2).decode() + "\n"


def describe(comparison: Comparison, limit: int | None) -> DiffReport:
    """Return the comparison as a value."""
    headline = comparison.headline
    return DiffReport(
        schema=SCHEMA,
        deepprof=read_version(),
        a=RunBlock(paths=[readable(path) for path in comparison.a_paths]),
        b=RunBlock(paths=[readable(path) for path in comparison.b_paths]),
        headline=HeadlineBlock(
            sentence=readable(headline.sentence),
            part=headline.part,
            place=None if headline.place is None else readable(headline.place),
            share_ratio=headline.share,
        ),
        pairs=[describe_pair(pair, limit) for pair in comparison.pairs],
        missing=[readable(reason) for reason in comparison.missing],
        differences=[
            DifferenceBlock(what=each.what, a=readable(each.a), b=readable(each.b)) for each in comparison.differences
        ],
    )


def describe_pair(pair: LoopPair, limit: int | None) -> PairBlock:
    """Return a pair's block."""
    return PairBlock(
        a=describe_place(pair.a),
        b=describe_place(pair.b),
        time=describe_time(pair),
        mean=PartBlock(a_ns=pair.a_mean_ns, b_ns=pair.b_mean_ns, difference_ns=pair.b_mean_ns - pair.a_mean_ns),
        parts={part.name: describe_part(part) for part in pair.parts},
        counts={count.name: CountBlock(a=count.a, b=count.b) for count in pair.counts},
        program=None if pair.program is None else describe_program(pair.program, limit),
        kernels=[describe_kernel(row) for row in pair.kernels[:limit]],
        copies=[msgspec.convert(row, CopyBlock, from_attributes=True) for row in pair.copies],
    )


def describe_place(place: LoopPlace) -> PlaceBlock:
    """Return a loop's block."""
    return msgspec.convert(place, PlaceBlock, from_attributes=True)


def describe_time(pair: LoopPair) -> TimeBlock:
    """Return the block of a pair's iteration times."""
    time = pair.time
    bounds = None if time.low is None or time.high is None else (round(time.low, 6), round(time.high, 6))
    return TimeBlock(
        a_ns=time.a_ns,
        b_ns=time.b_ns,
        a_iterations=time.a_iterations,
        b_iterations=time.b_iterations,
        ratio=round(time.ratio, 6),
        interval=bounds,
        verdict=time.verdict,
    )


def describe_part(part: PartChange) -> PartBlock:
    """Return a part's block."""
    return PartBlock(a_ns=part.a_ns, b_ns=part.b_ns, difference_ns=part.difference_ns)


def describe_program(program: ProgramChange, limit: int | None) -> ProgramBlock:
    """Return the block of the aligned kernels."""
    return ProgramBlock(
        aligned_ratio=program.aligned_ratio,
        rotation=program.rotation,
        a_kernels=program.a_kernels,
        b_kernels=program.b_kernels,
        kept=program.kept,
        replaced=program.replaced,
        added=program.added,
        removed=program.removed,
        problem=program.problem,
        operations=list(map(describe_operation, program.operations[:limit])),
    )


def describe_operation(row: OperationChange) -> OperationBlock:
    """Return the block of kernels that changed alike."""
    return OperationBlock(
        kind=row.kind,
        a=spell(row.a),
        b=spell(row.b),
        times=row.times,
        a_ns=row.a_ns,
        b_ns=row.b_ns,
        difference_ns=row.difference_ns,
    )


def describe_kernel(row: KernelChange) -> KernelBlock:
    """Return a kernel's block."""
    (name,) = spell([row.name])
    return KernelBlock(
        name=name,
        a_count=row.a_count,
        b_count=row.b_count,
        a_ns=row.a_ns,
        b_ns=row.b_ns,
        difference_ns=row.difference_ns,
    )


def spell(names: Iterable[str]) -> list[str]:
    """Return names that can be encoded, cut where they are too long."""
    return [readable(name[:MAX_NAME_CHARS]) for name in names]
