"""Some iterations last much longer than the others: which, how much, and what they have in common."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.diagnosis import Severity
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import format_ms
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.parts import COPY_PARTS, PART_NAMES
from deepprof.metrics.breakdown.program_places import find_place
from deepprof.metrics.loop import Loop
from deepprof.metrics.series.outliers import RECORDED, WARNING, Outliers, extra_spans, find_slow

CRITICAL = 0.3  # of the time of all iterations together
COMMON_CAUSE_SHARE = 0.5  # least share of the additional time for a cause to be the common one
NAMED = 6  # slow iterations that the summary lists
SEEN = {1: 0.5, 2: 0.75}  # confidence that this many slow iterations are typical of the job; more: 0.9
CHANCE = 1  # a single slow iteration is reported as info


class _SlowCause(Struct, frozen=True):
    """What slow iterations may have in common: the parts of the time that grow in them, and the texts about it.

    `sign` is the column that distinguishes it from another cause with the same parts, if any.
    """

    word: str
    parts: tuple[str, ...]
    title: str
    advice: str
    sign: str | None = None


CAUSES = (
    _SlowCause(
        "input",
        ("idle_input_ns",),
        "Some iterations wait for data",
        "Find out what is slow about these batches: large or remote files, a cold cache, workers that start again. "
        "A deeper queue (prefetch_factor, more workers) rides out single slow batches.",
    ),
    _SlowCause(
        "allocator",
        ("idle_allocator_ns",),
        "Some iterations wait for the allocation of device memory",
        "Sizes that no iteration had before make the allocator ask the driver: pad or bucket shapes, "
        "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, leave empty_cache() out of the loop.",
    ),
    _SlowCause(
        "builds",
        ("idle_launch_ns", "idle_host_ns", "idle_first_use_ns", "idle_sync_ns"),
        "Some iterations compile code or capture graphs",
        "A shape that is new makes the compiler or the graph start again: pad or bucket shapes, mark dimensions as "
        "dynamic, warm up with all shapes that occur.",
        sign="builds",
    ),
    _SlowCause(
        "first use",
        ("idle_first_use_ns",),
        "Some iterations use something for the first time: code is loaded",
        "Run such an iteration before the training that counts; CUDA_MODULE_LOADING=EAGER loads all code at the start.",
    ),
    _SlowCause(
        "blocked call",
        ("idle_blocked_ns",),
        "Some iterations are blocked in one call of the host",
        "Find out what holds the call: a lock of the driver that another thread has, memory that is swapped, other "
        "processes on the same cores.",
    ),
    _SlowCause(
        "communication",
        ("exposed_communication_ns",),
        "Some iterations wait for other ranks",
        "Look at the other ranks at the same iterations: the collectives last until the slowest one arrives.",
    ),
    _SlowCause(
        "copies",
        (*COPY_PARTS.values(), "exposed_memset_ns"),
        "Some iterations copy more than the others",
        "Find what is copied in these iterations (checkpoints, logged tensors, larger batches) and overlap the copies "
        "with computation: pinned memory, non_blocking=True, a separate stream.",
    ),
    _SlowCause(
        "additional kernels",
        ("compute_ns",),
        "Some iterations run additional kernels",
        "Find what these iterations do besides training (evaluation, statistics, logging) and whether it is needed as "
        "often; batches of other sizes make other kernels.",
        sign="kernels",
    ),
    _SlowCause(
        "slower kernels",
        ("compute_ns",),
        "The same kernels take longer in some iterations",
        "Look at clocks, temperature and power (nvidia-smi -q -d PERFORMANCE, rocm-smi) and at other jobs on the same "
        "device.",
    ),
    _SlowCause(
        "another process",
        ("idle_shared_ns",),
        "Some iterations wait for another process on the device",
        "Move one of the jobs to another device, or let them use it at different times.",
    ),
    _SlowCause(
        "host",
        ("idle_host_ns", "idle_first_use_ns", "idle_blocked_ns", "idle_launch_ns", "idle_sync_ns"),
        "Some iterations wait for the host",
        "Find out what the host does in these iterations: checkpoints, logging, garbage collection, other processes "
        "on the same cores. Move it to another thread, or do it less often.",
    ),
)
RECORDER = _SlowCause(
    "recorder",
    (RECORDED,),
    "The profiler makes some iterations slow",
    "Without it they are as fast as the others; a larger buffer or a shorter recording makes it write less often.",
)
UNKNOWN = _SlowCause(
    "unknown",
    (),
    "Some iterations take much longer than the others",
    "Compare a slow iteration with its neighbours in a timeline; a longer recording with the host's side "
    "(operators, runtime calls) shows more.",
)


@rule("slow-iterations")
def slow_iterations(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `slow-iterations` when irregular slow iterations, or those of a recognized cycle, cost much."""
    slow = find_slow(loop)
    if slow.recorded is not None:
        yield _describe(loop, trace, slow.recorded, RECORDER)
    if slow.irregular is not None:
        yield _describe(loop, trace, slow.irregular)
    if slow.cyclic is not None and slow.every is not None:
        yield _describe_cycle(loop, slow.cyclic, slow.every)


def _find_cause(outliers: Outliers) -> tuple[_SlowCause, float]:
    """Return the cause of most of the additional time, and its share of it."""
    shares = [(cause, _share_of(cause, outliers)) for cause in CAUSES]
    best, share = max(shares, key=lambda each: each[1])
    return (best, share) if share >= COMMON_CAUSE_SHARE else (UNKNOWN, 0.0)


def _share_of(cause: _SlowCause, outliers: Outliers) -> float:
    """Return the share of the additional time in the parts of `cause`, in iterations that have its sign."""
    rows = outliers.rows if cause.sign is None else outliers.rows.filter(outliers.rows[cause.sign] > 0)
    grown = sum(float(rows[part].clip(lower_bound=0).sum()) for part in cause.parts)
    return min(1.0, grown / max(1.0, outliers.extra_ns))


def severity(outliers: Outliers, cause: _SlowCause) -> Severity:
    """Return how bad the loss is; the profiler's own cost is not the job's fault."""
    if cause is RECORDER or outliers.rows.height <= CHANCE or outliers.share < WARNING:
        return "info"
    return "critical" if outliers.share >= CRITICAL else "warning"


def _describe(loop: Loop, trace: Trace, outliers: Outliers, known: _SlowCause | None = None) -> Finding:
    """Return the finding on irregular slow iterations, whose cause may be `known`."""
    cause, share = (known, _share_of(known, outliers)) if known else _find_cause(outliers)
    rows, count = outliers.rows, outliers.rows.height
    place = find_place(trace, extra_spans(loop, rows, cause.parts)) if cause.parts else None
    return Finding(
        rule="slow-iterations",
        severity=severity(outliers, cause),
        title=cause.title,
        summary=(
            f"{count} of {outliers.iterations} iterations ({_list_indices(outliers)}) took on average "
            f"{format_ms(outliers.extra_ns / count)} longer than those around, {100 * outliers.share:.0f} % of "
            f"the time of all. {_say_common(cause, share, outliers)}"
        ),
        evidence=_measure(outliers)
        | {"cause": cause.word, "cause_share_ratio": round(share, 3)}
        | _differences(outliers),
        advice=cause.advice,
        headroom_ns_per_iteration=round(outliers.headroom_ns),
        confidence=round(loop.confidence * SEEN.get(count, 0.9), 3),
        **loop.place,
        iterations=(int(rows["index"][0]), int(rows["index"][-1])),
        location=place,
        parts=_claim_parts(loop, outliers),
    )


def _describe_cycle(loop: Loop, outliers: Outliers, every: int) -> Finding:
    """Return the remark on slow iterations that come every this many iterations, which is on purpose."""
    kind = next((str(c["kind"]) for c in loop.cycles if c["every"] == every), "unknown")
    purpose = "" if kind == "unknown" else f" ({kind})"
    return Finding(
        rule="slow-iterations",
        severity="info",
        title=f"One in {every} iterations takes longer",
        summary=(
            f"Every {every} iterations one{purpose} takes "
            f"{format_ms(outliers.extra_ns / outliers.rows.height)} longer than those around it, "
            f"{100 * outliers.share:.0f} % of the time of all."
        ),
        evidence=_measure(outliers) | {"every": every, "kind": kind},
        advice="If it is not needed that often, do it less often, or in parallel with training.",
        headroom_ns_per_iteration=round(outliers.headroom_ns),
        confidence=round(loop.confidence * 0.9, 3),
        **loop.place,
        iterations=(int(outliers.rows["index"][0]), int(outliers.rows["index"][-1])),
        parts=_claim_parts(loop, outliers),
    )


def _claim_parts(loop: Loop, outliers: Outliers) -> dict[str, int]:
    """Return the additional time by part, per usual iteration, of which stalls are none; together at most that time."""
    usual = outliers.among(outliers.rows["index"].is_in(loop.usual["index"].implode()).to_numpy())
    grown = {part: float(usual.rows[part].clip(lower_bound=0).sum()) for part in PART_NAMES}
    scale = min(1.0, usual.extra_ns / max(1.0, sum(grown.values()))) / max(1, loop.usual.height)
    return {part: round(ns * scale) for part, ns in grown.items() if round(ns * scale)}


def _list_indices(outliers: Outliers) -> str:
    """Return the numbers of the slow iterations, the first few of many."""
    indices = [str(index) for index in outliers.rows["index"].head(NAMED).to_list()]
    return ", ".join(indices) + (", …" if outliers.rows.height > NAMED else "")


def _say_common(cause: _SlowCause, share: float, outliers: Outliers) -> str:
    if cause is UNKNOWN:
        return "What they have in common does not show in the trace."
    kernels = float(outliers.rows["kernels"].mean() or 0.0)  # type: ignore[arg-type]
    more = f" ({kernels:+.0f} kernel{'s' * (round(abs(kernels)) != 1)} each)" if cause.sign == "kernels" else ""
    return f"{100 * share:.0f} % of that is {WORDS[cause.word]}{more}."


WORDS = {
    "input": "waiting for data",
    "allocator": "allocating and freeing device memory",
    "first use": "loading code or starting a library",
    "blocked call": "a call that is blocked",
    "builds": "building code or graphs",
    "communication": "waiting in collectives",
    "copies": "copying",
    "additional kernels": "computing more",
    "slower kernels": "the same kernels taking longer",
    "another process": "waiting for another process on the device",
    "host": "waiting for the host",
    "recorder": "the profiler's own work",
}


def _measure(outliers: Outliers) -> dict[str, int | float | str | None]:
    """Return the numbers that a finding on slow iterations rests on."""
    return {
        "slow_iterations": outliers.rows.height,
        "iterations": outliers.iterations,
        "extra_ns_per_slow_iteration": round(outliers.extra_ns / max(1, outliers.rows.height)),
        "slowest_ns": max(outliers.rows["iteration_ns"].to_list(), default=None),
        "share_ratio": round(outliers.share, 4),
    }


def _differences(outliers: Outliers) -> dict[str, int | float | str | None]:
    """Return the mean differences in the counts of a slow iteration, without those near zero."""
    named = ("kernels", "launches", "waits", "allocations", "builds", "htod_bytes")
    means = {f"additional_{name}": float(outliers.rows[name].mean() or 0.0) for name in named}  # type: ignore[arg-type]
    return {name: round(mean, 2) for name, mean in means.items() if abs(mean) >= 0.5}
