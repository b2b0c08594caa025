"""How the iteration was found: in a line, or with all the evidence and the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from deepprof.metrics.iteration import LOOP_METRICS, LoopMetrics
from deepprof.metrics.loop import Loop
from deepprof.plurals import counted, verb
from deepprof.render.units import format_bytes, format_confidence, format_duration, format_ratio
from deepprof.render.utilization import describe_utilization
from deepprof.render.wording import Wording, wording_of
from deepprof.results.analysis_result import AnalysisResult

if TYPE_CHECKING:
    from deepprof.render.page import TextPage

LOOPS = 8  # shown one by one; a job of 64 ranks has one per rank
NESTED = 3  # inner loops; JSON has all
SOURCES = {
    "annotation": "the user's annotation",
    "framework": "the framework's ranges",
}
NEXT = "-v prints the evidence and all metrics; deepprof export --to perfetto draws every iteration"
# By the unit at the end of a metric's name.
FORMATS: Mapping[str, Callable[[Any], str]] = MappingProxyType(
    {"ns": format_duration, "ratio": format_ratio, "bytes": format_bytes}
)
GOOD = 0.9  # agreement with the user's own ranges: a lower one is shown without -v, too


def print_origin(analysis: AnalysisResult, page: TextPage, *, verbose: bool) -> None:
    """Print how the iterations were found."""
    if not analysis.loops:
        return
    page.skip()
    page.line("How the iteration was found", "bold")
    if verbose:
        _print_evidence(analysis, page)
        return
    words = wording_of(analysis)
    told = [f"from {_describe_source(loop, words)}{_doubt(loop)}" for loop in analysis.loops[:LOOPS]]
    for sentence in dict.fromkeys(told):
        page.line(sentence, indent=2, hang=2)
    page.line(NEXT, "dim", indent=2, hang=2)


def _print_evidence(analysis: AnalysisResult, page: TextPage) -> None:
    """Print the evidence and Table III of the first loops."""
    for number, loop in enumerate(analysis.loops[:LOOPS], 1):
        label = f"loop {number}: " if len(analysis.loops) > 1 else ""
        for sentence in _describe_loop(loop, wording_of(analysis)):
            page.line(f"{label}{sentence}", indent=2, hang=2)
        page.skip()
        figures = list_figures(loop.metrics, wording_of(analysis))
        page.columns([(title, text) for _, title, text in figures], indent=2)
        if loop.roofline is not None:
            page.line(f"{label}{describe_utilization(loop.roofline)}", indent=2, hang=2)


def _describe_source(loop: Loop, words: Wording) -> str:
    return SOURCES.get(loop.boundary_source, words.mined)


def _doubt(loop: Loop) -> str:
    """Return the confidence, and the agreement with the user's ranges where it is low."""
    agreement = loop.agreement
    sure = f", confidence {format_confidence(loop.confidence)}"
    if agreement is None or agreement.ratio >= GOOD:
        return sure
    return f"{sure}; only {_describe_agreement(loop)}"


def _describe_agreement(loop: Loop) -> str:
    """Return how many of the user's ranges agree with an iteration."""
    agreement = loop.agreement
    if agreement is None:
        return ""
    name = agreement.name.strip()
    if agreement.matched == agreement.iterations < agreement.given:
        begin = verb(agreement.matched, "begins", "begin")
        return f"{agreement.matched:,} of {counted(agreement.given, 'iteration')} {begin} at a {name} range"
    agree = verb(agreement.matched, "agrees", "agree")
    return f"{agreement.matched:,} of {counted(agreement.iterations, f'{name} range')} {agree}"


def _describe_loop(loop: Loop, words: Wording) -> Iterable[str]:
    """Yield the evidence, and what repeats around and inside the iterations."""
    agreement = f"; {_describe_agreement(loop)}" if loop.agreement else ""
    yield f"boundaries from {_describe_source(loop, words)}: {words.speak(loop.evidence)}{agreement}"
    yield f"confidence {format_confidence(loop.confidence)}"
    for name, part in (("before them", loop.prologue), ("after them", loop.epilogue)):
        if part.kernels:
            yield f"{name}: {words.count(part.kernels)} in {format_duration(part.span_ns)}"
    for level in loop.nested[:NESTED]:
        yield f"inside: {level.get('repeats')} times {words.count(level.get('events', 0))}"


def list_figures(metrics: LoopMetrics, words: Wording) -> Sequence[tuple[str, str, str]]:
    """Return Table III: the field of every figure, the paper's name of it, and its value as people read it.

    Intervals are idle time between iterations, sizes those of copies, which programs without a device do not have.
    Utilisation is left out where it is unknown.
    """
    values = metrics.values
    shown = {
        name: each
        for name, each in LOOP_METRICS.items()
        if not (words.on_cpu and each.of_copies) and not (each.of_shapes and values[name] is None)
    }
    return [(name, each.label, FORMATS[name.rpartition("_")[2]](values[name])) for name, each in shown.items()]
