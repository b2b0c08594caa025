"""The kernels of a loop with what they compute, stream by stream: what rules on neighbouring kernels examine."""

from __future__ import annotations

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.kernels.classify import KernelKinds
from deepprof.metrics.names import are_named
from deepprof.metrics.operators import is_stand_in

JOINED = (
    "elementwise",
    "cast",
    "reduction",
    "random",
    "layout",
)  # what a compiler fuses with what is before or behind it
UNCLEAR = ("cast",)  # on a CPU, where the operator may do nothing, or copy from a device
# Libraries of operators that run as they are called; compilers fuse by themselves, libraries of products have none.
OPERATOR_LIBRARIES = r"^(?:PyTorch ATen|TensorFlow)"
SINGLE = r"^wrapped_"  # XLA's name of an instruction in a program with no other that could be joined to it
COMPILED = r"^XLA"  # operators, too, where each is its own program
EXECUTION = r"^GpuExecutable::Execute|^TpuExecutable::Execute"  # ranges of the host around one program of XLA
MODULES = "XlaModule"  # the NVTX domain in which XLA names the program that runs
FEW = 2.0  # kernels for every program: a block of a model has more
FOREACH = ("foreach", "fused")  # algorithms over lists of tensors
ORDER = ("window", "stream", "start_ns", "event")


def list_typed(trace: Trace, kinds: KernelKinds, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return `kernels` of `list_kernels` with their kinds, stream by stream in the order of time.

    The columns are those of `list_kernels` and of the table of kinds; `of_operator` is whether a single operator of a
    framework launched it, so that a compiler could fuse it, and `operation` a number of what it computes.
    """
    compiled = pl.col("library").str.contains(COMPILED)
    joined = JOINED if not is_stand_in(trace) else [each for each in JOINED if each not in UNCLEAR]
    single = pl.col("name").str.contains(SINGLE) & (pl.col("category") == "elementwise")
    alone = (pl.lit(_are_single_programs(trace)) | single) & compiled
    known = kinds.table.with_columns(
        compiled=compiled.fill_null(value=False),
        of_operator=pl.col("category").is_in(joined)
        & (pl.col("library").str.contains(OPERATOR_LIBRARIES) | alone).fill_null(value=False)
        & ~pl.col("algorithm").is_in(FOREACH).fill_null(value=False),
    ).with_row_index("kind")
    rows = kernels.join(known.cast({"kind": pl.Int64}), on="kind", how="left", maintain_order="left")
    # XLA numbers its kernels in every program anew: equal names are no equal operations.
    own = pl.when("compiled").then(-2 - pl.col("event").cast(pl.Int64)).otherwise("kind")
    return rows.with_columns(
        pl.col("category").fill_null("unknown"), pl.col("of_operator").fill_null(value=False), operation=own
    ).sort(ORDER, maintain_order=True)


def _are_single_programs(trace: Trace) -> bool:
    """Return whether XLA's programs have hardly more than one kernel each: every operator is compiled for itself."""
    named = are_named(trace.names, trace.host_events["name_id"], EXECUTION)
    programs = int(named.sum()) + trace.annotations.filter(pl.col("domain") == MODULES).height
    kernels = trace.device_events.filter(pl.col("activity").is_in(["kernel"])).height
    return programs > 0 and kernels <= FEW * programs
