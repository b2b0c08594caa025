"""What grows from iteration to iteration, or is built anew in every one of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.long_calls import BUILD
from deepprof.metrics.breakdown.parts import COPY_PARTS, IDLE_PARTS
from deepprof.metrics.intervals import Intervals, intervals_of
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import rows_named
from deepprof.metrics.operators import COMPILER_RANGE
from deepprof.metrics.series.statistics import deviation
from deepprof.metrics.series.trend import Trend, chance_of, find_trend, rises_throughout
from deepprof.metrics.spans import Spans, covered, intersect, union

CHANCE = 0.01
MIN_GROWTH_ITERATIONS = (
    6  # iterations: five in a row that grow have a chance of 1 in 120, too much for all that is tested
)

SMALL_OVERLAP = 0.3  # copies fill less of the interval than this, or they are the cause
LARGE_SHARE = 0.2  # of the iteration's time: a smaller interval is not reported
# Idle time with its own cause, which is reported: the rest of an interval may be due to the graph.
EXPLAINED = ("idle_input_ns", "idle_allocator_ns", "idle_dependency_ns", "idle_shared_ns")
UNEXPLAINED = tuple(part for part in IDLE_PARTS if part not in EXPLAINED)
BEYOND = 3.0  # least growth over the capture, in deviations of the intervals around their line
INTERVAL_GROWTH = 0.5  # the interval grows by half of its median over the capture

COUNTS = ("kernels", "events")  # not launches: they are counted by device time, which the host is ahead of
COUNT_GROWTH = 0.02  # the number of kernels is constant, or varies with the batch: then tau is small
ORDERLY = 0.5  # tau from which a count grows and does not only vary

FEWEST_BUILT = 2  # iterations: what is built in a single one may belong to the job's start
MIN_REBUILT_SHARE = 0.5  # of the iterations: if fewer build something, it is no property of the loop
WORTH = 0.03  # of the iteration's time
# Compilers' own ranges. Running compiled code has similar names: "Torch-Compiled Region", "Call CompiledFxGraph".
COMPILE = (
    COMPILER_RANGE
    + r"|(?:Pj[Rr]t\w*|LocalClient|(?:Gpu|Nvptx|AMDGPU)Compiler|XlaCompil\w*)::(?:Backend)?Compile(?:[^d]|$)"
    r"|^(?:backend_compile|XlaCompile|compile_fx(?:_inner)?|triton_compile)\b"
    r"|(?:triton/compiler/compiler|torch/_dynamo/convert_frame|jax/_src/compiler)\.py\(\d+\): \w*compile\w*$"
)


class IntervalGrowth(Struct, frozen=True, eq=False):
    """The paper's growth: large intervals between iterations that become larger.

    `unexplained_ns` is each iteration's interval without the time that has another cause; `trend` is its trend.
    """

    intervals: Intervals
    unexplained_ns: npt.NDArray[np.int64]
    trend: Trend

    @property
    def waiting_ns(self) -> float:
        """The mean interval without the time that has another cause."""
        return float(self.unexplained_ns.mean())


class CountGrowth(Struct, frozen=True):
    """A count per iteration (`kernels` or `events`) that grows from `first` to `last`, medians of the outer thirds.

    `lost_ns` is how much longer an iteration of the last third takes than one of the first, `time_ns` its time, and
    `extra_ns` how much longer a mean iteration needs than one before any growth would, if the growth is steady.
    """

    count: str
    first: float
    last: float
    trend: Trend
    lost_ns: float
    time_ns: float
    extra_ns: float
    bounds: tuple[int, int]


class Rebuilding(Struct, frozen=True):
    """Code or graphs built in most iterations: in `affected` of `iterations`, `building_ns` each on average.

    `idle_ns` is the device's idle time during it, per iteration of `time_ns`. `graphs`: these are graph captures and
    instantiations, not compilers.
    """

    affected: int
    iterations: int
    building_ns: float
    idle_ns: float
    time_ns: float
    graphs: bool
    name: str
    bounds: tuple[int, int]


def find_interval_growth(loop: Loop) -> IntervalGrowth | None:
    """Return the growth of intervals that are large, and that copies do not fill (Gu et al., section VI).

    Where copies fill a good part of them, the rest without the copies must be as large, and grow.
    """
    intervals = intervals_of(loop)
    if intervals is None:
        return None
    filled = intervals.overlap_ratio >= SMALL_OVERLAP
    waits = _unexplained(loop, intervals, (*EXPLAINED, *COPY_PARTS.values()) if filled else EXPLAINED)
    if float(waits.mean()) < LARGE_SHARE * intervals.whole_ns:
        return None
    trend = find_growth(waits)
    if trend is None or find_growth(_at_one_pace(waits, intervals)) is None:
        return None
    return IntervalGrowth(intervals, waits, trend)


def find_growth(values: npt.NDArray[np.float64] | npt.NDArray[np.int64]) -> Trend | None:
    """Return the trend of values that grow throughout, None where chance may explain it.

    A busy machine causes similar neighbours, jumps, and single values many times as long: none of that is growth.
    """
    trend = find_trend(values)
    if trend is None or trend.growth < INTERVAL_GROWTH or trend.tau < ORDERLY:
        return None
    chance = chance_of(values, trend)
    grows = chance < CHANCE and rises_throughout(values, trend) and _beyond_noise(values, trend)
    return replace(trend, p_value=chance) if grows else None


def _at_one_pace(waits: npt.NDArray[np.int64], intervals: Intervals) -> npt.NDArray[np.float64]:
    """Return the intervals as if each iteration's kernels had run at the usual pace.

    If the same work lasts longer too, the machine has become slower; the loop has not become longer.
    """
    rows = intervals.iterations
    pace = np.maximum(rows["busy_ns"].to_numpy(), 1) / np.maximum(rows["kernels"].to_numpy(), 1)
    return np.asarray(waits * (float(np.median(pace)) / pace))


def _unexplained(loop: Loop, intervals: Intervals, known: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Return every interval without the parts in it that are `known` to have their own cause."""
    rows = intervals.iterations
    if loop.timeline is not None:
        begin, whole = rows["end_ns"].to_numpy(), rows["interval_ns"].to_numpy()
        return np.asarray(whole - covered(loop.timeline.spans(known), begin, begin + whole))
    told = loop.parts.select("index", known=pl.sum_horizontal(known))
    joined = rows.join(told, on="index", how="left", maintain_order="left")
    left = (pl.col("interval_ns") - pl.col("known").fill_null(0)).clip(lower_bound=0)
    return joined.select(left.cast(pl.Int64)).to_series().to_numpy()


def _beyond_noise(values: npt.NDArray[np.float64] | npt.NDArray[np.int64], trend: Trend) -> bool:
    """Return whether the last values are larger than the first by more than they scatter around their line.

    Medians of a tenth at either end are compared: a single value may dominate a mean.
    """
    residuals = values - trend.slope * np.arange(len(values))
    few = max(3, len(values) // 10)
    return float(np.median(values[-few:]) - np.median(values[:few])) > BEYOND * deviation(residuals)


def find_count_growth(loop: Loop) -> CountGrowth | None:
    """Return the count per iteration that grows most clearly, None where none does."""
    rows = loop.usual
    if rows.height < MIN_GROWTH_ITERATIONS:
        return None
    found = [(name, find_trend(rows[name].to_numpy())) for name in COUNTS]
    growing = [
        (name, trend)
        for name, trend in found
        if trend and trend.p_value < CHANCE and trend.tau >= ORDERLY and trend.growth >= COUNT_GROWTH
    ]
    if not growing:
        return None
    name, trend = max(growing, key=lambda each: each[1].growth)
    third = rows.height // 3
    head, tail = rows.head(third), rows.tail(third)
    first, last, fast, slow = (
        float(part[column].median())  # type: ignore[arg-type]
        for column in (name, "iteration_ns")
        for part in (head, tail)
    )
    bounds = (int(rows["index"][0]), int(rows["index"][-1]))
    lost = max(0.0, slow - fast)
    # Medians of outer thirds are two thirds of the growth apart, and the first a sixth of it above the begin.
    extra = float(rows["iteration_ns"].mean()) - (fast - lost / 4)  # type: ignore[arg-type]
    return CountGrowth(name, first, last, trend, lost, slow, min(lost, max(0.0, extra)), bounds)


def find_rebuilding(loop: Loop, trace: Trace) -> Rebuilding | None:
    """Return what is built anew in most iterations and takes a good part of their time, None where nothing is."""
    rows = loop.usual
    if rows.height < FEWEST_BUILT:
        return None
    kinds = [(spans, graphs, name) for graphs in (False, True) for spans, name in [_build_spans(trace, graphs=graphs)]]
    found = [_weigh(loop, rows, *kind) for kind in kinds if len(kind[0].starts)]
    wanted = [r for r in found if r.affected > MIN_REBUILT_SHARE * r.iterations and r.building_ns >= WORTH * r.time_ns]
    return max(wanted, key=lambda r: r.building_ns, default=None)


def _weigh(loop: Loop, rows: pl.DataFrame, spans: Spans, graphs: bool, name: str) -> Rebuilding:
    """Return how many iterations are affected by the building in `spans`, and how much."""
    start, length = rows["start_ns"].to_numpy(), rows["iteration_ns"].to_numpy()
    building = covered(spans, start, start + length)
    idle = intersect(spans, loop.timeline.spans(IDLE_PARTS)) if loop.timeline else spans
    starved = covered(idle, start, start + length)
    affected = int((building >= WORTH / 2 * length).sum())
    bounds = (int(rows["index"][0]), int(rows["index"][-1]))
    means = float(building.mean()), float(starved.mean()), float(length.mean())
    return Rebuilding(affected, rows.height, *means, graphs, name, bounds)


def _build_spans(trace: Trace, *, graphs: bool) -> tuple[Spans, str]:
    """Return when code is compiled and loaded, or graphs captured and instantiated, and the name with most time."""
    host = trace.host_events.select("start_ns", "end_ns", "name_id", "category")
    calls = rows_named(host.filter(pl.col("category") == "runtime"), trace.names, BUILD)
    of_graphs = trace.names.gather(calls["name_id"]).str.contains("Capture|Graph").fill_null(value=False)
    if graphs:
        return _capture_spans(trace, calls.filter(of_graphs))
    ranges = trace.annotations.filter(pl.col("side") == "host").select("start_ns", "end_ns", "name_id")
    plain = host.filter(pl.col("category") != "runtime").drop("category")
    found = pl.concat([rows_named(rows, trace.names, COMPILE) for rows in (plain, ranges)])
    found = pl.concat([found, calls.filter(~of_graphs).drop("category")]).filter(pl.col("end_ns").is_not_null())
    return union(found["start_ns"].to_numpy(), found["end_ns"].to_numpy()), _longest(trace, found)


def _capture_spans(trace: Trace, calls: pl.DataFrame) -> tuple[Spans, str]:
    """Return the time from the begin of every capture to the end of the instantiation that follows it."""
    begins = calls.filter(trace.names.gather(calls["name_id"]).str.contains("BeginCapture"))["start_ns"].to_numpy()
    made = calls.filter(trace.names.gather(calls["name_id"]).str.contains("Instantiate"))
    start, end = made["start_ns"].to_numpy().copy(), made["end_ns"].to_numpy()
    before = np.searchsorted(begins, start) - 1
    earlier = np.append(0, start[:-1])[: len(start)]  # a capture belongs to the first instantiation after it
    own = before >= 0
    own[own] = begins[before[own]] >= earlier[own]
    start[own] = begins[before[own]]
    return union(start, end), _longest(trace, made)


def _longest(trace: Trace, rows: pl.DataFrame) -> str:
    """Return the name that the most time is spent in, empty without rows."""
    if not rows.height:
        return ""
    spent = rows.group_by("name_id", maintain_order=True).agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    return trace.name(int(spent.sort("ns", descending=True, maintain_order=True)["name_id"][0]))
