"""The names of other frameworks: one job as PyTorch, JAX, TensorFlow or a program of its own would have left it."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from benchmarks.cases.disturbances import drop_operators, rebuild
from deepprof.collectors.trace import ANNOTATIONS, Trace

__all__ = ["dress", "mark_step"]

KERNELS = {
    "jax": "{kind}_fusion_{n}",
    "tensorflow": "void tensorflow::functor::{kind}_{n}<Eigen::GpuDevice, float>(int, float const*, float*)",
    "native": "void solver::{kind}_{n}<double>(double*, double const*, int)",
}
LOADERS = {"jax": "next_batch", "tensorflow": "IteratorGetNext", "native": "load_batch"}
STEPS = {"jax": "step[train]#", "tensorflow": "step[train]#", "native": "iteration "}
KEPT = ("nccl", "void tensorflow::")
TORCH = r"^(?:Optimizer\.|autograd::|Torch-)"


def dress(trace: Trace, flavour: str) -> Trace:
    """Return the trace as a program of another framework would have left it: other names, no operators of PyTorch."""
    if flavour == "pytorch":
        return trace
    names = rename_kernels(trace, KERNELS[flavour])
    renamed = pl.Series(names).str.replace(r"^enumerate\(DataLoader\)#.*$", LOADERS[flavour])
    renamed = renamed.str.replace(r"^ProfilerStep#", STEPS[flavour])
    foreign = pl.col("name_id").is_in(renamed.str.contains(TORCH).arg_true().implode())
    dressed = replace(trace, names=renamed.alias(trace.names.name))
    return rebuild(drop_operators(dressed), annotations=dressed.annotations.filter(~foreign))


def rename_kernels(trace: Trace, pattern: str) -> list[str]:
    """Return all names, those of kernels after `pattern`; collectives and TensorFlow's own keep theirs."""
    used = trace.device_events.filter(pl.col("activity") == "kernel")["name_id"].unique().to_list()
    names = trace.names.to_list()
    for number in used:
        if not names[number].startswith(KEPT):
            kind = "gemm" if "gemm" in names[number] else "loop"
            names[number] = pattern.format(kind=kind, n=number)
    return names


def mark_step(trace: Trace) -> Trace:
    """Return the trace with the one device range of the line `Steps`, as XPlane has it."""
    work = trace.device_events
    values = {
        "start_ns": int(work["start_ns"].min()),  # type: ignore[arg-type]
        "end_ns": int(work["end_ns"].max()),  # type: ignore[arg-type]
        "side": "device",
        "device": 0,
        "name_id": len(trace.names),
        "framework": True,
    }
    row = pl.DataFrame([{name: values.get(name) for name in ANNOTATIONS.names()}], schema=ANNOTATIONS)
    named = replace(trace, names=trace.names.extend_constant("1", 1))
    return rebuild(named, annotations=pl.concat([trace.annotations, row]).sort("start_ns"))
