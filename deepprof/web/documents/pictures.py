"""Small pictures of what a finding rests on: a trend over iterations, the parts of one, and where to look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.costs import mean_parts
from deepprof.render.wording import Wording

if TYPE_CHECKING:
    from deepprof.analysis import Analysis, Loop

MOST_POINTS = 400  # of a trend: more than the picture has pixels
MOST_BARS = 8  # parts; the others are one bar
# What findings are about that changes from one iteration to the next, by `cause` in their evidence, or by rule.
GROWING = {
    "interval": ("interval_ns", "idle time before the next iteration"),
    "memory-growth": ("memory_nbytes", "memory"),
}
OVER_TIME = {
    "graph-growth",
    "memory-growth",
    "drift",
    "slow-iterations",
    "growing-context",
    "first-use",
    "allocator-bound",
}


class TrendPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A row of values by iteration: a line of small points. `unit` is ns, bytes or count."""

    title: str
    unit: Literal["ns", "bytes", "count"]
    index: list[int]
    value: list[float]


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a whole, the largest first; `marked` ones are what the finding is about."""

    title: str
    unit: Literal["ns", "bytes", "count"]
    label: list[str]
    value: list[float]
    marked: list[bool]


class Jump(msgspec.Struct, frozen=True, kw_only=True):
    """Where a finding is seen: the text of a link, and the fragment of the address that it leads to, without `#`."""

    title: str
    fragment: str


def draw_trends(finding: Finding, loop: Loop) -> list[TrendPicture]:
    """Return what changes over the iterations that a finding is about; none for what is alike in all of them."""
    if finding.rule not in OVER_TIME:
        return []
    column, title = GROWING.get(str(finding.evidence.get("cause", finding.rule)), ("", ""))
    if not column and loop.table.height:
        own = [part for part in finding.parts if part in loop.table.columns]
        if finding.rule in {"slow-iterations", "drift"} or not own:
            column, title = "iteration_ns", "time of an iteration"
        else:
            return [_draw(loop.table.select("index", value=pl.sum_horizontal(own)), "what it costs", "ns")]
    unit: Literal["ns", "bytes"] = "bytes" if column.endswith("nbytes") else "ns"
    return [_draw(loop.table.select("index", value=column), title, unit)] if column in loop.table.columns else []


def _draw(points: pl.DataFrame, title: str, unit: Literal["ns", "bytes", "count"]) -> TrendPicture:
    """Return a trend of rows of `index` and `value`; of too many the largest of every section."""
    known = points.drop_nulls()
    each = -(-max(known.height, 1) // MOST_POINTS)
    stretches = known.with_row_index("row").group_by(pl.col("row") // each, maintain_order=True)
    thin = stretches.agg(pl.col("index", "value").sort_by("value").last())
    return TrendPicture(title=title, unit=unit, index=thin["index"].to_list(), value=thin["value"].to_list())


def draw_bars(finding: Finding, loop: Loop, words: Wording) -> list[Bars]:
    """Return the parts of the mean iteration, those marked that the finding claims; nothing where it claims none."""
    means = {name: value for name, value in mean_parts(loop).items() if value > 0}
    if not finding.parts or not means:
        return []
    ordered = sorted(means, key=lambda name: -means[name])
    shown = [name for k, name in enumerate(ordered) if k < MOST_BARS or name in finding.parts]
    rest = sum(value for name, value in means.items() if name not in shown)
    rows = [(words.parts[name], means[name], name in finding.parts) for name in shown]
    rows += [("other parts", rest, False)] if rest else []
    label, value, marked = (list(column) for column in zip(*rows, strict=True))
    return [Bars(title="parts of the mean iteration", unit="ns", label=label, value=value, marked=marked)]


def list_jumps(finding: Finding, analysis: Analysis, number: int | None) -> list[Jump]:
    """Return where a finding is seen: in its first iteration, in the timeline of a usual one, in the flame graph."""
    jumps = []
    if number is not None:
        loop, place = analysis.loops[number], f"loop={number}&rank={analysis.loops[number].rank}"
        first = "" if finding.iterations is None else f"&iteration={finding.iterations[0]}"
        jumps.append(Jump(title="in the iterations", fragment=f"iterations?{place}{first}"))
        if loop.typical is not None:
            typical = f"{place}&iteration={loop.typical}"
            jumps.append(Jump(title="in a typical iteration", fragment=f"timeline?{typical}"))
    if finding.rule in {"straggler", "slower-device", "communication-bound"}:
        jumps.append(Jump(title="rank by rank", fragment="ranks"))
    if (finding.location or {}).get("file"):
        rank = f"rank={finding.rank or 0}&"
        jumps.append(Jump(title="in the code", fragment=f"flame?{rank}measure={_choose_measure(finding)}"))
    return jumps


def _choose_measure(finding: Finding) -> str:
    """Return what the flame graph has to divide up for a finding."""
    return "idle" if any(part.startswith("idle") for part in finding.parts) else "device"
