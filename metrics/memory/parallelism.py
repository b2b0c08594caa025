"""How the ranks of a job share the work, by what they exchange and by the shape of their memory.

Memory alone does not show: with data parallelism and with tensor parallelism it is equal on all ranks (PASTA compares
the same model trained in both ways, where the second peak is about half of the first). So what shows is what ranks
exchange in which phase of the iteration, and memory must agree: equal among ranks, or unequal in a pipeline, whose
last stage has the outputs and the loss as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.reprs import one_line
from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.backward import ADDING, ENGINE
from deepprof.metrics.loop import Loop
from deepprof.metrics.memory.floors import begins, device_of
from deepprof.metrics.memory.use import measure_peaks, read_use
from deepprof.metrics.names import rows_named, with_names
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.ranks.collectives import collective_names
from deepprof.metrics.ranks.facts import longest_loops
from deepprof.metrics.spans import Spans, covered, union
from deepprof.mining.evidence import UPDATE

I64, RATIO = pl.Int64(), pl.Float64()
PARALLEL_KINDS = ("data", "sharded data", "tensor", "pipeline")
SIGNS = ("gradients", "sharding", "layers", "stages")  # of every kind, in that order
PARALLEL_RANKS = TableSchema.of(
    "The memory and the exchanges of one rank in a usual iteration: medians, and shares of iterations.",
    {
        "rank": (I64, "the rank"),
        "device": (pl.UInt16(), "the number of its device"),
        "iterations": (I64, "iterations measured"),
        "peak_nbytes": (I64, "the most memory in use; null: no memory events"),
        "least_nbytes": (I64, "the least memory in use"),
        "least_ratio": (RATIO, "that over the peak: at most so much are parameters and state; null without totals"),
        "ramp_up_ratio": (RATIO, "the share of the iteration until nine tenths of what it adds are first in use"),
        "high_ratio": (RATIO, "the share from then until they are last in use"),
        "ramp_down_ratio": (RATIO, "the share from then on, the tail"),
        "of_reference_ratio": (RATIO, "the peak over the reference that was given"),
        "exchanges": (RATIO, "collectives, sends and receives per iteration"),
        "gradients_ratio": (RATIO, "iterations that reduce gradients after or during the backward pass"),
        "sharding_ratio": (RATIO, "iterations that gather in the forward pass and reduce-scatter in the backward pass"),
        "layers_ratio": (RATIO, "iterations that reduce over ranks during the forward pass"),
        "stages_ratio": (RATIO, "iterations that send to or receive from another rank"),
    },
)
OFTEN = 0.5  # of the iterations show a sign
EQUAL = 0.9  # the smallest peak over the largest: ranks whose peaks are closer have equal memory
SMALL = 0.01  # of the largest in the iteration: statistics of batch normalisation, norms, logged values
AGREES, UNKNOWN, DISAGREES = 1.0, 0.8, 0.6  # what memory makes of the confidence

Int64s = npt.NDArray[np.int64]

EXCHANGE_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send", "receive", "other")
PHASES = ("forward", "backward", "gradient", "update", "unknown")
EXCHANGES = TableSchema.of(
    "One collective, send or receive of a rank.",
    {
        "time_ns": (pl.Int64(), "when the host asked for it; where that was not recorded, when it began"),
        "kind": (pl.Enum(EXCHANGE_KINDS), "what it does"),
        "phase": (pl.Enum(PHASES), "when: `gradient` is where the backward pass has added a gradient up"),
        "elements": (pl.Int64(), "the larger of what goes in and comes out; null: not recorded"),
    },
)
CALL = r"^_?c10d(?:_functional)?::"  # PyTorch's own operators around collectives
# The longer words first: a name may hold more than one.
KINDS_BY_WORDS = {
    r"(?i)reduce_?scatter": "reduce-scatter",
    r"(?i)all_?gather|allgather": "all-gather",
    r"(?i)all_?to_?all": "all-to-all",
    r"(?i)all_?reduce": "all-reduce",
    r"(?i)broadcast": "broadcast",
    r"(?i)(?:^|[^a-z])i?recv(?:_|$)": "receive",
    r"(?i)(?:^|[^a-z])i?send(?:_|$)": "send",
}


class ParallelKind(Struct, frozen=True, eq=False):
    """How ranks share the work: `kind` is one of `PARALLEL_KINDS`, or several joined by ` + `; None: not told.

    `confidence` is the share of iterations that show the signs, less where memory is unknown or does not agree.
    `reason` states what shows it, or why nothing does; `ranks` has the schema `PARALLEL_RANKS`.
    """

    kind: str | None
    confidence: float
    reason: str
    ranks: pl.DataFrame

    def __repr__(self) -> str:
        return one_line(self, self.kind or "not told", self.reason)


def find_parallel_kind(
    loops: Sequence[Loop], traces: Sequence[Trace], reference_peak_nbytes: int | None = None
) -> ParallelKind:
    """Return how the ranks share the work; `reference_peak_nbytes` is the peak of one rank of another run to compare.

    Each rank's longest loop is measured. A rank without a loop shows nothing.
    """
    known = {trace.rank or 0: trace for trace in traces}
    chosen = longest_loops(loop for loop in loops if loop.rank in known)
    rows = [_describe_rank(loop, known[loop.rank], reference_peak_nbytes) for loop in chosen.values()]
    ranks = pl.DataFrame(rows, schema=PARALLEL_RANKS)
    if ranks.height < 2:
        why = "one rank" if len(traces) == 1 else f"{ranks.height} of {len(traces)} ranks with a loop"
        return ParallelKind(None, 0.0, f"{why}: at least two are compared", ranks)
    return _judge(ranks)


def _describe_rank(loop: Loop, trace: Trace, reference_peak_nbytes: int | None) -> dict[str, object]:
    """Return a row of `PARALLEL_RANKS`."""
    memory = _describe_memory(loop, trace)
    peak, signs = memory.get("peak_nbytes"), _count_signs(loop, trace)
    ratio = peak / reference_peak_nbytes if peak is not None and reference_peak_nbytes else None
    return {"rank": loop.rank, "device": loop.device, "of_reference_ratio": ratio, **memory, **signs}


def _describe_memory(loop: Loop, trace: Trace) -> dict[str, float]:
    """Return the columns of `PARALLEL_RANKS` on a rank's memory; none without memory events in its iterations."""
    use = read_use(trace.memory_events, device_of(loop, trace))
    peaks = pl.DataFrame() if use is None else measure_peaks(use, loop, trace)
    if use is None or peaks.is_empty():
        return {}
    length = pl.col("ramp_up_ns") + pl.col("high_ns") + pl.col("ramp_down_ns")
    shares = [(pl.col(f"{part}_ns") / length).alias(f"{part}_ratio") for part in ("ramp_up", "high", "ramp_down")]
    sizes = [pl.col(name).cast(RATIO) for name in ("peak_nbytes", "least_nbytes")]
    medians = peaks.select(*sizes, *shares).median().row(0, named=True)
    row = {name: round(value) if name.endswith("nbytes") else value for name, value in medians.items()}
    return row | (
        {"least_ratio": row["least_nbytes"] / row["peak_nbytes"]} if use.absolute and row["peak_nbytes"] else {}
    )


def _count_signs(loop: Loop, trace: Trace) -> dict[str, object]:
    """Return the columns of `PARALLEL_RANKS` on what a rank exchanges."""
    _, begin = begins(loop, trace)
    windows = max(0, len(begin) - 1)
    rows = read_exchanges(trace)
    window = np.searchsorted(begin, rows["time_ns"].to_numpy(), side="right") - 1
    rows = rows.with_columns(window=pl.Series(window, dtype=I64)).filter(pl.col("window").is_between(0, windows - 1))
    large = (pl.col("elements") >= SMALL * pl.col("elements").max().over("window")).fill_null(value=True)
    nothing = pl.DataFrame(schema=dict.fromkeys(SIGNS, pl.Boolean))
    found = rows.filter(large).group_by("window").agg(**_signs()) if rows.height else nothing
    shares = {f"{sign}_ratio": float(found[sign].sum()) / windows if windows else None for sign in SIGNS}
    return {"iterations": windows, "exchanges": rows.height / windows if windows else None, **shares}


def _signs() -> dict[str, pl.Expr]:
    """Return which signs the exchanges of one iteration show.

    Where the forward pass reduces, so does the backward pass, for the gradients of activations; then only what is
    requested where a gradient has just been added up is of parameters."""
    kind, phase = pl.col("kind"), pl.col("phase")
    reduces, scatters = kind.is_in(["all-reduce", "reduce-scatter"]), kind == "reduce-scatter"
    layers = (reduces & (phase == "forward")).any()
    gathers = (kind.is_in(["all-gather"]) & (phase == "forward")).any()
    sharding = gathers & (scatters & phase.is_in(["backward", "gradient"])).any() & ~layers
    late = pl.when(layers).then(phase == "gradient").otherwise(phase.is_in(["backward", "gradient", "update"]))
    return {
        "gradients": (reduces & late).any() & ~sharding,
        "sharding": sharding,
        "layers": layers,
        "stages": kind.is_in(["send", "receive"]).any(),
    }


def _judge(ranks: pl.DataFrame) -> ParallelKind:
    """Return what the signs show that all ranks show in most of their iterations."""
    shares = {sign: float(ranks[f"{sign}_ratio"].fill_null(0.0).min()) for sign in SIGNS}  # type: ignore[arg-type]
    shown = [k for k, sign in enumerate(SIGNS) if shares[sign] >= OFTEN]
    evenness = _compare_peaks(ranks)
    if not shown:
        return ParallelKind(None, 0.0, _say_why_not(ranks, evenness), ranks)
    staged = "stages" in {SIGNS[k] for k in shown}
    factor = UNKNOWN if evenness is None else AGREES if (evenness < EQUAL) == staged else DISAGREES
    confidence = round(min(shares[SIGNS[k]] for k in shown) * factor, 3)
    reason = "; ".join([*(MEANINGS[SIGNS[k]] for k in shown), _say_memory(evenness, agrees=factor == AGREES)])
    return ParallelKind(" + ".join(PARALLEL_KINDS[k] for k in shown), confidence, reason, ranks)


MEANINGS = {
    "gradients": "gradients are reduced over the ranks after or during the backward pass",
    "sharding": "the forward pass gathers what the backward pass scatters again",
    "layers": "ranks reduce over each other during the forward pass",
    "stages": "ranks send to and receive from each other in every iteration",
}


def _compare_peaks(ranks: pl.DataFrame) -> float | None:
    """Return the smallest peak over the largest, None where one is unknown."""
    peaks = ranks["peak_nbytes"]
    return None if peaks.null_count() or not peaks.max() else float(peaks.min()) / float(peaks.max())  # type: ignore[arg-type]


def _say_memory(evenness: float | None, *, agrees: bool) -> str:
    if evenness is None:
        return "memory is not recorded on all ranks"
    how = "equal" if evenness >= EQUAL else "unequal"
    return (
        f"their memory is {how} (smallest peak {evenness:.0%} of the largest){'' if agrees else ', which is unusual'}"
    )


def _say_why_not(ranks: pl.DataFrame, evenness: float | None) -> str:
    """Return why nothing shows how the ranks share the work."""
    exchanged = bool((ranks["exchanges"].fill_null(0.0) > 0).any())
    calls = "what they exchange shows none of the known signs" if exchanged else "no exchange is recorded"
    alone = (
        " (data and tensor parallelism both have equal memory)" if evenness is not None and evenness >= EQUAL else ""
    )
    return f"{calls}; {_say_memory(evenness, agrees=True)}{alone}"


def read_exchanges(trace: Trace) -> pl.DataFrame:
    """Return what a rank exchanged, in the order in which the host asked for it, with the schema `EXCHANGES`.

    A kernel that sends and receives, and of which the recording does not state what for, is of the kind `other`.
    """
    found = _read_operators(trace) if is_stand_in(trace) else _read_kernels(trace)
    ordered = found.cast({"said": pl.String}).sort("time_ns", maintain_order=True)
    phases = _find_phases(trace, ordered["time_ns"].to_numpy())
    kind = pl.coalesce(
        *(pl.when(pl.col("said").str.contains(words)).then(pl.lit(kind)) for words, kind in KINDS_BY_WORDS.items()),
        pl.lit("other"),
    )
    return ordered.with_columns(kind=kind, phase=phases).select(list(EXCHANGES)).cast(dict(EXCHANGES))  # type: ignore[arg-type]


def _read_operators(trace: Trace) -> pl.DataFrame:
    """Return `time_ns`, what is `said` and `elements` of collectives on the CPU: the calls, else the backend's ranges.

    Threads of the backend run the ranges later than they were requested.
    """
    columns = ("start_ns", "name_id")
    rows = pl.concat([trace.host_events.select(columns), trace.device_events.select(columns)])
    calls = rows_named(rows, trace.names, CALL)
    if not calls.height:
        calls = rows.filter(pl.col("name_id").is_in(collective_names(trace).implode()))
    return with_names(calls, trace.names).select(time_ns="start_ns", said="name", elements=pl.lit(None, pl.Int64))


def _read_kernels(trace: Trace) -> pl.DataFrame:
    """Return `time_ns`, what is `said` and `elements` of the collectives of devices."""
    events = trace.device_events.with_row_index("event").filter(
        (pl.col("activity") == "kernel") & pl.col("name_id").is_in(collective_names(trace).implode())
    )
    calls = trace.host_events.filter(pl.col("category") == "runtime").drop_nulls("correlation")
    calls = calls.unique("correlation", keep="first").select("correlation", launch_ns="start_ns")
    known = with_names(events, trace.names).join(trace.collectives, on="event", how="left", maintain_order="left")
    known = known.join(calls, on="correlation", how="left", maintain_order="left")
    return known.select(
        time_ns=pl.coalesce("launch_ns", "start_ns"),
        said=pl.coalesce("collective", pl.col("name").str.replace("SendRecv", "")),
        elements=pl.max_horizontal("in_elements", "out_elements").cast(pl.Int64),
    )


def _find_phases(trace: Trace, times: Int64s) -> pl.Series:
    """Return the phase of each of `times`."""
    backward, adding = (_find_spans(trace, f"^{pattern}") for pattern in (ENGINE, ADDING))
    update = _find_spans(trace, f"^{UPDATE}")
    inside = [covered(spans, times, times + 1) > 0 for spans in (adding, backward, update)]
    next_backward, next_update = (_find_next(spans.starts, times) for spans in (backward, update))
    trains = len(backward.starts) > 0
    chosen = np.select(
        [*inside, next_update < next_backward, (next_backward < next_update) & (len(update.starts) > 0)],
        [PHASES.index(name) for name in ("gradient", "backward", "update", "update", "forward")],
        PHASES.index("unknown" if trains or len(update.starts) else "forward"),
    )
    return pl.Series("phase", chosen, dtype=pl.UInt8).replace_strict(dict(enumerate(PHASES)), return_dtype=pl.String)


def _find_spans(trace: Trace, pattern: str) -> Spans:
    """Return when the host was in operators or ranges of a name; in the CPU fallback some are device events."""
    tables = [trace.host_events, trace.annotations, *([trace.device_events] if is_stand_in(trace) else [])]
    rows = pl.concat([rows_named(table, trace.names, pattern).select("start_ns", "end_ns") for table in tables])
    closed = rows.drop_nulls("end_ns")
    return union(closed["start_ns"].to_numpy(), closed["end_ns"].to_numpy())


def _find_next(starts: Int64s, times: Int64s) -> Int64s:
    """Return the first of the ascending `starts` after each time, the greatest number where there is none."""
    ends = np.append(starts, np.iinfo(np.int64).max)
    return ends[np.searchsorted(starts, times, side="right")]
