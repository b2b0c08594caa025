"""The report for people: what one iteration is, how the run went, what costs time and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.render.breakdown import print_breakdown
from deepprof.render.page import Page
from deepprof.render.ranks import print_ranks
from deepprof.render.sharing import print_sharing
from deepprof.render.strip import draw_strip
from deepprof.render.units import format_bytes, format_confidence, format_count, format_duration, format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from deepprof.analysis import Analysis, Loop
    from deepprof.diagnosis.finding import Finding
    from deepprof.metrics.iteration import LoopMetrics

__all__ = ["print_report"]

LOOPS = 8  # printed in full; a job of 64 ranks has one per rank
PATHS = 3
NESTED = 3  # inner loops; JSON has all
NOTES = 4  # the same
PLACES = 4  # of repeated findings
MODELS = 4  # names of devices
STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "bold blue"}
ICONS = {"critical": "✖", "warning": "▲", "info": "●"}


def print_report(analysis: Analysis, console: Console, *, limit: int | None = 5) -> None:
    """Print the report on `console`, at its width, in ASCII where its encoding has no more; `limit` as in JSON."""
    page = Page(console)
    print_run(analysis, page)
    print_loops(analysis, page)
    if analysis.no_loop_reason:
        page.skip()
        page.line("No iteration found", "bold")
        page.line(analysis.no_loop_reason, indent=2)
        totals = {name: float(analysis.breakdown[name].sum()) for name in PART_NAMES}
        print_breakdown("where the devices' time goes", totals, page)
    print_ranks(analysis, page)
    print_sharing(analysis, page)
    print_findings(analysis, page, limit)


def print_run(analysis: Analysis, page: Page) -> None:
    """Print what was read and how busy the device was."""
    summary, recordings = analysis.summary, analysis.recordings
    names = [recording.path for recording in recordings[:PATHS]]
    more = [f"and {len(recordings) - PATHS} more"] if len(recordings) > PATHS else []
    page.line(", ".join(names + more), "bold")
    page.line(" · ".join(describe_run(analysis)))
    busy = summary.busy_ns / summary.span_ns if summary.span_ns else None
    page.line(f"span {format_duration(summary.span_ns)} · busy {format_ratio(busy)} · {count_events(analysis)}")
    print_notes([note for recording in recordings for note in recording.notes], page)


def print_notes(notes: Iterable[str], page: Page) -> None:
    """Print the first notes, each once, and how many more there are."""
    distinct = list(dict.fromkeys(notes))
    for note in distinct[:NOTES]:
        page.line(f"note: {note}", "yellow", hang=6)
    if len(distinct) > NOTES:
        page.line(f"… and {len(distinct) - NOTES} more (see --format json)", "yellow", indent=6)


def describe_run(analysis: Analysis) -> list[str]:
    """Return format, ranks and devices in words."""
    recordings = analysis.recordings
    formats = ", ".join(dict.fromkeys(recording.format for recording in recordings))
    ranks = f"rank {recordings[0].rank or 0}" if len(recordings) == 1 else format_count(len(recordings), "rank")
    models = [name for recording in recordings for name in recording.devices]
    again = sum(len(shared.processes) - 1 for shared in analysis.sharing)  # one device, seen by each of them
    devices = analysis.streams.select("rank", "device").n_unique() - again
    distinct = list(dict.fromkeys(models))
    kinds = ", ".join([*distinct[:MODELS], *(["…"] if len(distinct) > MODELS else [])])
    return [formats, ranks, format_count(devices, "device") + (f" ({kinds})" if kinds else "")]


def count_events(analysis: Analysis) -> str:
    """Return the device events by activity."""
    words = {
        "kernel": ("kernel", None),
        "memcpy": ("copy", "copies"),
        "memset": ("memset", None),
        "graph": ("graph launch", "graph launches"),
    }
    counts = [(analysis.summary.events.get(activity, 0), *noun) for activity, noun in words.items()]
    return ", ".join(format_count(*each) for each in counts if each[0]) or "no device events"


def print_loops(analysis: Analysis, page: Page) -> None:
    """Print the first loops, and which main streams have none."""
    several = len(analysis.loops) > 1
    spread = has_places(analysis)
    for number, loop in enumerate(analysis.loops[:LOOPS], 1):
        place = describe_place(loop.rank, loop.device, loop.stream) if spread else f"stream {loop.stream}"
        page.skip()
        page.line(f"{f'Loop {number}: ' if several else ''}{describe_iteration(loop)} on {place}", "bold")
        print_loop(loop, page)
    hidden = len(analysis.loops) - LOOPS
    if hidden > 0:
        page.skip()
        page.line(f"and {format_count(hidden, 'more loop')}; --format json has all of them", "dim")
    if analysis.missing:
        page.skip()
        print_notes(analysis.missing, page)


def has_places(analysis: Analysis) -> bool:
    """Return whether the job has more than one rank, device or loop, so that each must say where it is."""
    return len(analysis.loops) > 1 or analysis.streams.select("rank", "device").n_unique() > 1


def describe_place(rank: int, device: int | None, stream: int | None) -> str:
    """Return rank, device and stream in words, as far as they are known."""
    known = (("rank", rank), ("device", device), ("stream", stream))
    return ", ".join(f"{word} {value}" for word, value in known if value is not None)


def describe_iteration(loop: Loop) -> str:
    """Return what one iteration is."""
    return f"1 iteration = {format_count(loop.period, 'kernel')}"


def print_loop(loop: Loop, page: Page) -> None:
    """Print what is known of one loop: how sure it is, a bar per iteration and Table III."""
    for sentence in describe_loop(loop):
        page.line(sentence, indent=2)
    page.skip()
    for row, style in draw_strip(loop.iterations, page.width - 2, ascii_only=page.ascii):
        page.line(row, style, indent=2)
    page.skip()
    page.columns(list_metrics(loop.metrics), indent=2)
    usual = loop.usual
    if usual.height and loop.parts.height:
        means = usual.select(pl.col(PART_NAMES).mean()).row(0, named=True)
        print_breakdown(f"where the time goes, mean of {format_count(usual.height, 'iteration')}", means, page)


def describe_loop(loop: Loop) -> Iterable[str]:
    """Yield how many iterations there are, how sure that is and what repeats around and inside them."""
    spread = loop.metrics.iteration_ns
    median = f", median {format_duration(spread.median)}" if spread else ""
    partial = int((~loop.iterations["complete"]).sum())
    counted = format_count(loop.iterations.height, "iteration") + (f" ({partial} incomplete)" if partial else "")
    yield f"{counted}{median}, confidence {format_confidence(loop.confidence)}"
    yield describe_boundaries(loop)
    if loop.metrics.warmup_excluded:
        yield f"{format_count(loop.metrics.warmup_excluded, 'warm-up iteration')} not in the figures below"
    yield from describe_outside(loop)
    for cycle in loop.cycles:
        extra, kind = cycle.get("extra_events", 0), cycle.get("kind", "unknown")
        yield f"every {cycle.get('every')} iterations {extra:+,} kernels" + ("" if kind == "unknown" else f" ({kind})")
    for level in loop.nested[:NESTED]:
        yield f"inside: {level.get('repeats')} times {format_count(level.get('events', 0), 'kernel')}"


def describe_outside(loop: Loop) -> Iterable[str]:
    """Yield what ran before and after all iterations."""
    for name, part in (("before them", loop.prologue), ("after them", loop.epilogue)):
        if part.kernels:
            yield f"{name}: {format_count(part.kernels, 'kernel')} in {format_duration(part.span_ns)}"


def describe_boundaries(loop: Loop) -> str:
    """Return where an iteration begins and who says so."""
    sources = {
        "annotation": "the user's annotation",
        "framework": "the framework's ranges",
        "mined": "the kernels and their launches",
    }
    source = sources[loop.boundary_source]
    if loop.agreement is None:
        return f"boundaries from {source}: {loop.evidence}"
    agreement = loop.agreement
    met = f"{format_ratio(agreement.ratio)} of {agreement.iterations} {agreement.name} ranges agree"
    return f"boundaries from {source}: {loop.evidence}; {met}"


def list_metrics(metrics: LoopMetrics) -> list[tuple[str, str]]:
    """Return Table III with the paper's names."""
    return [
        ("avg interval", format_duration(metrics.avg_interval_ns)),
        ("max interval", format_duration(metrics.max_interval_ns)),
        ("avg overlap", format_ratio(metrics.avg_overlap_ratio)),
        ("avg operation", format_duration(metrics.avg_operation_ns)),
        ("avg size", format_bytes(metrics.avg_size_bytes)),
    ]


def print_findings(analysis: Analysis, page: Page, limit: int | None) -> None:
    """Print the findings, the first `limit` of them."""
    page.skip()
    if not analysis.findings:
        page.line("No findings" if analysis.loops else "No findings without an iteration to measure", "bold")
        return
    page.line("Findings", "bold")
    shown = analysis.findings[:limit]
    causes = [finding for finding in shown if finding.caused_by is None]
    for number, cause in enumerate(causes, 1):
        print_finding(cause, page, number, describe_cost(cause, analysis))
        print_symptoms([f for f in shown if f.caused_by == cause.rule], page)
        print_repetitions(cause, analysis.findings, page)
    hidden = [f for f in analysis.findings[len(shown) :] if f.rule != f.caused_by]
    if hidden:
        page.line(f"{format_count(len(hidden), 'more finding')}; --all shows them", "dim", indent=2)


def print_symptoms(symptoms: Iterable[Finding], page: Page) -> None:
    """Print what a cause explains, a line for each rule with the worst of its findings."""
    worst: dict[str, list[Finding]] = {}
    for finding in symptoms:
        if finding.rule != finding.caused_by:
            worst.setdefault(finding.rule, []).append(finding)
    for rule, (first, *others) in worst.items():
        cost = first.headroom_ns_per_iteration
        share = f", {format_duration(cost)} per iteration" if cost is not None else ""
        more = f"; {len(others)} more like it" if others else ""
        page.line(f"explains {rule}: {first.title}{share}{more}", "dim", indent=5, hang=2)


def print_repetitions(cause: Finding, findings: Iterable[Finding], page: Page) -> None:
    """Print on which other main streams the same was found."""
    again = [f for f in findings if f.rule == f.caused_by == cause.rule]
    places = [describe_place(f.rank, f.device, None) for f in again if f.rank is not None]
    more = f" and {len(places) - PLACES} more" if len(places) > PLACES else ""
    if places:
        page.line(f"the same on {'; '.join(places[:PLACES])}{more}", "dim", indent=5, hang=2)


def print_finding(finding: Finding, page: Page, number: int, costs: str) -> None:
    """Print one finding with what it costs and what to do."""
    style = STYLES[finding.severity]
    page.line(f"{number}. {ICONS[finding.severity]} {finding.severity} {finding.rule}: {finding.title}", style, hang=5)
    page.line(finding.summary, indent=5)
    page.line(costs, indent=5)
    page.line(f"→ {finding.advice}", "green", indent=5, hang=2)


def describe_cost(finding: Finding, analysis: Analysis) -> str:
    """Return headroom, place and confidence in one line."""
    parts = []
    if finding.headroom_ns_per_iteration is not None:
        share = describe_share(finding.headroom_ns_per_iteration, find_median(finding, analysis.loops))
        parts.append(f"up to {format_duration(finding.headroom_ns_per_iteration)} per iteration{share}")
    if finding.rank is not None:
        device, stream = (finding.device, finding.stream) if has_places(analysis) else (None, None)
        parts.append(describe_place(finding.rank, device, stream))
    if finding.iterations is not None:
        parts.append("iterations {} to {}".format(*finding.iterations))
    return " · ".join([*parts, f"confidence {format_confidence(finding.confidence)}"])


def describe_share(headroom_ns: int, median_ns: int | None) -> str:
    """Return the headroom as a share of the median, nothing where there is none."""
    return f" ({format_ratio(headroom_ns / median_ns)} of the median)" if median_ns else ""


def find_median(finding: Finding, loops: Iterable[Loop]) -> int | None:
    """Return the median iteration time of the loop that a finding is about; None where several could be meant."""
    wanted = (finding.rank, finding.device, finding.stream)
    meant = [loop for loop in loops if matches(wanted, (loop.rank, loop.device, loop.stream))]
    spread = meant[0].metrics.iteration_ns if len(meant) == 1 else None
    return spread.median if spread else None


def matches(wanted: Iterable[int | None], place: Iterable[int]) -> bool:
    """Return whether `place` is as wanted, where None is any."""
    return all(want in {None, have} for want, have in zip(wanted, place, strict=True))
