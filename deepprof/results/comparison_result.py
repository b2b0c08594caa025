"""The result of comparing two runs: values only, A before and B after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import polars as pl
from msgspec import Struct

from deepprof.collectors.reprs import in_milliseconds, one_line
from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.annotation.stage_names import STAGE
from deepprof.metrics.kernels.kinds import Category, Precision, Unit
from deepprof.results.analysis_result import AnswerBlock

Verdict = Literal["slower", "faster", "same", "unclear"]
Kind = Literal["kept", "replaced", "added", "removed"]
Status = Literal["changed", "new", "gone"]
Measure = Literal["device", "host"]
Presence = Literal["both", "new", "gone"]

I64, F64 = pl.Int64(), pl.Float64()

STAGE_CHANGES = TableSchema.of(
    "A stage of the mean iteration in both runs. The differences add up to that of the mean iteration.",
    {
        "stage": (STAGE, "the stage"),
        "presence": (pl.String(), "`both`, or the only run that has it: `new` in B, `gone` from it"),
        "a_ns": (I64, "how long the device works or waits for it in A: the mean; 0 where A does not have it"),
        "b_ns": (I64, "the same in B"),
        "difference_ns": (I64, "how much longer that is in B"),
        "a_idle_ns": (I64, "how long of it the device waits in A"),
        "b_idle_ns": (I64, "the same in B"),
        "a_host_ns": (I64, "how long the threads that launch are in it in A: the mean; null: not recorded"),
        "b_host_ns": (I64, "the same in B"),
        "a_confidence": (F64, "how sure it is in A, from 0 to 1; null where it has no work of the device"),
        "b_confidence": (F64, "the same in B"),
    },
)
LAYER_CHANGES = TableSchema.of(
    "A layer of the model that both runs have and whose own time changed: medians, without the layers within.",
    {
        "path": (pl.String(), "its name with those of the layers around it, from the outermost one on"),
        "a_ns": (I64, "how long the device works for it in A"),
        "b_ns": (I64, "the same in B"),
        "difference_ns": (I64, "how much longer that is in B"),
        "a_forward_ns": (I64, "how much of it is in forward passes in A"),
        "b_forward_ns": (I64, "the same in B"),
        "a_backward_ns": (I64, "how much of it is in backward passes in A"),
        "b_backward_ns": (I64, "the same in B"),
    },
)
COMPARISON_TABLES: Mapping[str, TableSchema] = MappingProxyType({"stages": STAGE_CHANGES, "layers": LAYER_CHANGES})


class LoopPlace(Struct, frozen=True):
    """Where a compared loop runs, and how many kernels its iteration has."""

    rank: int
    device: int
    stream: int
    period: int


class _TimedChange:
    """What takes `a_ns` in A and `b_ns` in B, per iteration."""

    __slots__ = ()
    a_ns: int
    b_ns: int

    @property
    def difference_ns(self) -> int:
        """How much longer it takes in B."""
        return self.b_ns - self.a_ns


class TimeChange(Struct, frozen=True, kw_only=True):
    """The iteration time: medians over `iterations` of every run, and their ratio B / A.

    `low` and `high` bound the ratio with 95 % confidence (bootstrap); None where a run has too few iterations for it.
    `verdict` is `unclear` where the medians differ but the interval does not exclude equal times.
    """

    a_ns: int
    b_ns: int
    a_iterations: int
    b_iterations: int
    ratio: float
    low: float | None
    high: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class PartChange(_TimedChange):
    """A part of the time (`metrics.breakdown.parts.PART_NAMES`): nanoseconds of the mean iteration."""

    name: str
    a_ns: int
    b_ns: int


@dataclass(frozen=True, slots=True)
class WorkChange(_TimedChange):
    """What the device computes of one kind (`metrics.kernels.kinds`): nanoseconds of the mean iteration."""

    category: Category
    precision: Precision | None
    unit: Unit | None
    a_ns: int
    b_ns: int


class WorkInBoth(Struct, frozen=True, kw_only=True):
    """What the device computes in both runs: all kinds that either has, the largest difference first.

    The ratios are the shares of the products' time on matrix units, None without products of known unit.
    """

    rows: tuple[WorkChange, ...] = ()
    a_matrix_unit_ratio: float | None = None
    b_matrix_unit_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChange(_TimedChange):
    """A stage of the mean iteration: how long the device works or waits for it, 0 in a run that does not have it.

    `presence` states which run has it: both, only B (`new`) or only A (`gone`). `a_idle_ns` and `b_idle_ns` are the
    waits among that, `a_host_ns` and `b_host_ns` how long the threads that launch are in it (None: not recorded). The
    confidences are None where it has no work of the device."""

    stage: str
    presence: Presence
    a_ns: int
    b_ns: int
    a_idle_ns: int
    b_idle_ns: int
    a_host_ns: int | None
    b_host_ns: int | None
    a_confidence: float | None
    b_confidence: float | None

    @property
    def host_difference_ns(self) -> int | None:
        """How much longer it needs on the host in B; None where a run did not record it."""
        return None if self.a_host_ns is None or self.b_host_ns is None else self.b_host_ns - self.a_host_ns


class StagesInBoth(Struct, frozen=True, kw_only=True):
    """The stages that either run has, in the order of an iteration; `problem` states why there are no `rows`."""

    rows: tuple[StageChange, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class LayerChange(_TimedChange):
    """A layer of the model whose own time on the device changed: medians, without the layers within."""

    path: str
    a_ns: int
    b_ns: int
    a_forward_ns: int
    b_forward_ns: int
    a_backward_ns: int
    b_backward_ns: int


class LayersInBoth(Struct, frozen=True, kw_only=True):
    """The layers of both runs by path; `problem` states why there are no `rows`.

    `source` is how both runs know them. `matched` layers have the same path in both, the time of `changed` ones
    differs, of which `rows` has those that changed most, the largest difference first. `a_only` and `b_only` count the
    layers of one run, and their times are without layers within.
    """

    source: str | None = None
    rows: tuple[LayerChange, ...] = ()
    matched: int = 0
    changed: int = 0
    a_only: int = 0
    b_only: int = 0
    a_only_ns: int = 0
    b_only_ns: int = 0
    problem: str | None = None


class CountChange(Struct, frozen=True):
    """What the host did per iteration, one of `metrics.breakdown.parts.COUNTS`: means."""

    name: str
    a: float
    b: float


@dataclass(frozen=True, slots=True)
class OperationChange(_TimedChange):
    """Kernels of the main stream that changed alike at `times` places of the iteration; full names.

    `a` and `b` are the kernels at one such place: the same kernel (`kept`), one or several of each (`replaced`), or
    nothing on one side. Times are the medians of the kernels, added up over all places of one iteration.
    """

    kind: Kind
    a: tuple[str, ...]
    b: tuple[str, ...]
    times: int
    a_ns: int
    b_ns: int


@dataclass(frozen=True, slots=True)
class KernelChange(_TimedChange):
    """A kernel by its short name, on all streams of the device: its count and total time per iteration."""

    name: str
    a_count: float
    b_count: float
    a_ns: int
    b_ns: int


class CopyChange(Struct, frozen=True):
    """Copies of one direction per iteration (memsets under `memset`): count, total time and bytes."""

    direction: str
    a_count: float
    b_count: float
    a_ns: int
    b_ns: int
    a_nbytes: int
    b_nbytes: int


class CodeLine(Struct, frozen=True):
    """A Python function, and the line on which it begins or, in a call stack, that it was at; None: unknown."""

    function: str
    file: str
    line: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextChange(_TimedChange):
    """A calling context whose time on the device or on the host changed, or that only one run has (`new`, `gone`).

    `path` are the names of its frames of code, the outermost first, `kind` is what the last one is. `a` and `b` are the
    lines that it belongs to in the runs, None where there is none. Times are of the mean iteration, without those
    contexts within it that have their own change.
    """

    status: Status
    measure: Measure
    kind: str
    path: tuple[str, ...]
    a: CodeLine | None
    b: CodeLine | None
    a_ns: int
    b_ns: int


class ProgramChange(Struct, frozen=True, kw_only=True):
    """The two iterations kernel by kernel.

    `aligned_ratio` is the share of both iterations' kernels that are in both in the same order, variants of a kernel
    included. `rotation` is how many kernels later B's iteration begins than A's. The counts are kernels: `kept` and
    `replaced` ones of A. `problem` states why there are no `operations`; None where there may be some.
    """

    aligned_ratio: float
    rotation: int
    a_kernels: int
    b_kernels: int
    kept: int
    replaced: int
    added: int
    removed: int
    operations: tuple[OperationChange, ...]  # those that changed, the largest difference first
    problem: str | None = None


class LoopPair(Struct, frozen=True, kw_only=True):
    """Two loops, one of every run. `a_mean_ns` and `b_mean_ns` are the sums of the parts.

    Only the first pair of a comparison has `layers`, `program`, `kernels`, `copies` and `contexts`. `layers` is None
    where neither run has any, too.
    """

    a: LoopPlace
    b: LoopPlace
    time: TimeChange
    a_mean_ns: int
    b_mean_ns: int
    parts: tuple[PartChange, ...]
    counts: tuple[CountChange, ...]
    stages: StagesInBoth = StagesInBoth()
    work: WorkInBoth = WorkInBoth()
    layers: LayersInBoth | None = None
    program: ProgramChange | None = None
    kernels: tuple[KernelChange, ...] = ()
    copies: tuple[CopyChange, ...] = ()
    contexts: tuple[ContextChange, ...] = ()  # the largest difference first

    def __repr__(self) -> str:
        times = f"{in_milliseconds(self.time.a_ns)} to {in_milliseconds(self.time.b_ns)}"
        return one_line(self, f"rank {self.a.rank} and {self.b.rank}", times, self.time.verdict)


class Headline(Struct, frozen=True):
    """One sentence, and what it rests on: the part that explains most of the change, where, and how much of it.

    `share` is of the change of the mean iteration time, above 1 where other parts changed the other way. `stage` is the
    one that holds most of the change, and `stage_share` its share; None where no stage does.
    """

    sentence: str
    part: str | None = None
    place: str | None = None
    share: float | None = None
    stage: str | None = None
    stage_share: float | None = None


class Difference(Struct, frozen=True):
    """What A and B state of a setting that differs: hardware, world size, framework or a version."""

    what: str
    a: str
    b: str


class Comparison(Struct, frozen=True, kw_only=True):
    """Two runs compared: A before, B after.

    `pairs` has the loops that could be compared, the one that got slowest first; it is empty where none could be.
    `missing` states why others could not be, `differences` how the runs differ apart from the program. `a_answer` and
    `b_answer` are the answers of the runs' own reports. `on_cpu`: neither run saw a device, and operators are compared.
    """

    a_paths: tuple[str, ...]
    b_paths: tuple[str, ...]
    headline: Headline
    pairs: tuple[LoopPair, ...]
    missing: tuple[str, ...]
    a_answer: AnswerBlock
    b_answer: AnswerBlock
    differences: tuple[Difference, ...] = ()
    on_cpu: bool = False

    def __repr__(self) -> str:
        return one_line(self, self.headline.sentence)

    @property
    def worst(self) -> LoopPair | None:
        """The pair that got slowest, which is compared in detail."""
        return self.pairs[0] if self.pairs else None

    @property
    def stages(self) -> pl.DataFrame:
        """The stages of that pair with the schema `STAGE_CHANGES`; no row where they cannot be compared."""
        return _make_table(() if self.worst is None else self.worst.stages.rows, STAGE_CHANGES)

    @property
    def layers(self) -> pl.DataFrame:
        """The layers of that pair whose time changed, the largest difference first: `LAYER_CHANGES`."""
        layers = None if self.worst is None else self.worst.layers
        return _make_table(() if layers is None else layers.rows, LAYER_CHANGES)


def _make_table(rows: Sequence[_TimedChange], schema: pl.Schema) -> pl.DataFrame:
    return pl.DataFrame([[getattr(row, name) for name in schema] for row in rows], schema=schema, orient="row")
