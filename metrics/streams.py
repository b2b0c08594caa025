"""Stream roles: main, copy and assist as the paper defines them (Gu et al., section IV-A), and communication."""

from __future__ import annotations

import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import Trace
from deepprof.metrics.names import with_names

ROLES = ("main", "copy", "assist", "communication")
STREAMS = TableSchema.of(
    "One stream of a device, and its role.",
    {
        "device": (pl.UInt16(), "the number of the device"),
        "stream": (pl.Int64(), "the stream"),
        "role": (
            pl.Enum(ROLES),
            "main: computes longest; communication: collectives; copy: copies only; assist: else",
        ),
        "events": (pl.UInt32(), "device events on it, without waits"),
        "kernels": (pl.UInt32(), "kernels on it, launches of whole graphs included"),
        "collectives": (pl.UInt32(), "those of the kernels that are collectives"),
        "busy_ns": (pl.Int64(), "how long it works: the union of kernels, copies, memsets and graphs"),
    },
)
# NCCL and RCCL device kernels: ncclKernel_*, ncclDevKernel_*, and the generic ones of newer releases. Ranges such as
# gloo:all_reduce are device events only in the CPU fallback (metrics/operators.py).
COLLECTIVE_RANGE = r"^(?:nccl|gloo|mpi|ucc):"
COLLECTIVE_OPERATOR = (
    r"^c10d::"  # their calls; ranges of a backend, if any, last until the collective is done, calls do not
)
# Of what the host recorded: all of these, and the range that PyTorch puts around them.
HOST_COLLECTIVE = rf"{COLLECTIVE_RANGE}|{COLLECTIVE_OPERATOR}|^record_param_comms"
# XLA's own names, where a recorder gives the operations of its programs instead of kernels (nsys-jax).
COLLECTIVE_HLO = (
    r"^(?:all-gather|all-reduce|reduce-scatter|(?:ragged-)?all-to-all|collective-(?:permute|broadcast))"
    r"(?:-start|-done)?(?:\.|$)"
)
FEW_KERNELS = 0.05  # of the copies, and of their time: so few kernels show no iteration
COLLECTIVE = rf"^(?:void )?(?:nccl|rccl)\w*Kernel|{COLLECTIVE_RANGE}|{COLLECTIVE_OPERATOR}|{COLLECTIVE_HLO}"


def is_collective() -> pl.Expr:
    """Return whether a device event with a `name` column is a collective of NCCL, RCCL, XLA or a CPU's backend."""
    return pl.col("name").str.contains(COLLECTIVE) & (pl.col("activity") == "kernel")


def is_mostly_copies(events: pl.DataFrame) -> bool:
    """Return whether device events are copies with hardly any kernels, in number and in time."""
    taken = pl.col("end_ns") - pl.col("start_ns")
    sums = events.group_by("activity").agg(calls=pl.len(), ns=taken.sum())
    known = {activity: (calls, ns) for activity, calls, ns in sums.iter_rows()}
    calls, ns = (sum(each) for each in zip(*(known.get(name, (0, 0)) for name in ("kernel", "graph")), strict=True))
    copies, copying_ns = known.get("memcpy", (0, 0))
    return bool(copies and calls <= FEW_KERNELS * copies and ns <= FEW_KERNELS * copying_ns)


def classify_streams(trace: Trace, chosen: tuple[int, int] | None = None) -> pl.DataFrame:
    """Return one row per (device, stream) with its role.

    Main is the stream of its device whose kernels run longest, collectives not counted; `chosen` overrides it. A stream
    whose kernels are mostly collectives is communication, one with copies and no kernel is copy, the rest assist.
    The schema is `STREAMS`.
    """
    events = with_names(trace.device_events, trace.names).filter(pl.col("activity") != "sync")
    work = pl.col("activity").is_in(["kernel", "graph"])
    rows = (
        events.group_by("device", "stream", maintain_order=True)
        .agg(
            events=pl.len(),
            kernels=work.sum(),
            collectives=is_collective().sum(),
            copies=(pl.col("activity") == "memcpy").sum(),
            busy_ns=busy_time(),
            computing_ns=_computing_time(),
        )
        .sort("device", "stream")
    )
    return rows.with_columns(role=_role(chosen)).select(STREAMS.names()).cast(dict(STREAMS))  # type: ignore[arg-type]


def busy_time() -> pl.Expr:
    """Return the length of the union of the group's events, which are sorted by start."""
    reach = pl.col("end_ns").cum_max().shift(1).fill_null(pl.col("start_ns").first())
    return (pl.col("end_ns") - pl.max_horizontal("start_ns", reach)).clip(lower_bound=0).sum()


def _computing_time() -> pl.Expr:
    """Return how long the group's kernels and graphs ran, collectives not counted."""
    work = pl.col("activity").is_in(["kernel", "graph"]) & ~is_collective()
    return (pl.col("end_ns") - pl.col("start_ns")).filter(work).sum()


def _role(chosen: tuple[int, int] | None) -> pl.Expr:
    """Return the role of each (device, stream) row; on a tie the stream with more kernels is main."""
    computing = pl.col("kernels") - pl.col("collectives").cast(pl.Int64)
    score = pl.struct("computing_ns", computing.alias("computing"), low=-pl.col("stream")).rank(
        "ordinal", descending=True
    )
    main = (score.over("device") == 1) & (computing > 0)
    if chosen is not None:
        main = (pl.col("device") == chosen[0]) & (pl.col("stream") == chosen[1])
    return (
        pl.when(main)
        .then(pl.lit("main"))
        .when(pl.col("collectives") * 2 > pl.col("kernels"))
        .then(pl.lit("communication"))
        .when((pl.col("copies") > 0) & (pl.col("kernels") == 0))
        .then(pl.lit("copy"))
        .otherwise(pl.lit("assist"))
        .cast(pl.Enum(ROLES))
    )
