"""The ranks of one job side by side, for people and as JSON; the one with the most own time first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from deepprof.metrics.ranks.comparison import RankComparison
from deepprof.plurals import counted
from deepprof.render.plain import shorten
from deepprof.render.units import ABSENT, format_duration
from deepprof.results.analysis_result import AnalysisResult

if TYPE_CHECKING:
    from deepprof.render.page import TextPage

SHOWN = 8  # rows; JSON has all
NAME = 48  # characters of a kernel's name
INDENT = 2
LISTED = 1 << 16  # numbers of missing ranks: more are a mistake in the trace and not listed


class RankBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One rank (and device) of the job; times are medians per iteration, null where the traces do not show them."""

    rank: int
    device: int | None
    iterations: int
    iteration_ns: int | None
    compute_ns: int | None
    waiting_ns: int | None
    own_ns: int | None
    score: float | None
    best_score: float | None


class SkewBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One collective of the iteration: how far apart a program's ranks (`group`) come to it, and which is last."""

    group: int
    position: int
    name: str
    skew_ns: int
    latest_rank: int
    latest_device: int


def describe_skews(analysis: AnalysisResult) -> list[SkewBlock]:
    """Return a block per collective of the iteration, in its order; none where ranks share none."""
    return [] if analysis.ranks is None else [SkewBlock(**row) for row in analysis.ranks.skews.iter_rows(named=True)]


def describe_ranks(analysis: AnalysisResult) -> list[RankBlock]:
    """Return a block per rank, the worst first; none for a job of a single rank and device."""
    if analysis.ranks is None:
        return []
    return [RankBlock(**row) for row in analysis.ranks.ranks.select(RankBlock.__struct_fields__).iter_rows(named=True)]


def list_missing(analysis: AnalysisResult) -> list[int] | None:
    """Return the ranks that no trace was given of; None where it is unknown how many there are."""
    if analysis.ranks is None or analysis.ranks.missing is None:
        return None
    runs = analysis.ranks.missing
    if sum(last - first + 1 for first, last in runs) > LISTED:
        return None
    return [rank for first, last in runs for rank in range(first, last + 1)]


def print_ranks(analysis: AnalysisResult, page: TextPage) -> None:
    """Print a row per rank, the worst first, and which ranks are missing; nothing for a single rank and device."""
    found = analysis.ranks
    if found is None:
        return
    page.skip()
    page.line("Ranks", "bold")
    rows = [_list_cells(row) for row in found.ranks.head(SHOWN).iter_rows(named=True)]
    several = found.ranks["device"].n_unique() > 1
    page.table([_drop_device(row) if not several else row for row in rows], indent=INDENT)
    if found.ranks.height > SHOWN:
        page.line(f"and {found.ranks.height - SHOWN:,} more; --format json has all of them", "dim", indent=INDENT)
    for sentence in _describe_comparison(found):
        page.line(sentence, "dim", indent=INDENT)


def _list_cells(row: Mapping[str, int | float | None]) -> dict[str, str]:
    score = row["score"]
    return {
        "rank": str(row["rank"]),
        "device": ABSENT if row["device"] is None else str(row["device"]),
        "iteration": format_duration(row["iteration_ns"]),
        "computes": format_duration(row["compute_ns"]),
        "waits": format_duration(row["waiting_ns"]),
        "own time": format_duration(row["own_ns"]),
        "to others": ABSENT if score is None else f"{score:.2f}x",
    }


def _drop_device(cells: dict[str, str]) -> dict[str, str]:
    """Return the cells without the device, which is the same everywhere."""
    return {name: cell for name, cell in cells.items() if name != "device"}


def _describe_comparison(found: RankComparison) -> list[str]:
    """Return sentences on what could be compared, and which ranks are missing."""
    sentences = []
    if found.skews.height:
        worst = found.skews.sort("skew_ns", descending=True, maintain_order=True).row(0, named=True)
        count = found.skews.filter(group=worst["group"]).height
        where = f"collective {worst['position'] + 1} of {count} ({shorten(worst['name'], NAME)})"
        apart = format_duration(worst["skew_ns"])
        sentences.append(f"furthest apart at {where}: {apart}, rank {worst['latest_rank']} comes last")
    if len(found.groups) > 1:
        sentences.append(f"{counted(len(found.groups), 'program')} run here; only ranks of one are compared")
    if not any(group.waits.height for group in found.groups):
        sentences.append("no collective that ranks share was recorded: who waits for whom is not known")
    if found.missing_text:
        sentences.append(f"no trace of rank {found.missing_text}")
    return sentences
