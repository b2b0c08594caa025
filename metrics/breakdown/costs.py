"""What one part of the time costs an iteration, and how many iterations it affects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.metrics.breakdown.host_states import HostStates
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.metrics.loop import Loop
from deepprof.metrics.spans import NOTHING, Spans, covered, intersect, union

OUTLIER = 1.5  # times the median: an iteration that lasts longer is not typical of the loop


class Cost(Struct, frozen=True):
    """Mean time of some parts over the iterations that the table of parts is a mean of (`Loop.usual`).

    `steadiness` is the share of the regular iterations in which the parts take at least half of their mean over these,
    and `usual_share` is the parts' share of the regular iterations' time. In `affected` of all `iterations` the parts
    take at least half of `mean_ns`; `most_ns` is the largest value.
    """

    mean_ns: float
    whole_ns: float
    steadiness: float
    iterations: int
    bounds: tuple[int, int]
    affected: int = 0
    most_ns: float = 0.0
    usual_share: float = 0.0

    @property
    def share(self) -> float:
        """Share of the iterations' time, as in the table of parts."""
        return self.mean_ns / max(1.0, self.whole_ns)


def cost_of(loop: Loop, parts: Sequence[str]) -> Cost | None:
    """Return what `parts` cost together; None where the loop has no usual iteration, or no parts."""
    rows = loop.usual
    if rows.is_empty() or loop.parts.is_empty():
        return None
    length_ns, taken = rows["iteration_ns"].to_numpy(), rows.select(pl.sum_horizontal(parts)).to_series().to_numpy()
    ordinary = length_ns <= OUTLIER * np.median(length_ns)  # what the loop does all the time
    mean, usual = float(taken.mean()), float(taken[ordinary].mean())
    return Cost(
        mean_ns=mean,
        whole_ns=float(length_ns.mean()),
        steadiness=float((taken[ordinary] >= usual / 2).mean()),
        iterations=rows.height,
        bounds=(int(rows["index"][0]), int(rows["index"][-1])),
        affected=int((taken >= max(1.0, mean / 2)).sum()),
        most_ns=float(taken.max()),
        usual_share=usual / max(1.0, float(length_ns[ordinary].mean())),
    )


def mean_of(loop: Loop, *columns: str) -> float:
    """Return the mean per usual iteration of one of `Loop.table`'s columns, or the sum of several."""
    return float(loop.usual.select(pl.sum_horizontal(columns).mean()).item() or 0.0)


def mean_parts(loop: Loop) -> dict[str, float]:
    """Return what a usual iteration spends on every part in ns, as the table shows it; empty where there is none."""
    rows = loop.usual
    if rows.is_empty() or loop.parts.is_empty():
        return {}
    return rows.select(pl.col(PART_NAMES).mean().fill_null(0)).row(0, named=True)


def windows_of(loop: Loop) -> Spans:
    """Return the time that the loop's usual iterations fill."""
    start = loop.usual["start_ns"].to_numpy()
    return union(start, start + loop.usual["iteration_ns"].to_numpy())


def spans_of_parts(loop: Loop, parts: Sequence[str]) -> Spans:
    """Return when the device spends its time on `parts`, within the loop's usual iterations."""
    return NOTHING if loop.timeline is None else intersect(loop.timeline.spans(parts), windows_of(loop))


def without_own_gaps(loop: Loop, parts: Sequence[str]) -> float:
    """Return the mean time of idle `parts` per usual iteration that a device with a full queue would not have, in ns.

    Between two kernels a device uses time itself, so that one that gets its work early is idle for a moment, too.
    """
    lost = spans_of_parts(loop, parts)
    if loop.timeline is None or not lost.total_ns:
        return 0.0
    gaps = spans_of_parts(loop, [*parts, "idle_startup_ns"])
    inside, whole = covered(lost, gaps.starts, gaps.ends), gaps.ends - gaps.starts
    avoidable = np.minimum(inside, np.maximum(whole - loop.timeline.between_ns, 0))
    return float(avoidable.sum()) / max(1, loop.usual.height)


def held_back_in(loop: Loop) -> Spans:
    """Return when queued work waits for nothing that the traces show, within the loop's usual iterations."""
    held = NOTHING if loop.timeline is None else loop.timeline.held_back
    return intersect(held, spans_of_parts(loop, ["idle_unknown_ns"])) if held else held


def threads_of(loop: Loop) -> pl.DataFrame | None:
    """Return process and thread of the threads that launch the loop's kernels, None if they are not recorded."""
    host = host_of(loop)
    return None if host is None else host.threads


def host_of(loop: Loop) -> HostStates | None:
    """Return what the threads that launch the loop's kernels do, None if it is not recorded."""
    return None if loop.timeline is None else loop.timeline.host


def divide(totals: Mapping[str, int], count: int) -> dict[str, int]:
    """Return each total over `count`, rounded (largest remainders up) so that they add up to the rounded whole."""
    shares = {name: total // count for name, total in totals.items()}
    left = round(sum(totals.values()) / count) - sum(shares.values())
    largest = sorted(totals, key=lambda name: -(totals[name] % count))
    return {name: share + (name in largest[:left]) for name, share in shares.items()}
