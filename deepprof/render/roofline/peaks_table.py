"""Measured peaks as a table, next to the vendor's figures where available."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from deepprof.render.roofline.rates import format_flops_rate, format_nbytes_rate
from deepprof.render.units import ABSENT, format_duration, format_ratio

if TYPE_CHECKING:
    from deepprof.metrics.cost.achieved_peaks import PeakTrial
    from deepprof.metrics.cost.roofs import DevicePeaks
    from deepprof.render.page import TextPage

GAP = 2  # columns between two of a table
TRIALS = ("work", "type", "size", "runs", "best", "rate")


def draw_trials(page: TextPage, trials: Sequence[PeakTrial]) -> None:
    """Print a line for every trial."""
    rows = []
    for trial in trials:
        is_product = trial.work == "product"
        size = f"{trial.size} x {trial.size}" if is_product else f"{trial.size:,}"
        rate = (format_flops_rate if is_product else format_nbytes_rate)(trial.per_s)
        cells = (trial.work, trial.dtype, size, str(trial.runs), format_duration(trial.best_ns), rate)
        rows.append(dict(zip(TRIALS, cells, strict=True)))
    page.table(rows, gap=GAP, left="work")


def draw_peaks(page: TextPage, measured: DevicePeaks, vendor: DevicePeaks | None) -> None:
    """Print the best of every type and level, and what part of the vendor's figure that is."""
    page.line(f"{measured.name}: {measured.source}.")
    given = {} if vendor is None else vendor.matrix_flops_per_s | vendor.vector_flops_per_s
    products = {**measured.vector_flops_per_s, **measured.matrix_flops_per_s}
    rows = [
        _compare(f"{dtype} products", rate, given.get(dtype), format_flops_rate) for dtype, rate in products.items()
    ]
    levels = {} if vendor is None else vendor.memory_nbytes_per_s
    for level, rate in measured.memory_nbytes_per_s.items():
        rows.append(_compare(level, rate, levels.get(level), format_nbytes_rate))
    page.table(rows, gap=GAP, left="peak")
    if vendor is not None:
        page.line(f"The vendor's figures: {vendor.source}.", "dim")
    else:
        page.line("No vendor's figures of this device are known here.", "dim")


def _compare(title: str, rate: float, given: float | None, write: Callable[[float | None], str]) -> dict[str, str]:
    part = ABSENT if given is None else format_ratio(rate / given)
    return {"peak": title, "measured": write(rate), "vendor": write(given), "part": part}
