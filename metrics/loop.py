"""One measured loop: what the miner found on one main stream, with its iterations and their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypedDict

import polars as pl
from msgspec import Struct, field

from deepprof.collectors.reprs import in_milliseconds, one_line
from deepprof.collectors.trace import empty_table
from deepprof.metrics.breakdown.outside import TimeOutside
from deepprof.metrics.breakdown.parts import PARTS
from deepprof.metrics.breakdown.timeline import Timeline
from deepprof.metrics.iteration import LoopMetrics
from deepprof.metrics.top_tables import TopWork
from deepprof.mining.nesting import NestedBlock
from deepprof.plurals import counted

if TYPE_CHECKING:  # what later stages measure: the loops alone need none of it
    from deepprof.metrics.annotation.anatomy_tables import Anatomy
    from deepprof.metrics.cost.roofline_tables import LoopRoofline
    from deepprof.metrics.kernels.computed_work import Work

STALL = 3.0  # times the median: such an iteration states nothing about the others
MOST_STALLS = 0.1  # of the iterations: more of them are how the job runs
FEWEST_BESIDE_STALLS = 8  # iterations: among fewer it is unknown what is usual
LEAST_COVERED = 0.2  # of the time for which the device works: iterations of less are a detail of the recording

BoundarySource = Literal["annotation", "framework", "mined"]
Single = Literal["marked step", "recording"]


class PlaceOfLoop(TypedDict):
    """The stream that runs a loop's kernels."""

    rank: int
    device: int
    stream: int


class Agreement(Struct, frozen=True):
    """The agreement of the loop with the user's ranges of one name.

    `ratio` is the share of ranges and iterations that meet (an F1 score): a range meets an iteration when their first
    kernels are within 1 % of the period of each other. `iterations` is the number of ranges, `given` that of the
    complete iterations where the ranges are, and `matched` the number of each that meet.
    """

    name: str
    iterations: int
    ratio: float
    matched: int = 0
    given: int = 0


class OutsideIterations(Struct, frozen=True):
    """The kernels of the main stream before or after all iterations, and the time that they span."""

    kernels: int = 0
    span_ns: int = 0


class Loop(Struct, frozen=True, kw_only=True, eq=False, dict=True, weakref=True):
    """One repeated iteration on one main stream.

    `iterations` has the schema `metrics.iteration.ITERATIONS`, `parts` has `metrics.breakdown.parts.PARTS`: one row per
    iteration each, in the same order. `timeline` is that of the loop's device, `outside` its time
    outside the iterations; None where not measured.

    `period` is in kernels of the main stream. `confidence` is the confidence that the iterations are right, first
    kernels included; `boundary_confidence` is the part of it that concerns where in the period they begin. `prologue`
    is what ran before the first iteration, `epilogue` what ran after the last. `coverage_ratio` is the share of the
    time for which the device works in the recording that is in the iterations; of a part of a trace, in the whole.
    `cycles` and `nested` have the keys of the report; `blocks` are all the large blocks of the template, each with its
    place in it. `single` is set if this is no loop but one section that is measured as an iteration
    (`metrics.single`), one of `marks` marked steps. `top` has the kernels and copies that use the time of the usual
    iterations, None where there are none. `anatomy` has the stages and layers of iterations, None where they were not
    searched for. `roofline` has the work of the usual iterations next to the device's peaks, None where the shapes of
    operands were not recorded, or not read. `work` is what the device computes in them, None where there are none. Of
    a part of a trace `whole_iterations` is how many iterations the whole has; None: this is no part.
    """

    rank: int
    device: int
    stream: int
    period: int
    confidence: float
    evidence: str
    boundary_source: BoundarySource
    boundary_confidence: float
    agreement: Agreement | None
    iterations: pl.DataFrame
    metrics: LoopMetrics
    cycles: tuple[Mapping[str, int | str], ...] = ()
    nested: tuple[Mapping[str, int], ...] = ()
    prologue: OutsideIterations = OutsideIterations()
    epilogue: OutsideIterations = OutsideIterations()
    coverage_ratio: float = 1.0
    parts: pl.DataFrame = field(default_factory=lambda: empty_table(PARTS))
    timeline: Timeline | None = None
    outside: TimeOutside | None = None
    blocks: tuple[NestedBlock, ...] = ()
    single: Single | None = None
    marks: int = 1
    top: TopWork | None = None
    anatomy: Anatomy | None = None
    roofline: LoopRoofline | None = None
    work: Work | None = None
    whole_iterations: int | None = None

    def __repr__(self) -> str:
        time = self.metrics.iteration_ns
        return one_line(
            self,
            f"rank {self.rank}",
            f"device {self.device}",
            f"stream {self.stream}",
            self.single or f"{counted(self.iterations.height, 'iteration')} of {counted(self.period, 'kernel')}",
            f"median {in_milliseconds(time.median)}" if time else "",
            f"confidence {self.confidence:.3g}",
        )

    @property
    def is_main(self) -> bool:
        """Whether the iterations are this much of the device's work that they are what was recorded."""
        return self.coverage_ratio >= LEAST_COVERED

    @property
    def place(self) -> PlaceOfLoop:
        """The main stream that the loop is on."""
        return {"rank": self.rank, "device": self.device, "stream": self.stream}

    @property
    def typical(self) -> int | None:
        """The index of the iteration that represents all, None where there is none or it was not searched for."""
        return None if self.anatomy is None else self.anatomy.representative

    @property
    def unit(self) -> str:
        """What times are of, in words: an iteration, or what is measured in its place."""
        return f"the {self.single}" if self.single else "an iteration"

    @property
    def per_unit(self) -> str:
        """What counts refer to, in words."""
        return f"in the {self.single}" if self.single else "per iteration"

    @cached_property
    def table(self) -> pl.DataFrame:
        """Iterations and parts side by side: the columns of `ITERATIONS`, then those of `PARTS`."""
        return self.iterations.join(self.parts, on="index", how="left", maintain_order="left")

    @cached_property
    def measured(self) -> pl.DataFrame:
        """The rows of `table` that are complete, after warm-up, and followed by the next iteration."""
        return self.table.filter(pl.col("complete") & ~pl.col("warmup") & pl.col("iteration_ns").is_not_null())

    @cached_property
    def stalls(self) -> pl.DataFrame:
        """The few rows of `measured` that use several times as long as the others, none among few iterations."""
        measured = self.measured
        is_stall = pl.col("iteration_ns") >= STALL * pl.col("iteration_ns").median()
        stalls = measured.filter(is_stall) if measured.height >= FEWEST_BESIDE_STALLS else measured.clear()
        return stalls if stalls.height <= MOST_STALLS * measured.height else measured.clear()

    @cached_property
    def usual(self) -> pl.DataFrame:
        """The rows of `measured` that figures rest on: without stalls, which are reported by themselves."""
        if self.stalls.is_empty():
            return self.measured
        return self.measured.filter(~pl.col("index").is_in(self.stalls["index"].implode()))
