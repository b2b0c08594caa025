"""What a rank exchanges with others, and during which phase of the iteration: forward, backward, or the update.

A collective belongs to the phase in which the host asks for it. The backward pass is where the host runs nodes of
autograd; what is asked for outside of them is of the forward pass if the next thing to come is a backward pass, and of
the update if it is a step of the optimizer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.backward import ADDING, ENGINE
from deepprof.metrics.names import rows_named, with_names
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.ranks.collectives import collective_names
from deepprof.metrics.spans import Spans, covered, union
from deepprof.mining.evidence import UPDATE

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


def read_exchanges(trace: Trace) -> pl.DataFrame:
    """Return what a rank exchanged, in the order in which the host asked for it, with the schema `EXCHANGES`.

    A kernel that sends and receives, and of which the recording does not say what for, is of the kind `other`.
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

    Threads of the backend run the ranges later than they were asked for.
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
