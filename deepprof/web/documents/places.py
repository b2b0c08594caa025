"""What documents state of parts and places: in the words of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.parts import IDLE_PARTS
from deepprof.render.text import describe_place
from deepprof.render.wording import Wording
from deepprof.web.documents.schema import CodePlace, TimePart
from deepprof.web.documents.texts import tidy

if TYPE_CHECKING:
    from deepprof.analysis import Analysis, Loop


def name_parts(names: Iterable[str], words: Wording) -> list[TimePart]:
    """Return parts of the time with their titles."""
    return [TimePart(name=name, title=words.parts[name], idle=name in IDLE_PARTS) for name in names]


def read_source(location: Mapping[str, int | str] | None) -> CodePlace | None:
    """Return the line of code of a finding's location, None where it has none."""
    place = location or {}
    if not place.get("file"):
        return None
    return CodePlace(
        file=tidy(str(place["file"])), line=int(place.get("line") or 0), function=tidy(str(place.get("function", "")))
    )


def find_loop_number(finding: Finding, analysis: Analysis) -> int | None:
    """Return the number of the loop that a finding is about, the first of several; None for the whole job."""
    return next((number for number, loop in enumerate(analysis.loops) if finding.is_on(loop)), None)


def name_loop(loop: Loop, words: Wording) -> str:
    """Return what a loop is called in a list of loops."""
    return f"{describe_place(loop.rank, loop.device, loop.stream, words)}: {words.count(loop.period)}"
