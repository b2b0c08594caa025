"""The recording of a drawn job: names of its framework, records that are missing, time that is bent, ends cut off."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from benchmarks.cases import disturbances
from benchmarks.cases.dressing import dress
from benchmarks.cases.planted import put_on_device
from benchmarks.cases.played import read_machine, run
from benchmarks.cases.simulated import strip
from benchmarks.sealed.drawing import Drawn
from deepprof.collectors.trace import Trace
from deepprof.simulation.document import BASE_NS

__all__ = ["record", "whole_iterations"]


def record(drawn: Drawn) -> Trace:
    """Return what was recorded of the job."""
    machine, _ = run(replace(drawn.job, annotate=drawn.marked))
    played = put_on_device(read_machine(machine), drawn.mistakes)
    trace = leave_out(dress(played, drawn.flavour), drawn.missing)
    bent = disturbances.bend_time(trace, drawn.bend) if drawn.bend else trace
    return bent if drawn.cut == (0.0, 1.0) else disturbances.cut_part(bent, *drawn.cut)


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
    starts = drawn.truth.starts
    earliest, latest = bounds(trace, drawn)
    begin, end = (earliest + share * (latest - earliest) for share in drawn.cut)
    return sum(begin <= first and after <= end for first, after in pairwise(starts))


def bounds(trace: Trace, drawn: Drawn) -> tuple[float, float]:
    """Return the first and the last time of the capture before its ends were cut, on the job's own clock."""
    events = trace.device_events
    first, last = int(events["start_ns"].min()) - BASE_NS, int(events["end_ns"].max()) - BASE_NS  # type: ignore[arg-type]
    whole = (last - first) / (drawn.cut[1] - drawn.cut[0])
    return first - drawn.cut[0] * whole, last + (1 - drawn.cut[1]) * whole
