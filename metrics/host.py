"""What the host did, prepared once per trace and read once per main stream: launches, waits, ranges."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.names import rows_named, with_names
from deepprof.metrics.spans import Spans, union

Int64s = npt.NDArray[np.int64]

WAITS = "Synchronize"
GRAPH_LAUNCHES = "GraphLaunch"
# "lamb" must not match C++'s lambda.
OPTIMIZER = r"(?i)multi_tensor_apply|adam|sgd|lamb(?:[^d]|$)|lars\b|rmsprop|adagrad|adafactor|momentum|optimizer"
MARKED_STEP, DRAWN_STEP = "step[", "step#"  # XLA's names for steps that the program marks, and that its profiler draws
INNER = ("nccl:", "gloo:", "rccl:", "ucc:")  # collectives come many times per iteration and mark nothing


class HostSide(Struct, frozen=True, eq=False):
    """The host's side of a trace.

    `launches` has a row per correlation: when its call began and ended (launch_ns, launched_ns), and on which thread
    (process, thread); `calls` is the time spent inside runtime calls; `waits_ns` are the ends
    of synchronisation calls, `graphs_ns` the starts of graph launches, both sorted; `optimizer` marks name ids;
    `ranges` are the closed annotations with their `family`, the name without numbers.
    """

    launches: pl.DataFrame
    calls: Spans
    waits_ns: Int64s
    graphs_ns: Int64s
    optimizer: npt.NDArray[np.bool_]
    ranges: pl.DataFrame


def read_host(trace: Trace) -> HostSide:
    """Return the host's side of a trace."""
    calls = trace.host_events.filter(pl.col("category") == "runtime")
    return HostSide(
        launches=read_launches(trace),
        calls=union(calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()),
        waits_ns=rows_named(calls, trace.names, WAITS)["end_ns"].sort().to_numpy(),
        graphs_ns=rows_named(calls, trace.names, GRAPH_LAUNCHES)["start_ns"].to_numpy(),
        optimizer=trace.names.str.contains(OPTIMIZER).fill_null(value=False).to_numpy(),
        ranges=_read_ranges(trace),
    )


def read_launches(trace: Trace) -> pl.DataFrame:
    """Return the runtime calls that launched something: the columns of `HostSide.launches`."""
    linked = trace.host_events.filter((pl.col("category") == "runtime") & pl.col("correlation").is_not_null())
    return linked.unique("correlation", keep="first", maintain_order=True).select(
        "correlation", "process", "thread", launch_ns="start_ns", launched_ns="end_ns"
    )


def _read_ranges(trace: Trace) -> pl.DataFrame:
    """Return the closed annotations with `name` and `family`: the host's, or the devices' where it has none.

    The steps that a profiler draws on the device count where the host marks none (`step[train]#7`).
    """
    closed = with_names(trace.annotations.filter(pl.col("end_ns") > pl.col("start_ns")), trace.names)
    host = closed.filter(pl.col("side") == "host")
    named = host if host.height else closed
    if host.height and not host["name"].str.starts_with(MARKED_STEP).any():
        named = closed.filter((pl.col("side") == "host") | pl.col("name").str.starts_with(DRAWN_STEP))
    return named.filter(~is_inner()).with_columns(family=family())


def is_inner() -> pl.Expr:
    """Return whether a range with a `name` column marks no iteration."""
    return pl.any_horizontal(pl.col("name").str.starts_with(prefix) for prefix in INNER)


def family() -> pl.Expr:
    """Return the name without numbers."""
    return pl.col("name").str.replace(r"#?\d+$", "").str.replace_all(r"\d+", "#")
