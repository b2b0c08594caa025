"""The recording of a drawn job: names of its framework, records that are missing, time that is bent, ends cut off."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from benchmarks.cases import disturbances
from benchmarks.cases.played import read_machine, run
from benchmarks.cases.simulated import strip
from benchmarks.sealed.drawing import Drawn
from deepprof.collectors.trace import Trace
from deepprof.simulation.document import BASE_NS

__all__ = ["dress", "record", "whole_iterations"]

KERNELS = {
    "jax": "{kind}_fusion_{n}",
    "tensorflow": "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<{kind}_{n}>, int>(int)",
    "native": "void solver::{kind}_{n}<double>(double*, double const*, int)",
}
LOADERS = {"jax": "next_batch", "tensorflow": "IteratorGetNext", "native": "load_batch"}
STEPS = {"jax": "step[train]#", "tensorflow": "step[train]#", "native": "iteration "}
KEPT = ("nccl", "void tensorflow::")
TORCH = r"^(?:Optimizer\.|autograd::|Torch-)"


def record(drawn: Drawn) -> Trace:
    """Return what was recorded of the job."""
    machine, _ = run(drawn.job, annotate=drawn.marked)
    trace = leave_out(dress(read_machine(machine), drawn.flavour), drawn.missing)
    bent = disturbances.bend_time(trace, drawn.bend) if drawn.bend else trace
    return bent if drawn.cut == (0.0, 1.0) else disturbances.cut_part(bent, *drawn.cut)


def dress(trace: Trace, flavour: str) -> Trace:
    """Return the trace as a program of another framework would have left it: other names, no operators of PyTorch."""
    if flavour == "pytorch":
        return trace
    names = rename_kernels(trace, KERNELS[flavour])
    renamed = pl.Series(names).str.replace(r"^enumerate\(DataLoader\)#.*$", LOADERS[flavour])
    renamed = renamed.str.replace(r"^ProfilerStep#", STEPS[flavour])
    foreign = pl.col("name_id").is_in(renamed.str.contains(TORCH).arg_true().implode())
    dressed = replace(trace, names=renamed.alias(trace.names.name))
    return disturbances.rebuild(
        disturbances.drop_operators(dressed), annotations=dressed.annotations.filter(~foreign)
    )


def rename_kernels(trace: Trace, pattern: str) -> list[str]:
    """Return all names, those of kernels after `pattern`; collectives and TensorFlow's own keep theirs."""
    used = trace.device_events.filter(pl.col("activity") == "kernel")["name_id"].unique().to_list()
    names = trace.names.to_list()
    for number in used:
        if not names[number].startswith(KEPT):
            kind = "gemm" if "gemm" in names[number] else "loop"
            names[number] = pattern.format(kind=kind, n=number)
    return names


def leave_out(trace: Trace, missing: str) -> Trace:
    """Return the trace without a kind of records."""
    match missing:
        case "operators":
            return disturbances.drop_operators(trace)
        case "ranges":
            return disturbances.drop_ranges(trace)
        case "launch records":
            return disturbances.drop_calls(trace)
        case "the host":
            return strip(trace)
    return trace


def whole_iterations(drawn: Drawn, trace: Trace) -> int:
    """Return how many of the job's iterations are whole in what is left of the trace, by their share of the kernels."""
    left, lasts = drawn.cut
    starts = drawn.truth.starts
    machine_first, machine_last = bounds(trace, drawn)
    begin = machine_first + left * (machine_last - machine_first)
    end = machine_first + lasts * (machine_last - machine_first)
    return sum(begin <= first and after <= end for first, after in zip(starts, starts[1:], strict=False))


def bounds(trace: Trace, drawn: Drawn) -> tuple[float, float]:
    """Return the first and the last time of the capture before its ends were cut, on the job's own clock."""
    events = trace.device_events
    first, last = int(events["start_ns"].min()) - BASE_NS, int(events["end_ns"].max()) - BASE_NS  # type: ignore[arg-type]
    whole = (last - first) / (drawn.cut[1] - drawn.cut[0])
    return first - drawn.cut[0] * whole, last + (1 - drawn.cut[1]) * whole
