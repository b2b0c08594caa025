"""Iterations become slower over the capture although they do the same: clocks, other tenants, input, the network."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import format_ms
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.parts import COPY_PARTS, PART_NAMES
from deepprof.metrics.loop import Loop
from deepprof.metrics.series.changes import INSTALL, can_find_changes
from deepprof.metrics.series.drift import Drift, find_drift
from deepprof.metrics.series.growth import find_count_growth, find_interval_growth

CRITICAL = 0.3  # share of a late iteration that is lost; drift matters from a tenth on
MAIN_PART_SHARE = 0.5  # least share of the loss in one kind of time for that to be named
SAME = 0.02  # kernel counts per iteration that differ by less are the same work


class _GrowingPart(Struct, frozen=True):
    """A kind of time that may grow, and what to do when it does."""

    word: str
    parts: tuple[str, ...]
    title: str
    advice: str


CARRIERS = (
    _GrowingPart(
        "compute",
        ("compute_ns",),
        "The same kernels become slower",
        "Look at clocks, temperature and power over time (nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE; rocm-smi) "
        "and at other jobs on the same device. Cooling, a power limit or a noisy neighbour is the usual reason.",
    ),
    _GrowingPart(
        "input",
        ("idle_input_ns",),
        "Loading data becomes slower",
        "Look at the storage and the loader's workers over time: a cache that ran out, a queue that emptied, memory "
        "that fills up, other readers of the same disk.",
    ),
    _GrowingPart(
        "communication",
        ("exposed_communication_ns",),
        "Communication becomes slower",
        "Compare the ranks at the same iterations: either one of them became slower and the others wait, or the "
        "network did.",
    ),
    _GrowingPart(
        "copies",
        (*COPY_PARTS.values(), "exposed_memset_ns"),
        "Copies become slower",
        "Look at what shares the bus and the host's memory, and at the sizes copied.",
    ),
    _GrowingPart(
        "allocator",
        ("idle_allocator_ns",),
        "Allocating device memory takes longer and longer",
        "Memory is running short or into pieces: set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, pad shapes, and "
        "look for what is kept.",
    ),
    _GrowingPart(
        "another process",
        ("idle_shared_ns",),
        "Another process takes more and more of the device",
        "Move one of the jobs to another device, or let them use it at different times.",
    ),
    _GrowingPart(
        "host",
        ("idle_launch_ns", "idle_host_ns", "idle_sync_ns", "idle_first_use_ns", "idle_blocked_ns"),
        "The host becomes slower",
        "Look at the host over time: other processes on its cores, lists and logs that grow, garbage collection, "
        "clock limits.",
    ),
)
ANYTHING = _GrowingPart(
    "unknown",
    PART_NAMES,
    "Iterations become slower",
    "Compare an early iteration with a late one in a timeline, and record the host's side (operators, runtime calls).",
)


@rule("drift", explains={"slowing-kernels"})
def drift(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `drift` when late iterations need clearly longer than early ones and no growth explains it."""
    found = find_drift(loop)
    if found is None or find_interval_growth(loop) is not None or find_count_growth(loop) is not None:
        return
    carrier, share = _find_carrier(found)
    yield Finding(
        rule="drift",
        severity="critical" if found.share >= CRITICAL else "warning",
        title=carrier.title,
        summary=_summarize(found, carrier, share),
        evidence=_measure(found) | {"carrier": carrier.word, "carrier_share_ratio": round(share, 3)},
        advice=carrier.advice + _advise_library(found),
        headroom_ns_per_iteration=round(_mean_lost_ns(found, loop)),
        confidence=round(loop.confidence * found.separation * (0.7 if found.kind == "ends" else 1.0), 3),
        **loop.place,
        iterations=(int(found.late["index"][0]), int(found.late["index"][-1])),
        parts=_claim_parts(found, _mean_lost_ns(found, loop)),
    )


def _mean_lost_ns(found: Drift, loop: Loop) -> float:
    """Return what an iteration loses on average, early ones included."""
    return float((loop.usual["iteration_ns"] - found.before_ns).clip(lower_bound=0).mean() or 0.0)  # type: ignore[arg-type]


def _claim_parts(found: Drift, lost_ns: float) -> dict[str, int]:
    grown = {part: ns for part, ns in found.parts.items() if ns > 0}
    whole = max(1.0, sum(grown.values()))
    return {part: round(lost_ns * ns / whole) for part, ns in grown.items()}


def _find_carrier(found: Drift) -> tuple[_GrowingPart, float]:
    """Return the kind of time with most of the loss, and its share of it.

    A longer compute time means slower kernels only where the number of kernels is the same as before.
    """
    shares = [(c, sum(max(0.0, found.parts[p]) for p in c.parts) / max(1.0, found.lost_ns)) for c in CARRIERS]
    best, share = max(shares, key=lambda each: each[1])
    if share < MAIN_PART_SHARE or (best.word == "compute" and not _same_work(found)):
        return ANYTHING, 0.0
    return best, min(1.0, share)


def _same_work(found: Drift) -> bool:
    """Return whether late iterations run as many kernels as early ones."""
    before, after = (float(part["kernels"].median()) for part in (found.early, found.late))  # type: ignore[arg-type]
    return abs(after - before) <= SAME * before


def _summarize(found: Drift, carrier: _GrowingPart, share: float) -> str:
    when = {
        "shift": f"from iteration {found.at} on",
        "trend": "little by little",
        "ends": "between the first iterations and the last",
    }
    most = "" if carrier is ANYTHING else f" {100 * share:.0f} % of that is {WORDS[carrier.word]}."
    return (
        f"An iteration takes {format_ms(found.before_ns)} at first and {format_ms(found.after_ns)} later "
        f"({100 * found.lost_ns / max(1.0, found.before_ns):+.0f} %), {when[found.kind]}"
        f"{', with as many kernels as before' if _same_work(found) else ''}.{most}"
    )


WORDS = {
    "compute": "the same kernels taking longer",
    "input": "waiting for data",
    "communication": "waiting in collectives",
    "copies": "copying",
    "allocator": "allocating and freeing device memory",
    "another process": "waiting for another process on the device",
    "host": "waiting for the host",
}


def _measure(found: Drift) -> dict[str, int | float | str | None]:
    return {
        "kind": found.kind,
        "at_iteration": found.at,
        "early_median_ns": round(found.before_ns),
        "late_median_ns": round(found.after_ns),
        "early_iterations": found.early.height,
        "late_iterations": found.late.height,
        "separation_ratio": round(found.separation, 3),
        "share_ratio": round(found.share, 4),
        "lasting_ns_per_iteration": round(found.lost_ns),
    }


def _advise_library(found: Drift) -> str:
    """Return what to install where that would find the iteration at which the time changed."""
    if found.kind == "shift" or can_find_changes():
        return ""
    return f" `{INSTALL}` finds the iteration at which it changed."
