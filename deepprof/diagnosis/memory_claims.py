"""Findings on the memory of one device: what rules on memory have in common."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.diagnosis import Severity
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, Numbers
from deepprof.metrics.memory.device_memory import DeviceMemory

Place = dict[str, int | str]
PLACE_KEYS = ("function", "file", "line", "operator", "layer")


class MemoryClaim(Struct, frozen=True, kw_only=True):
    """A claim of `rule` about the memory of a device; a remark unless `severity` states more.

    `certainty` is how sure it is that what was measured matters. Where the device has a loop, the finding is on that.
    """

    rule: str
    memory: DeviceMemory
    severity: Severity = "info"
    certainty: float = 1.0

    def conclude(self, texts: FindingTexts, evidence: Numbers, location: Place | None = None) -> Finding:
        """Return the finding."""
        loop, trace = self.memory.loop, self.memory.known.trace
        index = None if loop is None or loop.single else loop.usual["index"]
        return Finding(
            rule=self.rule,
            severity=self.severity,
            title=texts.title,
            summary=texts.summary,
            evidence=evidence,
            advice=texts.advice,
            confidence=round(self.certainty * (1.0 if loop is None else loop.confidence), 3),
            **({"rank": trace.rank or 0, "device": self.memory.device} if loop is None else loop.place),
            iterations=None if index is None or index.is_empty() else (int(index[0]), int(index[-1])),
            location=location or None,
        )


def place_of(row: Mapping[str, object]) -> Place:
    """Return a place of the columns of a row that are known."""
    return {key: value for key in PLACE_KEYS if isinstance(value := row.get(key), int | str)}


def trace_of(memory: DeviceMemory) -> Trace:
    """Return the trace whose memory it is."""
    return memory.known.trace
