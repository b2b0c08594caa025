"""Two runs compared: from A's iteration to B's, part by part, with what is behind each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from deepprof.comparison import Comparison
from deepprof.comparison.headline import COLLECTIVE
from deepprof.metrics.breakdown.parts import COPY_PARTS, IDLE_PARTS
from deepprof.render.comparison_text import name_context
from deepprof.render.top import DIRECTIONS
from deepprof.render.wording import CPU, GPU
from deepprof.results.comparison_result import (
    CodeLine,
    ContextChange,
    CopyChange,
    KernelChange,
    LayerChange,
    LoopPair,
    PartChange,
    StageChange,
)
from deepprof.web.documents.schema import CodePlace
from deepprof.web.documents.texts import tidy

MOST_BEHIND = 20  # rows under a step
MOST_PARTS = 4  # of a path that name a run
PATH_PARTS = re.compile(r"[/\\]")
MOST = 500  # of kernels, layers or contexts, those that changed most

Status = Literal["changed", "new", "gone"]


class DiffRow(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel, copy, layer or calling context in both runs; times are of the mean iteration.

    `measure` is what of a context is measured: its time on the device, or on the host without waits.
    """

    title: str
    a_ns: int
    b_ns: int
    status: Status
    source: CodePlace | None = None
    measure: Literal["device", "host"] = "device"


class DiffStep(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the time in both runs; the differences of all steps add up to B's mean less A's."""

    name: str
    title: str
    idle: bool
    a_ns: int
    b_ns: int
    behind: list[DiffRow]


class DiffDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A before, B after; the comparison in one sentence is the session's answer.

    `low` and `high` bound the ratio of medians B / A with 95 % confidence. `a_answer` and `b_answer` are the answers of
    the runs' own reports, without advice.
    """

    schema: Literal["deepprof.view.diff/1"] = "deepprof.view.diff/1"
    a_title: str
    b_title: str
    a_answer: str
    b_answer: str
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


def write_diff(comparison: Comparison) -> DiffDocument:
    """Return two runs compared, by the pair of loops that got slowest; without steps where there is no pair."""
    pair, words = comparison.worst, CPU if comparison.on_cpu else GPU
    parts = () if pair is None else (part for part in pair.parts if part.a_ns or part.b_ns)
    problems = () if pair is None else _list_problems(pair)
    a_title, b_title = name_runs(comparison.a_paths, comparison.b_paths)
    return DiffDocument(
        a_title=a_title,
        b_title=b_title,
        a_answer=tidy(comparison.a_answer.summary),
        b_answer=tidy(comparison.b_answer.summary),
        verdict="unclear" if pair is None else pair.time.verdict,
        ratio=1.0 if pair is None else pair.time.ratio,
        low=None if pair is None else pair.time.low,
        high=None if pair is None else pair.time.high,
        a_ns=0 if pair is None else pair.a_mean_ns,
        b_ns=0 if pair is None else pair.b_mean_ns,
        steps=[] if pair is None else [_describe_step(part, pair, words.parts[part.name]) for part in parts],
        stages=[] if pair is None else [_describe_stage(row) for row in pair.stages.rows],
        layers=[] if pair is None or pair.layers is None else [_describe_layer(row) for row in pair.layers.rows[:MOST]],
        kernels=[] if pair is None else [_describe_kernel(row) for row in pair.kernels[:MOST]],
        contexts=[] if pair is None else [_describe_context(row) for row in pair.contexts[:MOST]],
        differences=[tidy(f"{each.what}: {each.a} → {each.b}") for each in comparison.differences],
        missing=[tidy(each) for each in (*comparison.missing, *problems)],
    )


def _list_problems(pair: LoopPair) -> Iterator[str]:
    if pair.stages.problem is not None:
        yield f"not compared by stage: {pair.stages.problem}"
    if pair.layers is not None and pair.layers.problem is not None:
        yield f"not compared by layer: {pair.layers.problem}"


def name_runs(a: Sequence[str], b: Sequence[str]) -> tuple[str, str]:
    """Return what two runs are called: by as many of the last parts of their paths as tell them apart."""
    ends = (tuple(_name_run(paths, parts) for paths in (a, b)) for parts in range(1, MOST_PARTS))
    first, second = next((each for each in ends if each[0] != each[1]), (_name_run(a, 1), _name_run(b, 1)))
    return first, second


def _name_run(paths: Sequence[str], parts: int) -> str:
    """Return what a run is called: the last `parts` of its first file's path, and how many more files there are."""
    if not paths:
        return "?"
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return tidy(("/".join(PATH_PARTS.split(paths[0].rstrip("/\\"))[-parts:]) or paths[0]) + more)


def _describe_step(part: PartChange, pair: LoopPair, title: str) -> DiffStep:
    """Return a part of the time in both runs, with what changed behind it."""
    behind = sorted(_list_behind(part.name, pair), key=lambda row: -abs(row.b_ns - row.a_ns))
    return DiffStep(
        name=part.name,
        title=title,
        idle=part.name in IDLE_PARTS,
        a_ns=part.a_ns,
        b_ns=part.b_ns,
        behind=behind[:MOST_BEHIND],
    )


def _list_behind(part: str, pair: LoopPair) -> Iterable[DiffRow]:
    """Return what changed of the kernels, copies or code on the host that a part of the time is made of."""
    if part in {"compute_ns", "exposed_communication_ns"}:
        wanted = part == "exposed_communication_ns"
        return [_describe_kernel(row) for row in pair.kernels if row.name.startswith(COLLECTIVE) == wanted]
    if part in IDLE_PARTS:
        return [_describe_context(row) for row in pair.contexts if row.measure == "host"]
    return [_describe_copies(row) for row in pair.copies if _part_of(row.direction) == part and row.a_ns != row.b_ns]


def _part_of(direction: str) -> str:
    return "exposed_memset_ns" if direction == "memset" else COPY_PARTS.get(direction, COPY_PARTS[None])


def _judge(in_a: object, in_b: object) -> Status:
    """Return whether something is in both runs; what is in neither did not change either."""
    return "changed" if bool(in_a) == bool(in_b) else "new" if in_b else "gone"


def _describe_kernel(row: KernelChange) -> DiffRow:
    return DiffRow(title=tidy(row.name), a_ns=row.a_ns, b_ns=row.b_ns, status=_judge(row.a_count, row.b_count))


def _describe_copies(row: CopyChange) -> DiffRow:
    title = row.direction if row.direction == "memset" else f"copies {DIRECTIONS.get(row.direction, DIRECTIONS[None])}"
    return DiffRow(title=title, a_ns=row.a_ns, b_ns=row.b_ns, status=_judge(row.a_count, row.b_count))


def _describe_stage(row: StageChange) -> DiffRow:
    status: Status = "changed" if row.presence == "both" else row.presence
    return DiffRow(title=row.stage, a_ns=row.a_ns, b_ns=row.b_ns, status=status)


def _describe_layer(row: LayerChange) -> DiffRow:
    return DiffRow(title=tidy(row.path), a_ns=row.a_ns, b_ns=row.b_ns, status="changed")


def _describe_context(row: ContextChange) -> DiffRow:
    """Return a calling context with its line in B, or in A where only that has one."""
    return DiffRow(
        title=tidy(name_context(row)),
        a_ns=row.a_ns,
        b_ns=row.b_ns,
        status=row.status,
        source=_find_source(row.b or row.a),
        measure=row.measure,
    )


def _find_source(line: CodeLine | None) -> CodePlace | None:
    """Return a line of code; None where none is available."""
    if line is None or not line.file:
        return None
    return CodePlace(file=tidy(line.file), line=line.line or 0, function=tidy(line.function))
