"""Bounds and gains, and the table of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.accuracy.tables import Table
from benchmarks.gains.pairs import GainPair

LEAST_RATIO = 1 / 3  # of the bound that a change must gain for the bound to be of use
NOTE = """\
`bound` is what the finding states an iteration could save at most, the median of {recordings} recordings of the program
before the change. `gain` is what the change saved: the median of one iteration after it over the one before it, with
quartiles. Both are shares of an iteration. A bound is good if the gain is between a third of it and all of it."""
COLUMNS = {"pair": "key", "rule": "key", "change": "any", "bound, %": "any", "gain, %": "any", "quartiles, %": "any"}
COLUMNS |= {"gain / bound": "any", "verdict": "any"}


@dataclass(frozen=True, slots=True)
class PairResult:
    """What was measured of a pair.

    `bounds` has the bound in every recording as a share of an iteration, null where its rule found nothing; `before_ns`
    and `after_ns` are iterations that ran in turn.
    """

    pair: GainPair
    bounds: Sequence[float | None]
    before_ns: Sequence[int]
    after_ns: Sequence[int]

    @property
    def bound_ratio(self) -> float | None:
        """The median bound; None where the rule found nothing in half of the recordings or more."""
        found = [bound for bound in self.bounds if bound is not None]
        return statistics.median(found) if 2 * len(found) > len(self.bounds) else None

    @property
    def gain_quartiles(self) -> tuple[float, float, float]:
        """The quartiles of the gains, ascending; the one in the middle is the median."""
        gains = [1 - after / before for before, after in zip(self.before_ns, self.after_ns, strict=True)]
        low, middle, high = statistics.quantiles(gains, n=4, method="inclusive")
        return low, middle, high


def judge(bound_ratio: float | None, gain_ratio: float) -> str:
    """Return whether the gain is below a bound, and not far below."""
    if bound_ratio is None:
        return "no finding"
    if gain_ratio > bound_ratio:
        return "above the bound"
    return "good" if gain_ratio >= LEAST_RATIO * bound_ratio else "below a third"


def draw_results(results: Mapping[str, PairResult], unmeasured: Mapping[str, str]) -> Table:
    """Return the table of pairs, and of rules that no pair can show with the reason why not."""
    rows = [_draw_row(name, result) for name, result in results.items()]
    good = sum(row[-1] == "good" for row in rows)
    rows += [["-", rule, reason, "-", "-", "-", "-", "not measured"] for rule, reason in unmeasured.items()]
    recordings = max((len(result.bounds) for result in results.values()), default=0)
    note = f"{NOTE.format(recordings=recordings)}\n\n{good} of {len(results)} bounds are good."
    return Table("Bounds and gains", note, COLUMNS, rows)  # type: ignore[arg-type]


def _draw_row(name: str, result: PairResult) -> list[str]:
    """Return the row of a pair."""
    bound, (low, gain, high) = result.bound_ratio, result.gain_quartiles
    ratio = "-" if not bound else f"{gain / bound:.2f}"
    shown = "-" if bound is None else f"{100 * bound:.1f}"
    quartiles = f"{100 * low:.1f} to {100 * high:.1f}"
    return [
        name,
        result.pair.rule,
        result.pair.change,
        shown,
        f"{100 * gain:.1f}",
        quartiles,
        ratio,
        judge(bound, gain),
    ]
