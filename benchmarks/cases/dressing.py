"""The names of other frameworks: one job as PyTorch, JAX, TensorFlow or its own program would have left it."""

from __future__ import annotations

import polars as pl
from msgspec.structs import replace

from benchmarks.cases.disturbances import drop_operators, rebuild
from deepprof.collectors.trace import ANNOTATIONS, Trace

__all__ = ["dress", "mark_step"]

KERNELS = {
    "jax": "{kind}_fusion_{n}",
    "tensorflow": "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<{kind}_{n}>, int>(int)",
    "native": "void solver::{kind}_{n}<double>(double*, double const*, int)",
}
LOADERS = {"jax": "next_batch", "tensorflow": "IteratorGetNext", "native": "load_batch"}
STEPS = {"jax": "step[train]#", "tensorflow": "step[train]#", "native": "iteration "}
KEPT = ("nccl", "void tensorflow::")
# TensorFlow computes elements by Eigen, products by the vendor's libraries, and the rest in its own operators.
BY_VENDOR = ("ampere_", "sm80_", "void cudnn::")
ELEMENTS = "elementwise_kernel<"
OPERATOR = "void Operator{n}Kernel<float>(float const*, float*, int)"
TORCH = r"^(?:Optimizer\.|autograd::|Torch-)"


def dress(trace: Trace, flavour: str) -> Trace:
    """Return the trace as a program of another framework would have left it: other names, no operators of PyTorch."""
    if flavour == "pytorch":
        return trace
    names = rename_kernels(trace, flavour)
    renamed = pl.Series(names).str.replace(r"^enumerate\(DataLoader\)#.*$", LOADERS[flavour])
    renamed = renamed.str.replace(r"^ProfilerStep#", STEPS[flavour])
    foreign = pl.col("name_id").is_in(renamed.str.contains(TORCH).arg_true().implode())
    dressed = replace(trace, names=renamed.alias(trace.names.name))
    return rebuild(drop_operators(dressed), annotations=dressed.annotations.filter(~foreign))


def rename_kernels(trace: Trace, flavour: str) -> list[str]:
    """Return all names, those of kernels as the framework would have; collectives and TensorFlow's own keep theirs."""
    used = trace.device_events.filter(pl.col("activity") == "kernel")["name_id"].unique().to_list()
    names = trace.names.to_list()
    for number in used:
        if not names[number].startswith(KEPT):
            names[number] = _name_kernel(names[number], number, flavour)
    return names


def _name_kernel(name: str, number: int, flavour: str) -> str:
    """Return what a framework calls a kernel that PyTorch calls `name`."""
    kind = "gemm" if "gemm" in name else "loop"
    if flavour != "tensorflow" or ELEMENTS in name:
        return KERNELS[flavour].format(kind=kind, n=number)
    return name if name.startswith(BY_VENDOR) else OPERATOR.format(n=number)


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
