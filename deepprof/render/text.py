"""The report for people: what one iteration is, how the run went, what costs time and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.render.page import Page
from deepprof.render.strip import draw_strip
from deepprof.render.units import format_bytes, format_count, format_duration, format_ratio

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
STYLES = {"critical": "bold red", "warning": "bold yellow", "info": "bold blue"}
ICONS = {"critical": "✖", "warning": "▲", "info": "●"}


def print_report(analysis: Analysis, console: Console, *, limit: int | None = 5) -> None:
    """Print the report on `console`, at its width, in ASCII where its encoding has no more; `limit` as in JSON."""
    page = Page(console)
    print_run(analysis, page)
    for number, loop in enumerate(analysis.loops[:LOOPS], 1):
        print_loop(loop, page, number if len(analysis.loops) > 1 else None)
    hidden = len(analysis.loops) - LOOPS
    if hidden > 0:
        page.skip()
        page.line(f"and {format_count(hidden, 'more loop')}; --format json has all of them", "dim")
    if analysis.no_loop_reason:
        page.skip()
        page.line("No iteration found", "bold")
        page.line(analysis.no_loop_reason, indent=2)
    print_findings(analysis, page, limit)


def print_run(analysis: Analysis, page: Page) -> None:
    """Print what was read and how busy the device was."""
    summary, traces = analysis.summary, analysis.traces
    names = [trace.path for trace in traces[:PATHS]]
    more = [f"and {len(traces) - PATHS} more"] if len(traces) > PATHS else []
    page.line(", ".join(names + more), "bold")
    page.line(" · ".join(describe_run(analysis)))
    busy = summary.busy_ns / summary.span_ns if summary.span_ns else None
    page.line(f"span {format_duration(summary.span_ns)} · busy {format_ratio(busy)} · {count_events(analysis)}")
    for note in dict.fromkeys(note for trace in traces for note in trace.notes):
        page.line(f"note: {note}", "yellow", hang=6)


def describe_run(analysis: Analysis) -> list[str]:
    """Return format, ranks and devices in words."""
    traces = analysis.traces
    formats = ", ".join(dict.fromkeys(trace.format for trace in traces))
    ranks = f"rank {traces[0].rank or 0}" if len(traces) == 1 else format_count(len(traces), "rank")
    models = [name for trace in traces for name in trace.devices["name"].to_list() if name]
    devices = analysis.streams.select("rank", "device").n_unique()
    kinds = ", ".join(dict.fromkeys(models))
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


def print_loop(loop: Loop, page: Page, number: int | None) -> None:
    """Print one loop: what an iteration is, a bar per iteration and Table III."""
    page.skip()
    place = f" (rank {loop.rank}, device {loop.device})" if number else ""
    title = f"Loop {number}{place}: " if number else ""
    page.line(f"{title}1 iteration = {format_count(loop.period, 'kernel')} on stream {loop.stream}", "bold")
    for sentence in describe_loop(loop):
        page.line(sentence, indent=2)
    page.skip()
    for row, style in draw_strip(loop.iterations, page.width - 2, ascii_only=page.ascii):
        page.line(row, style, indent=2)
    page.skip()
    page.columns(list_metrics(loop.metrics), indent=2)


def describe_loop(loop: Loop) -> Iterable[str]:
    """Yield how many iterations there are, how sure that is and what repeats around and inside them."""
    spread = loop.metrics.iteration_ns
    median = f", median {format_duration(spread.median)}" if spread else ""
    partial = int((~loop.iterations["complete"]).sum())
    counted = format_count(loop.iterations.height, "iteration") + (f" ({partial} incomplete)" if partial else "")
    yield f"{counted}{median}, confidence {loop.confidence:.2f}"
    yield describe_boundaries(loop)
    if loop.metrics.warmup_excluded:
        yield f"{format_count(loop.metrics.warmup_excluded, 'warm-up iteration')} not in the figures below"
    for cycle in loop.cycles:
        extra, kind = cycle.get("extra_events", 0), cycle.get("kind", "unknown")
        yield f"every {cycle.get('every')} iterations {extra:+,} kernels" + ("" if kind == "unknown" else f" ({kind})")
    for level in loop.nested[:NESTED]:
        yield f"inside: {level.get('repeats')} times {format_count(level.get('events', 0), 'kernel')}"


def describe_boundaries(loop: Loop) -> str:
    """Return where an iteration begins and who says so."""
    sources = {
        "annotation": "the user's annotation",
        "framework": "the framework's ranges",
        "mined": "the kernels alone",
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
    medians = {loop.rank: loop.metrics.iteration_ns.median for loop in analysis.loops if loop.metrics.iteration_ns}
    for number, finding in enumerate(analysis.findings[:limit], 1):
        median = medians.get(finding.rank) if finding.rank is not None else next(iter(medians.values()), None)
        print_finding(finding, page, number, median)
    hidden = len(analysis.findings[limit:]) if limit is not None else 0
    if hidden:
        page.line(f"{format_count(hidden, 'more finding')}; --all shows them", "dim", indent=2)


def print_finding(finding: Finding, page: Page, number: int, median_ns: int | None) -> None:
    """Print one finding with what it costs and what to do."""
    style = STYLES[finding.severity]
    page.line(f"{number}. {ICONS[finding.severity]} {finding.severity} {finding.rule}: {finding.title}", style, hang=5)
    page.line(finding.summary, indent=5)
    costs = describe_cost(finding, median_ns)
    if costs:
        page.line(costs, indent=5)
    page.line(f"→ {finding.advice}", "green", indent=5, hang=2)


def describe_cost(finding: Finding, median_ns: int | None) -> str:
    """Return headroom, place and confidence in one line."""
    parts = []
    if finding.headroom_ns_per_iteration is not None:
        share = f" ({format_ratio(finding.headroom_ns_per_iteration / median_ns)} of the median)" if median_ns else ""
        parts.append(f"up to {format_duration(finding.headroom_ns_per_iteration)} per iteration{share}")
    if finding.rank is not None:
        parts.append(f"rank {finding.rank}")
    if finding.iterations is not None:
        parts.append("iterations {} to {}".format(*finding.iterations))
    return " · ".join([*parts, f"confidence {finding.confidence:.2f}"])
