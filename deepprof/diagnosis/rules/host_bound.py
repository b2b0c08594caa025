"""The device waits while the host does other work than launching, or for an unknown cause between iterations."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.host_work import KINDS as WORDS
from deepprof.diagnosis.host_work import advise_on_work, find_awaited_by, is_work, name_work
from deepprof.diagnosis.judgement import CostClaim, FindingTexts, SeverityLimits, format_ms
from deepprof.diagnosis.rule import rule
from deepprof.metrics.breakdown.costs import cost_of, spans_of_parts, threads_of
from deepprof.metrics.breakdown.program_places import Place, find_own_place, find_place, measure_time_in
from deepprof.metrics.intervals import intervals_of
from deepprof.metrics.loop import Loop
from deepprof.metrics.spans import Spans, intersect

OTHER, UNKNOWN = ("idle_host_ns",), ("idle_unknown_ns",)
LIMITS = SeverityLimits(warning=0.15, critical=0.5)
UNSEEN = 0.75  # certainty that the host is the cause where the trace has no launch records
MOST = 0.5  # of the idle time of unknown cause: less between iterations is not what most of it is for
CAUSE = 2 / 3  # of the time: then the rest is less than half of what named work takes, and no loss by itself
NEARLY_ALL = 0.95  # of the time: work that uses less than that is not all that the host does
TITLE = "The device waits while the host does other work"
ADVICE = (
    "Find out what the host does between the last kernel of an iteration and the first of the next: logging, metrics, "
    "checkpoints, evaluation, Python work, loading data outside a DataLoader. Move it to another thread, or do it less "
    "often."
)


@rule("host-bound", parts=(*OTHER, *UNKNOWN), limits=LIMITS, explains={"slow-iterations"}, delays_rank=True)
def host_bound(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield `host-bound` when the host is busy with other work while the device idles.

    Where the trace has no launch records, idle time between iterations is attributed to the host with less confidence.
    """
    if loop.timeline is not None and loop.timeline.host is None:
        yield from _without_evidence(loop, trace)
        return
    claim, spans, threads = host_bound.claim(loop, OTHER), spans_of_parts(loop, OTHER), threads_of(loop)
    if claim is None or find_awaited_by(loop, trace) is not None:  # which `other_thread` names
        return
    place, own = find_place(trace, spans, threads), None if threads is None else find_own_place(trace, spans, threads)
    own = own if own and is_work(own) else None
    place = _leave_narrow_stage(trace, loop, place)
    inside_ns = _time_in_work(trace, spans, own, threads) / max(1, loop.usual.height)
    is_cause = inside_ns >= CAUSE * claim.cost.mean_ns
    if is_cause and inside_ns < NEARLY_ALL * claim.cost.mean_ns:
        claim = replace(claim, headroom_ns=inside_ns)
    doing = f" in {next(iter(place.values()))}" if place else ""
    texts = FindingTexts(
        title=f"The device waits while the host is in {name_work(own)}" if own and is_cause else TITLE,
        summary=(
            f"{claim.amount} the device is idle, and the host neither launches, waits nor "
            f"loads data: it does other work{doing}.{_say_inside(claim, own)}"
        ),
        advice=advise_on_work(name_work(own)) if own else ADVICE,
    )
    yield claim.conclude(texts, {}, place)


def _leave_narrow_stage(trace: Trace, loop: Loop, place: Place | None) -> Place | None:
    """Return the place without its range if that is a stage in which less than half of the unexplained time is."""
    if place is None or "range" not in place or is_work({"range": place["range"]}):
        return place
    unexplained = spans_of_parts(loop, (*OTHER, *UNKNOWN))
    if measure_time_in(trace, unexplained, place, "range") >= MOST * unexplained.total_ns:
        return place
    return {word: name for word, name in place.items() if word != "range"} or None


def _time_in_work(trace: Trace, spans: Spans, own: Place | None, threads: pl.DataFrame | None) -> int:
    """Return how much of the time is in the work that is named; 0 where none is."""
    if own is None:
        return 0
    return measure_time_in(trace, spans, own, next(word for word in WORDS if word in own), threads)


def _say_inside(claim: CostClaim, own: Place | None) -> str:
    """Return a sentence on how much of the time the work takes that is named, where that is not nearly all."""
    if own is None or claim.headroom_ns is None:
        return ""
    return f" {name_work(own)} takes {format_ms(claim.headroom_ns)} of that."


def _without_evidence(loop: Loop, trace: Trace) -> Iterator[Finding]:
    """Yield the finding for a large interval between iterations whose cause the trace does not show."""
    cost, intervals = cost_of(loop, UNKNOWN), intervals_of(loop)
    if cost is None or intervals is None:
        return
    between_ns = intersect(spans_of_parts(loop, UNKNOWN), intervals.spans).total_ns / intervals.iterations.height
    all_idle = CostClaim(rule="host-bound", loop=loop, cost=cost, parts=UNKNOWN, limits=LIMITS)
    share = between_ns / max(1.0, cost.whole_ns)
    between = replace(cost, mean_ns=min(cost.mean_ns, between_ns), usual_share=min(cost.usual_share, share))
    claim = replace(all_idle, cost=between, certainty=UNSEEN)
    if share < LIMITS.warning or between_ns < MOST * cost.mean_ns or not claim.holds:
        return
    place = find_place(trace, intervals.spans)
    meanwhile = f"; meanwhile the host is in {next(iter(place.values()))}" if place else ""
    texts = FindingTexts(
        title="The device waits between iterations for a reason that the trace does not show",
        summary=(
            f"{all_idle.amount} the device is idle, {format_ms(between_ns)} of that between iterations; the "
            f"trace has no launch records{meanwhile}."
        ),
        advice="Record the host's side too (runtime calls), so that the cause can be identified. " + ADVICE,
    )
    yield claim.conclude(texts, intervals.evidence(), place)
