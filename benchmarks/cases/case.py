"""One labelled job: where its traces come from, and the headline it deserves."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from deepprof.analysis import Analysis, analyze
from deepprof.collectors.trace import Trace

__all__ = ["HEALTHY", "SURE", "Case", "Verdict", "examine", "judge", "judge_analysis"]

HEALTHY = "healthy"  # no headline: nothing is wrong, or the trace does not show it
SURE = 0.8  # confidence from which on a wrong headline does harm


@dataclass(frozen=True)
class Case:
    """`load` reads the ranks into a scratch directory's files; `label` is a rule's name or `HEALTHY`.

    `also` are headlines that are as true: two causes of about one size, or one seen with less evidence. `never` are
    rules that may not be among the findings, told as a cause or as a symptom. `loops` are the fewest and the most loops
    that there are, and `iterations` how many whole ones the first of them has, where the case is about that. `counts`
    is what the user states of them, as in the paper. `finds` are a rule that must be among the findings and the
    function that it must name, as a profiler writes it."""

    section: str
    name: str
    label: str
    load: Callable[[Path], list[Trace]]
    also: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    loops: tuple[int, int] | None = None
    iterations: int | None = None
    counts: tuple[int, ...] = ()
    finds: tuple[str, str] | None = None


@dataclass(frozen=True)
class Verdict:
    """What the diagnosis states of a case."""

    case: Case
    headline: str
    confidence: float
    rules: frozenset[str] = frozenset()
    loops: int = 0
    iterations: int = 0
    lines: frozenset[tuple[str, str]] = frozenset()  # a rule, and the function that it names

    @property
    def right(self) -> bool:
        """Whether the headline is the label, and nothing is told that may not be."""
        if self.case.loops is not None and not self.case.loops[0] <= self.loops <= self.case.loops[1]:
            return False
        if self.case.iterations not in (None, self.iterations) or self.case.finds not in (None, *self.lines):
            return False
        return self.headline in (self.case.label, *self.case.also) and not self.rules & set(self.case.never)

    @property
    def abstains(self) -> bool:
        """Whether a mistake was not seen, and nothing else blamed."""
        return not self.right and self.headline == HEALTHY != self.case.label

    @property
    def wrong(self) -> bool:
        """Whether something else is blamed."""
        return not self.right and not self.abstains


def judge(case: Case) -> Verdict:
    """Return the verdict on a case."""
    return judge_analysis(case, examine(case))


def examine(case: Case) -> Analysis:
    """Return the analysis of a case, which has a scratch directory of its own."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="deepprof-case-") as scratch:
        warnings.simplefilter("ignore")
        return analyze(case.load(Path(scratch)), counts=case.counts)


def judge_analysis(case: Case, analysis: Analysis) -> Verdict:
    """Return the verdict on what was found."""
    found, rules = analysis.headline, frozenset(finding.rule for finding in analysis.findings)
    said = (found.rule, found.confidence) if found else (HEALTHY, 0.0)
    whole = int(analysis.loops[0].iterations["complete"].sum()) if analysis.loops else 0
    return Verdict(case, *said, rules, len(analysis.loops), whole, frozenset(_list_lines(analysis)))


def _list_lines(analysis: Analysis) -> Iterator[tuple[str, str]]:
    """Yield the rule of every finding that names a function, and the function."""
    for finding in analysis.findings:
        place = finding.location or {}
        if "file" in place:
            yield finding.rule, f"{place['file']}({place['line']}): {place['function']}"
