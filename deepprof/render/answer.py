"""The answer first: what an iteration takes, the largest avoidable loss, what the device computes, and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from deepprof.diagnosis.engine import rules_on_work
from deepprof.diagnosis.work_claims import LEADS
from deepprof.metrics.contexts.frames import write_line
from deepprof.metrics.kernels.kinds import PRODUCTS
from deepprof.render.units import format_duration, format_ratio
from deepprof.render.wording import wording_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from deepprof.analysis import Analysis, Loop
    from deepprof.diagnosis.finding import Finding
    from deepprof.render.page import TextPage
    from deepprof.render.wording import Wording

SENTENCE = re.compile(r"(?<=[A-Za-z)\]0-9]\.)\s+(?=[A-Z])")
UNEVEN = 1.25  # ratio of mean to median above which both are printed
# Keys of a location, the most informative first.
PLACES = ("range", "operator", "call", "frame", "kernel")
MOST_ON_WORK = 3  # findings on computing in one line


def print_answer(analysis: Analysis, page: TextPage) -> None:
    """Print two or three lines for a user who reads no further."""
    page.skip()
    for number, line in enumerate(describe_answer(analysis)):
        page.line(line, "bold" if number == 0 else "", hang=2)


def describe_answer(analysis: Analysis) -> Iterator[str]:
    """Yield the lines of the answer."""
    headline = analysis.headline
    loop = choose_loop(analysis)
    if loop is not None:
        yield _describe_time(loop)
    else:
        yield _describe_recorded(analysis)
    if headline is None:
        yield from _describe_masked(analysis) or [_describe_health(analysis, loop)]
    else:
        yield f"The largest avoidable loss: {_describe_loss(headline, analysis)}"
    yield from _describe_work(analysis, headline)
    if headline is not None:
        yield f"What to do: {SENTENCE.split(headline.advice)[0]}"


def _describe_recorded(analysis: Analysis) -> str:
    """Return how long a single marked step takes, or how long the devices were busy without iterations."""
    step = next((each.top for each in analysis.stretches if each.top.over == "marked step"), None)
    if step is not None:
        return f"No iteration was found to repeat; the marked step takes {format_duration(step.mean_ns)}."
    summary = analysis.summary
    if not summary.span_ns:
        return "No iteration was found, and no work of a device was recorded."
    busy = f"of {format_duration(summary.span_ns)} the device is busy {format_ratio(summary.busy_ratio)}"
    rows = analysis.work.filter(pl.col("loop").is_null() & (pl.col("category") != "unknown"))
    products = float(rows.filter(pl.col("category").is_in(PRODUCTS))["time_ns"].sum())
    share = f"; {format_ratio(products / summary.busy_ns)} of that are products of matrices" if products else ""
    return f"No iteration was found; {busy}{share}."


def _describe_work(analysis: Analysis, headline: Finding | None) -> Iterator[str]:
    """Yield a line on the findings on what a busy device computes that are not the headline, if there are any."""
    about = (None,) * 3 if headline is None else (headline.rank, headline.device, headline.stream)
    on_work = rules_on_work()
    found = [
        finding
        for finding in analysis.findings
        if finding.rule in on_work
        and finding is not headline
        and finding.caused_by is None
        and float(finding.evidence.get("busy_ratio") or 0) >= LEADS
        and matches(about, (finding.rank or 0, finding.device or 0, finding.stream or 0))
    ]
    found.sort(key=lambda each: -float(each.evidence.get("kernel_ns_per_iteration") or 0))
    if found:
        begin = "Also" if headline is not None and headline.rule in on_work else "While it computes"
        yield f"{begin}: {'; '.join(_within_sentence(each.title) for each in found[:MOST_ON_WORK])}."


def choose_loop(analysis: Analysis) -> Loop | None:
    """Return the loop that the headline is about, or else the one that takes most of the time."""
    headline = analysis.headline
    about = _find_meant(headline, analysis.loops) if headline is not None and headline.stream is not None else []
    return max(about or analysis.loops, key=_time_of, default=None)


def _find_meant(finding: Finding, loops: Iterable[Loop]) -> list[Loop]:
    """Return the loops that a finding may be about: of several on one stream, those with its mean iteration time."""
    wanted, spoken = (finding.rank, finding.device, finding.stream), finding.evidence.get("iteration_ns")
    there = [loop for loop in loops if matches(wanted, (loop.rank, loop.device, loop.stream))]
    exact = [loop for loop in there if round(find_mean(loop) or 0) == spoken]
    return exact if len(there) > 1 and exact else there


def matches(wanted: Iterable[int | None], place: Iterable[int]) -> bool:
    """Return whether `place` is as wanted, where None is any."""
    return all(want in {None, have} for want, have in zip(wanted, place, strict=True))


def _time_of(loop: Loop) -> int:
    """Return how long the loop's iterations take together."""
    return int(loop.iterations["operation_ns"].sum())


def find_mean(loop: Loop) -> float | None:
    """Return the mean time of the iterations that the table of parts is about, in ns; None where none is complete."""
    usual = loop.usual["iteration_ns"]
    return float(usual.mean()) if len(usual) else None  # type: ignore[arg-type]


def _describe_time(loop: Loop) -> str:
    """Return how long an iteration takes, and over how many that was measured."""
    mean, spread = find_mean(loop), loop.metrics.iteration_ns
    if mean is None:
        return "An iteration was found; no complete one was measured."
    middle = f", {format_duration(spread.median)} in the middle" if spread and mean > UNEVEN * spread.median else ""
    return f"An iteration takes {format_duration(mean)} (mean of {loop.usual.height}{middle})."


def _describe_loss(headline: Finding, analysis: Analysis) -> str:
    """Return the headline's title with its cost and its place."""
    cost, mean = headline.headroom_ns_per_iteration, find_time(headline, analysis)
    share = f" ({format_ratio(cost / mean)})" if cost and mean else ""
    costs = f", up to {format_duration(cost)}{share}" if cost else _describe_share(headline)
    place = describe_location(headline.location or {}, wording_of(analysis))
    return f"{_within_sentence(headline.title)}{costs}{f', in {place}' if place else ''}."


def _describe_share(headline: Finding) -> str:
    """Return which share of a recording without iterations could be saved, empty where that is not known."""
    share = headline.evidence.get("share_ratio")
    return f", up to {format_ratio(float(share))} of the recording" if headline.iterations is None and share else ""


def _within_sentence(title: str) -> str:
    """Return a title as it is written within a sentence."""
    return title[:1].lower() + title[1:]


def find_time(finding: Finding, analysis: Analysis) -> float | None:
    """Return the mean iteration time of the loop that a finding is about; None where several fit."""
    meant = _find_meant(finding, analysis.loops)
    return find_mean(meant[0]) if len(meant) == 1 else None


def describe_location(location: Mapping[str, int | str], words: Wording) -> str:
    """Return the most informative part of a finding's location in words, empty where it has none."""
    if file := location.get("file"):
        return write_line(str(location["function"]), str(file), int(location["line"]))
    known = next((key for key in PLACES if location.get(key)), None)
    return "" if known is None else f"{words.work if known == 'kernel' else known} {location[known]}"


def _describe_masked(analysis: Analysis) -> list[str]:
    """Return the lines on a large cost that hides another one, so that removing only one of the two saves nothing."""
    large = [each for each in analysis.findings if "shorter_ns_per_iteration" in each.evidence]
    if not large:
        return []
    share = float(large[0].evidence["share_ratio"] or 0)
    title = _within_sentence(large[0].title)
    return [
        f"No loss can be avoided by itself: {title} ({format_ratio(share)}), but the host launches what follows "
        "just in time.",
        f"What to do: both. Launch less (graphs, fused kernels). {SENTENCE.split(large[0].advice)[0]}",
    ]


def _describe_health(analysis: Analysis, loop: Loop | None) -> str:
    """Return the line for a trace in which nothing is wrong, or that does not show it."""
    if analysis.unnamed:
        return "No cause is certain; what no finding explains is listed below, with the reason."
    if loop is None or loop.parts.is_empty():
        return "No cause of lost time was found; the tables show where the time goes."
    means = loop.usual.select(pl.col("compute_ns", "iteration_ns").mean()).row(0)
    share = (means[0] or 0) / (means[1] or 1)
    return f"No loss is above its limit: for {format_ratio(share)} of it {wording_of(analysis).computes}."
