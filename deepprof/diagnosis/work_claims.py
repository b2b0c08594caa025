"""Findings on what a device computes: what rules on work have in common."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from deepprof.diagnosis import Severity
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import MOST_OF_IT, FindingTexts, Numbers, SeverityLimits, format_ms, many
from deepprof.metrics.breakdown.queueing import saved_without
from deepprof.metrics.contexts.code_lines import Place, find_most
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.spans import Spans, union

LEADS = 0.5  # of the time the device must work: else what it waits for comes first
JUST_IN_TIME = (
    " {saved} of that would be saved at present: the host launches the work that follows just in time, and the device "
    "would wait for it."
)
LIMITS = SeverityLimits(warning=0.05, critical=0.3)  # of an iteration, that could be saved


def _write_saved(headroom_ns: float) -> str:
    """Return how much can be saved, for the beginning of a sentence."""
    return f"Only {format_ms(headroom_ns)}" if headroom_ns >= 1_000 else "Nothing"


class WorkClaim(Struct, frozen=True, kw_only=True, eq=False):
    """A claim of `rule`: that some `kernels` of a device, rows of `Work.kernels`, last longer than they need to.

    `saved_ns` is a bound: what an iteration could save at most, as the summary states on what assumption. `certainty`
    is how sure it is that the kernels are what the finding takes them for, and that the change is possible. With
    `same_launches` the kernels only become shorter, so that the host launches as many as before, and no sooner.
    """

    rule: str
    seen: LoopWork
    kernels: pl.DataFrame
    saved_ns: float
    limits: SeverityLimits = LIMITS
    certainty: float = 0.8
    same_launches: bool = False

    @property
    def taken_ns(self) -> float:
        """The time of the kernels, per iteration."""
        return float(self.kernels["time_ns"].sum())

    @property
    def work_share(self) -> float:
        """That time as a share of the computing time."""
        return self.seen.work_share(self.taken_ns)

    def _rate(self, headroom_ns: float) -> Severity:
        """Return how much could be saved; a remark where the device waits for most of the time."""
        return self.limits.rate(self.seen.share(headroom_ns)) if self.seen.busy_ratio >= LEADS else "info"

    def _find_headroom(self) -> float:
        """The bound, or less where the host is not so far ahead of the device: then the device would wait for it."""
        if not self.same_launches or self.seen.loop.single == "recording":
            return self.saved_ns
        shorter_ns = saved_without(self.seen.loop, self.seen.trace, self._cut_kernels())
        return self.saved_ns if shorter_ns is None else min(self.saved_ns, max(0.0, shorter_ns))

    def _cut_kernels(self) -> Spans:
        """Return the share of every kernel of these kinds that could be saved, as a part of the time that it runs."""
        ran = self.seen.kernels.filter(pl.col("kind").is_in(self.kernels["kind"].implode()))
        whole_ns = float(ran["part_ns"].sum())
        share = min(1.0, self.saved_ns * self.seen.iterations / whole_ns) if whole_ns else 0.0
        start = ran["start_ns"].to_numpy()
        return union(start, start + (share * ran["ns"].to_numpy()).astype(np.int64))

    def conclude(self, texts: FindingTexts, evidence: Numbers) -> Finding:
        """Return the finding, with the line of code that launches most of the kernels, where available."""
        loop, headroom_ns = self.seen.loop, self._find_headroom()
        saved, index = round(headroom_ns), loop.usual["index"]
        waits = headroom_ns < MOST_OF_IT * self.saved_ns
        return Finding(
            rule=self.rule,
            severity=self._rate(headroom_ns),
            title=texts.title,
            summary=texts.summary + (JUST_IN_TIME.format(saved=_write_saved(headroom_ns)) if waits else ""),
            evidence={**self._describe(), **evidence},
            advice=texts.advice,
            confidence=round(self.certainty * loop.confidence * many(loop.usual.height), 3),
            headroom_ns_per_iteration=None if loop.single == "recording" else saved,
            **loop.place,
            iterations=None if loop.single else (int(index[0]), int(index[-1])),
            location=self._find_place() or None,
            parts={} if loop.single else {"compute_ns": saved},
        )

    def _describe(self) -> dict[str, int | float]:
        """Return the numbers that every finding on work rests on."""
        return {
            "cost_ns_per_iteration": round(self.saved_ns),
            "share_ratio": round(self.seen.share(self.saved_ns), 4),
            "kernel_ns_per_iteration": round(self.taken_ns),
            "work_share_ratio": round(self.work_share, 4),
            "kernels_per_iteration": round(float(self.kernels["kernels"].sum()), 2),
            "iteration_ns": round(self.seen.iteration_ns),
            "busy_ratio": round(self.seen.busy_ratio, 4),
        }

    def _find_place(self) -> Place:
        """Return the place in the code where most of the kernels' time is launched, empty where it is unknown.

        Launches that were not recorded, which show nothing of the code, count only where there are no others.
        """
        contexts = self.seen.contexts
        if contexts is None:
            return {}
        names = self.kernels["name"].unique()
        named = contexts.table.select((pl.col("kind") == "kernel") & pl.col("name").is_in(names.implode())).to_series()
        own = np.where(named.fill_null(value=False).to_numpy(), contexts.table["own_device_ns"].to_numpy(), 0.0)
        around = contexts.table["kind"].gather(contexts.table["parent"].fill_null(0))
        launched = np.where((around != "unattributed").to_numpy(), own, 0.0)
        found = find_most(contexts.table, launched if launched.any() else own)
        return {} if found is None else contexts.describe_place(found)
