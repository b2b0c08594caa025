"""The answer first: what an iteration takes, the largest avoidable loss and where it is, and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from deepprof.render.units import format_duration, format_ratio
from deepprof.render.wording import wording_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deepprof.analysis import Analysis, Loop
    from deepprof.diagnosis.finding import Finding
    from deepprof.render.page import Page
    from deepprof.render.wording import Wording

__all__ = ["choose_loop", "describe_location", "find_mean", "print_answer"]

SENTENCE = re.compile(r"(?<=[A-Za-z)\]0-9]\.)\s+(?=[A-Z])")
UNEVEN = 1.25  # times the median that a mean is: then both are said
# Keys of a location, in the order in which they say most.
PLACES = ("range", "operator", "call", "frame", "kernel")


def print_answer(analysis: Analysis, page: Page) -> None:
    """Print two or three lines for somebody who reads no further."""
    page.skip()
    for number, line in enumerate(describe_answer(analysis)):
        page.line(line, "bold" if number == 0 else "", hang=2)


def describe_answer(analysis: Analysis) -> Iterator[str]:
    """Yield the lines of the answer."""
    headline = analysis.headline
    loop = choose_loop(analysis)
    if loop is not None:
        yield describe_time(loop)
    else:
        yield "No iteration was found; what is certain without one is said all the same."
    if headline is None:
        yield describe_health(analysis, loop)
        return
    yield f"The largest avoidable loss: {describe_loss(headline, loop, wording_of(analysis))}"
    yield f"What to do: {SENTENCE.split(headline.advice)[0]}"


def choose_loop(analysis: Analysis) -> Loop | None:
    """Return the loop that the headline is about, or else the one that takes most of the time."""
    headline = analysis.headline
    wanted = headline and (headline.rank, headline.device, headline.stream)
    about = [loop for loop in analysis.loops if (loop.rank, loop.device, loop.stream) == wanted]
    return max(about or analysis.loops, key=time_of, default=None)


def time_of(loop: Loop) -> int:
    """Return how long the loop's iterations take together."""
    return int(loop.iterations["operation_ns"].sum())


def find_mean(loop: Loop) -> float | None:
    """Return the mean time of the iterations that the table of parts is about, in ns; None where none is complete."""
    usual = loop.usual["iteration_ns"]
    return float(usual.mean()) if len(usual) else None  # type: ignore[arg-type]


def describe_time(loop: Loop) -> str:
    """Return how long an iteration takes, and of how many that is said."""
    mean, spread = find_mean(loop), loop.metrics.iteration_ns
    if mean is None:
        return "An iteration was found; no complete one was measured."
    middle = f", {format_duration(spread.median)} in the middle" if spread and mean > UNEVEN * spread.median else ""
    return f"An iteration takes {format_duration(mean)} (mean of {loop.usual.height}{middle})."


def describe_loss(headline: Finding, loop: Loop | None, words: Wording) -> str:
    """Return the headline's title with its cost and its place."""
    cost, mean = headline.headroom_ns_per_iteration, None if loop is None else find_mean(loop)
    share = f" ({format_ratio(cost / mean)})" if cost and mean else ""
    costs = f", up to {format_duration(cost)}{share}" if cost else ""
    place = describe_location(headline.location or {}, words)
    first = headline.title[:1].lower() + headline.title[1:]
    return f"{first}{costs}{f', in {place}' if place else ''}."


def describe_location(location: Mapping[str, int | str], words: Wording) -> str:
    """Return the most telling part of a finding's location in words, empty where it has none."""
    known = next((key for key in PLACES if location.get(key)), None)
    return "" if known is None else f"{words.work if known == 'kernel' else known} {location[known]}"


def describe_health(analysis: Analysis, loop: Loop | None) -> str:
    """Return what is said where nothing is wrong, or where the trace does not show it."""
    if analysis.unnamed:
        return "Nothing is blamed with certainty; below stands what no finding names, and why."
    if loop is None or loop.parts.is_empty():
        return "Below stands where the time goes, and what was missing for more."
    means = loop.usual.select(pl.col("compute_ns", "iteration_ns").mean()).row(0)
    share = (means[0] or 0) / (means[1] or 1)
    return f"No loss is above its limit: for {format_ratio(share)} of it {wording_of(analysis).computes}."
