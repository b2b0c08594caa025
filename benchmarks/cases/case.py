"""One labelled job: where its traces come from, and the headline it deserves."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deepprof.analysis import analyze
from deepprof.collectors.trace import Trace

__all__ = ["HEALTHY", "SURE", "Case", "Verdict", "judge"]

HEALTHY = "healthy"  # no headline: nothing is wrong, or the trace does not show it
SURE = 0.8  # confidence from which on a wrong headline does harm


@dataclass(frozen=True)
class Case:
    """`load` reads the ranks into a scratch directory's files; `label` is a rule's name or `HEALTHY`.

    `also` are headlines that are as true: two causes of about one size, or one seen with less evidence.
    """

    section: str
    name: str
    label: str
    load: Callable[[Path], list[Trace]]
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What the diagnosis says of a case."""

    case: Case
    headline: str
    confidence: float

    @property
    def right(self) -> bool:
        """Whether the headline is the label."""
        return self.headline in (self.case.label, *self.case.also)

    @property
    def abstains(self) -> bool:
        """Whether a mistake was not seen, and nothing else blamed."""
        return not self.right and self.headline == HEALTHY

    @property
    def wrong(self) -> bool:
        """Whether something else is blamed."""
        return not self.right and not self.abstains


def judge(case: Case) -> Verdict:
    """Return the verdict on a case, which has a scratch directory of its own."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="deepprof-case-") as scratch:
        warnings.simplefilter("ignore")
        found = analyze(case.load(Path(scratch))).headline
    return Verdict(case, found.rule if found else HEALTHY, found.confidence if found else 0.0)
