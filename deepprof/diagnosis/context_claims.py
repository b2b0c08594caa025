"""Findings on one calling context: what rules on contexts have in common."""

from __future__ import annotations

from msgspec import Struct

from deepprof.diagnosis import Severity
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, Numbers, many
from deepprof.metrics.contexts.per_loop import LoopContexts

AMOUNT_WORDS = {"host_ns": "of the host's time", "device_ns": "of work on the device"}


class ContextClaim(Struct, frozen=True, kw_only=True):
    """A claim of `rule` about one context of a loop; `saved_ns` of computing is what an iteration could save.

    It is a remark unless `severity` states more; a recording without iterations allows no more. `certainty` is how sure
    it is that what was measured matters.
    """

    rule: str
    seen: LoopContexts
    context: int
    severity: Severity = "info"
    saved_ns: float | None = None
    certainty: float = 1.0

    def conclude(self, texts: FindingTexts, evidence: Numbers) -> Finding:
        """Return the finding, with the context's place in the code as its location."""
        loop, recording = self.seen.loop, self.seen.loop.single == "recording"
        saved = None if self.saved_ns is None or recording else round(self.saved_ns)
        index = loop.usual["index"]
        return Finding(
            rule=self.rule,
            severity="info" if recording else self.severity,
            title=texts.title,
            summary=texts.summary,
            evidence=evidence,
            advice=texts.advice,
            confidence=round(self.certainty * loop.confidence * many(loop.usual.height), 3),
            headroom_ns_per_iteration=saved,
            **loop.place,
            iterations=None if loop.single else (int(index[0]), int(index[-1])),
            location=self.seen.describe_place(self.context) or None,
            parts={} if saved is None or loop.single else {"compute_ns": saved},
        )
