"""Whether a recording shows enough of what a device computes, and how findings on it name kernels."""

from __future__ import annotations

import polars as pl

from deepprof.collectors.names.short import shorten
from deepprof.diagnosis.judgement import format_ms, format_percent
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.plurals import counted, verb

FEWEST_KERNELS = 50  # with fewer, that use less than a millisecond, it is a test or a fragment of a job
SHORTEST_NS = 1_000_000
SHORTEST_WORK_NS = 2_000_000  # of computing in the recording: shares of less state little about a job
LEAST_BUSY = 0.02  # of the time: a device that hardly works has no work to make faster
LEAST_OF_KERNELS = 0.05  # of the time of all kernels: what is less does not matter next to the collectives
SHOWN = 2  # kernels that a sentence names
NAME_CHARS = 60  # of the name of one: those of Tensile have hundreds
MOSTLY = 0.5  # of the time of kernels: names that do not prove a kind make a finding less certain
UNSURE = 0.75  # of the certainty


def is_enough(seen: LoopWork) -> bool:
    """Return whether this much of the device's work was recorded that its shares mean something."""
    kernels = seen.work.kernels
    many, length_ns = float(kernels["kernels"].sum()), _add_lengths(seen)
    return seen.iterations * many >= FEWEST_KERNELS or seen.iterations * length_ns >= SHORTEST_NS


def share_of_kernels(seen: LoopWork, ns: float) -> float:
    """Return a time as a share of that of all kernels, collectives included."""
    return ns / max(1.0, seen.work.time_ns)


def weigh_names(kernels: pl.DataFrame, certainty: float) -> float:
    """Return the certainty, less where most of the kernels' time is of names that do not prove their kind."""
    whole, sure = float(kernels["time_ns"].sum()), float(kernels.filter("sure")["time_ns"].sum())
    return certainty if sure >= MOSTLY * whole else UNSURE * certainty


def describe_kernels(seen: LoopWork, kernels: pl.DataFrame) -> str:
    """Return how many kernels run, for how long, and the names of those with most time."""
    names = [_cut_name(name) for name in kernels.sort("time_ns", descending=True)["name"]]
    named = ", ".join(list(dict.fromkeys(names))[:SHOWN])
    where = write_per(seen)
    count, taken_ns = float(kernels["kernels"].sum()), float(kernels["time_ns"].sum())
    takes = verb(count, "takes", "take")
    return f"{counted(count, 'kernel')} {where} {takes} {format_ms(taken_ns)}, most of it in {named}"


def name_whole(seen: LoopWork) -> str:
    """Return what an amount is a part of, in words."""
    return seen.loop.unit


def _cut_name(name: str) -> str:
    """Return a kernel's name short enough for a sentence."""
    short = shorten(name)
    return short if len(short) <= NAME_CHARS else f"{short[: NAME_CHARS - 1]}…"


def is_at_work(seen: LoopWork) -> bool:
    """Return whether the device did enough work to conclude something from how it spends its time."""
    return is_enough(seen) and seen.busy_ratio >= LEAST_BUSY and seen.recorded_ns >= SHORTEST_WORK_NS


def is_large(seen: LoopWork, ns: float, least_share: float) -> bool:
    """Return whether a time per iteration is this much of the computing time, and not small next to the collectives.

    These count whole, hidden behind computing or not: where they rule, computing does not decide.
    """
    return seen.work_share(ns) >= least_share and ns >= LEAST_OF_KERNELS * _add_lengths(seen)


def _add_lengths(seen: LoopWork) -> float:
    kernels = seen.work.kernels
    return float((kernels["kernels"] * kernels["mean_ns"]).sum())


def write_share(share: float) -> str:
    """Return a share of the computing time as titles have it."""
    return f"{format_percent(share)} of the computing time"


def write_per(seen: LoopWork) -> str:
    """Return what counts refer to, in words."""
    return seen.loop.per_unit
