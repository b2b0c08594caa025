"""A comparison as JSON, `deepprof.diff/1`: the contract that scripts are written against.

Keys are never renamed without a new schema number; all are present, null where there is no value. Times are integer
nanoseconds, and the same two runs give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from deepprof.render.comparison_work import WorkBlock, describe_work
from deepprof.render.json import readable
from deepprof.results.analysis_result import AnswerBlock
from deepprof.results.comparison_result import (
    CodeLine,
    Comparison,
    ContextChange,
    KernelChange,
    LayersInBoth,
    LoopPair,
    LoopPlace,
    OperationChange,
    PartChange,
    ProgramChange,
    StagesInBoth,
)
from deepprof.version import read_version

SCHEMA = "deepprof.diff/1"
MAX_FRAMES = 100  # of a calling context
MAX_NAME_CHARS = 1000  # characters of a kernel's name, which templates can make any length


class _RunBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two runs, with its own answer report."""

    paths: list[str]
    headline: AnswerBlock


class _HeadlineBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The difference in a sentence; the part of the time that explains most of it and where, and the stage."""

    sentence: str
    part: str | None
    place: str | None
    share_ratio: float | None
    stage: str | None
    stage_share_ratio: float | None


class _PlaceBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A loop of one run."""

    rank: int
    device: int
    stream: int
    period: int


class _TimeBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The median iteration time of both runs; `interval` bounds B / A with 95 % confidence."""

    a_ns: int
    b_ns: int
    a_iterations: int
    b_iterations: int
    ratio: float
    interval: tuple[float, float] | None
    verdict: str


class _PartBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the mean iteration."""

    a_ns: int
    b_ns: int
    difference_ns: int


class _StageRow(msgspec.Struct, frozen=True, kw_only=True):
    """A stage of the mean iteration."""

    stage: str
    presence: str
    a_ns: int
    b_ns: int
    difference_ns: int
    a_idle_ns: int
    b_idle_ns: int
    a_host_ns: int | None
    b_host_ns: int | None
    host_difference_ns: int | None
    a_confidence: float | None
    b_confidence: float | None


class _StagesBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The stages of both runs side by side."""

    problem: str | None
    rows: list[_StageRow]


class _LayerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A layer whose own time changed."""

    path: str
    a_ns: int
    b_ns: int
    difference_ns: int
    a_forward_ns: int
    b_forward_ns: int
    a_backward_ns: int
    b_backward_ns: int


class _LayersBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The layers of both runs by path."""

    source: str | None
    problem: str | None
    matched: int
    changed: int
    a_only: int
    b_only: int
    a_only_ns: int
    b_only_ns: int
    rows: list[_LayerRow]


class _CountBlock(msgspec.Struct, frozen=True, kw_only=True):
    """What the host does per iteration."""

    a: float
    b: float


class _OperationBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of the main stream that changed alike at `times` places."""

    kind: str
    a: list[str]
    b: list[str]
    times: int
    a_ns: int
    b_ns: int
    difference_ns: int


class _ProgramBlock(msgspec.Struct, frozen=True, kw_only=True):
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
    operations: list[_OperationBlock]


class _KernelBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel by its short name, on all streams."""

    name: str
    a_count: float
    b_count: float
    a_ns: int
    b_ns: int
    difference_ns: int


class _CopyBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one direction."""

    direction: str
    a_count: float
    b_count: float
    a_ns: int
    b_ns: int
    a_nbytes: int
    b_nbytes: int


class _LineBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A Python function, where it is."""

    function: str
    file: str
    line: int | None


class _ContextBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A calling context that carries a change."""

    status: str
    measure: str
    kind: str
    path: list[str]
    a: _LineBlock | None
    b: _LineBlock | None
    a_ns: int
    b_ns: int
    difference_ns: int


class _PairBlock(msgspec.Struct, frozen=True, kw_only=True):
    """Two loops compared."""

    a: _PlaceBlock
    b: _PlaceBlock
    time: _TimeBlock
    mean: _PartBlock
    parts: dict[str, _PartBlock]
    counts: dict[str, _CountBlock]
    stages: _StagesBlock
    work: WorkBlock
    layers: _LayersBlock | None
    program: _ProgramBlock | None
    kernels: list[_KernelBlock]
    copies: list[_CopyBlock]
    contexts: list[_ContextBlock]


class _DifferenceBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that both runs state and that differs."""

    what: str
    a: str
    b: str


class DiffReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole comparison."""

    schema: str
    deepprof: str
    a: _RunBlock
    b: _RunBlock
    headline: _HeadlineBlock
    pairs: list[_PairBlock]
    missing: list[str]
    differences: list[_DifferenceBlock]


def encode(comparison: Comparison, *, limit: int | None = None) -> str:
    """Return the comparison as indented JSON that ends with a newline; `limit` is the most rows of kernels."""
    compact = msgspec.json.encode(_describe(comparison, limit))
    return msgspec.json.format(compact, indent=2).decode() + "\n"


def _describe(comparison: Comparison, limit: int | None) -> DiffReport:
    headline = comparison.headline
    return DiffReport(
        schema=SCHEMA,
        deepprof=read_version(),
        a=_RunBlock(paths=[readable(path) for path in comparison.a_paths], headline=comparison.a_answer),
        b=_RunBlock(paths=[readable(path) for path in comparison.b_paths], headline=comparison.b_answer),
        headline=_HeadlineBlock(
            sentence=readable(headline.sentence),
            part=headline.part,
            place=None if headline.place is None else readable(headline.place),
            share_ratio=headline.share,
            stage=headline.stage,
            stage_share_ratio=headline.stage_share,
        ),
        pairs=[_describe_pair(pair, limit) for pair in comparison.pairs],
        missing=[readable(reason) for reason in comparison.missing],
        differences=[
            _DifferenceBlock(what=each.what, a=readable(each.a), b=readable(each.b)) for each in comparison.differences
        ],
    )


def _describe_pair(pair: LoopPair, limit: int | None) -> _PairBlock:
    return _PairBlock(
        a=_describe_place(pair.a),
        b=_describe_place(pair.b),
        time=_describe_time(pair),
        mean=_PartBlock(a_ns=pair.a_mean_ns, b_ns=pair.b_mean_ns, difference_ns=pair.b_mean_ns - pair.a_mean_ns),
        parts={part.name: _describe_part(part) for part in pair.parts},
        counts={count.name: _CountBlock(a=count.a, b=count.b) for count in pair.counts},
        stages=_describe_stages(pair.stages),
        work=describe_work(pair.work),
        layers=None if pair.layers is None else _describe_layers(pair.layers, limit),
        program=None if pair.program is None else _describe_program(pair.program, limit),
        kernels=[_describe_kernel(row) for row in pair.kernels[:limit]],
        copies=[msgspec.convert(row, _CopyBlock, from_attributes=True) for row in pair.copies],
        contexts=list(map(_describe_context, pair.contexts[:limit])),
    )


def _describe_place(place: LoopPlace) -> _PlaceBlock:
    return msgspec.convert(place, _PlaceBlock, from_attributes=True)


def _describe_time(pair: LoopPair) -> _TimeBlock:
    time = pair.time
    bounds = None if time.low is None or time.high is None else (round(time.low, 6), round(time.high, 6))
    return _TimeBlock(
        a_ns=time.a_ns,
        b_ns=time.b_ns,
        a_iterations=time.a_iterations,
        b_iterations=time.b_iterations,
        ratio=round(time.ratio, 6),
        interval=bounds,
        verdict=time.verdict,
    )


def _describe_part(part: PartChange) -> _PartBlock:
    return _PartBlock(a_ns=part.a_ns, b_ns=part.b_ns, difference_ns=part.difference_ns)


def _describe_stages(stages: StagesInBoth) -> _StagesBlock:
    rows = [msgspec.convert(row, _StageRow, from_attributes=True) for row in stages.rows]
    sure = [(_round(row.a_confidence), _round(row.b_confidence)) for row in rows]
    rounded = [
        msgspec.structs.replace(row, a_confidence=a, b_confidence=b) for row, (a, b) in zip(rows, sure, strict=True)
    ]
    return _StagesBlock(problem=stages.problem, rows=rounded)


def _round(confidence: float | None) -> float | None:
    return None if confidence is None else round(confidence, 3)


def _describe_layers(layers: LayersInBoth, limit: int | None) -> _LayersBlock:
    rows = [msgspec.convert(row, _LayerRow, from_attributes=True) for row in layers.rows[:limit]]
    paths = _spell(row.path for row in rows)
    return _LayersBlock(
        source=layers.source,
        problem=layers.problem,
        matched=layers.matched,
        changed=layers.changed,
        a_only=layers.a_only,
        b_only=layers.b_only,
        a_only_ns=layers.a_only_ns,
        b_only_ns=layers.b_only_ns,
        rows=[msgspec.structs.replace(row, path=path) for row, path in zip(rows, paths, strict=True)],
    )


def _describe_program(program: ProgramChange, limit: int | None) -> _ProgramBlock:
    return _ProgramBlock(
        aligned_ratio=program.aligned_ratio,
        rotation=program.rotation,
        a_kernels=program.a_kernels,
        b_kernels=program.b_kernels,
        kept=program.kept,
        replaced=program.replaced,
        added=program.added,
        removed=program.removed,
        problem=program.problem,
        operations=list(map(_describe_operation, program.operations[:limit])),
    )


def _describe_operation(row: OperationChange) -> _OperationBlock:
    return _OperationBlock(
        kind=row.kind,
        a=_spell(row.a),
        b=_spell(row.b),
        times=row.times,
        a_ns=row.a_ns,
        b_ns=row.b_ns,
        difference_ns=row.difference_ns,
    )


def _describe_kernel(row: KernelChange) -> _KernelBlock:
    (name,) = _spell([row.name])
    return _KernelBlock(
        name=name,
        a_count=row.a_count,
        b_count=row.b_count,
        a_ns=row.a_ns,
        b_ns=row.b_ns,
        difference_ns=row.difference_ns,
    )


def _describe_context(row: ContextChange) -> _ContextBlock:
    """Return the block of a calling context; of a deep one the innermost frames."""
    return _ContextBlock(
        status=row.status,
        measure=row.measure,
        kind=row.kind,
        path=_spell(row.path[-MAX_FRAMES:]),
        a=_describe_line(row.a),
        b=_describe_line(row.b),
        a_ns=row.a_ns,
        b_ns=row.b_ns,
        difference_ns=row.difference_ns,
    )


def _describe_line(line: CodeLine | None) -> _LineBlock | None:
    if line is None:
        return None
    function, file = _spell([line.function, line.file])
    return _LineBlock(function=function, file=file, line=line.line)


def _spell(names: Iterable[str]) -> list[str]:
    """Return names that can be encoded, cut where they are too long."""
    return [readable(name[:MAX_NAME_CHARS]) for name in names]
