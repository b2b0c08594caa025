"""The result of a rule: one finding, with the numbers it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from deepprof.collectors.reprs import in_milliseconds, one_line
from deepprof.diagnosis import Severity

if TYPE_CHECKING:
    from deepprof.metrics.loop import Loop


class Finding(Struct, frozen=True, kw_only=True):
    """One cause of lost time.

    `headroom_ns_per_iteration` is what one iteration would save if the cause were gone (null: unknown), `iterations`
    the first and last affected index, `confidence` in 0..1. `caused_by` names the rule of the finding that explains
    this one: it is a symptom, and is listed under its cause. `parts` divides the headroom among the parts of the
    iteration time (`metrics.breakdown.parts`), in ns per iteration: no two findings claim the same nanoseconds.
    """

    rule: str
    severity: Severity
    title: str
    summary: str
    evidence: Mapping[str, int | float | str | None]
    advice: str
    confidence: float
    headroom_ns_per_iteration: int | None = None
    rank: int | None = None
    device: int | None = None
    stream: int | None = None
    iterations: tuple[int, int] | None = None
    location: Mapping[str, int | str] | None = None
    caused_by: str | None = None
    parts: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        headroom = self.headroom_ns_per_iteration
        saved = "" if headroom is None else f"up to {in_milliseconds(headroom)} per iteration"
        place = "" if self.rank is None else f"rank {self.rank}"
        return one_line(self, self.rule, self.severity, place, saved, self.title)

    def is_on(self, loop: Loop) -> bool:
        """Return whether the finding is about `loop`, and not about the whole job.

        Of several loops on one main stream it is about that with the iteration time that the evidence states, if any.
        """
        stated, times = self.evidence.get("iteration_ns"), loop.usual["iteration_ns"]
        mean_ns = float(times.sum()) / max(1, len(times))
        same = not isinstance(stated, int | float) or not len(times) or abs(stated - mean_ns) <= 1
        return same and (self.rank, self.device, self.stream) == (loop.rank, loop.device, loop.stream)
