"""One context of a running job uses more and more of its time, over minutes or hours."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.diagnosis.context_claims import AMOUNT_WORDS
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, Numbers, SeverityLimits, format_ms
from deepprof.diagnosis.rule import rule
from deepprof.metrics.contexts.code_lines import describe_place, find_lines
from deepprof.metrics.contexts.frames import write_line
from deepprof.metrics.contexts.growing import MIN_WINDOWS, RisingContext, find_rising
from deepprof.metrics.contexts.history import ContextsOfRank

LIMITS = SeverityLimits(warning=0.1, critical=0.3)  # of all time: by how much its share grew
SURE = 3 * MIN_WINDOWS  # windows from which on there is no doubt left


@rule("rising-context", subject="history", limits=LIMITS)
def rising_context(history: ContextsOfRank) -> Iterator[Finding]:
    """Yield `rising-context` for the innermost context whose time rises from window to window."""
    found = find_rising(history.sent, history.sums)
    if found is None:
        return
    contexts = history.sent.contexts
    place = describe_place(contexts, find_lines(contexts), found.context)
    name = _name(place, str(contexts["name"][found.context]))
    texts = FindingTexts(
        title=f"{name} takes longer and longer",
        summary=(
            f"For the same work it takes {format_ms(found.before_ns)} {AMOUNT_WORDS[found.amount]} at the begin and "
            f"{format_ms(found.after_ns)} at the end of {format_ms(found.end_ns - found.start_ns)}, and more "
            f"from window to window; at the end that is {100 * found.share_ratio:.0f} % of all."
        ),
        advice="Look for what it keeps or traverses again: a list, a graph or a cache that is never emptied.",
    )
    evidence: Numbers = {
        "measure": found.amount,
        "before_ns": round(found.before_ns),
        "after_ns": round(found.after_ns),
        "share_ratio": round(found.share_ratio, 4),
        "windows": found.windows,
        "start_ns": found.start_ns,
        "end_ns": found.end_ns,
    }
    yield Finding(
        rule="rising-context",
        severity=LIMITS.rate(_grown_share(found)),
        title=texts.title,
        summary=texts.summary,
        evidence=evidence,
        advice=texts.advice,
        confidence=round(min(1.0, 0.5 + 0.5 * found.windows / SURE), 3),
        rank=history.rank,
        location=place or None,
    )


def _name(place: dict[str, int | str], otherwise: str) -> str:
    """Return the line of code, where available."""
    if "file" not in place:
        return otherwise
    return write_line(str(place["function"]), str(place["file"]), int(place["line"]))


def _grown_share(found: RisingContext) -> float:
    """Return how much of all time at the end is what it uses more than at the begin."""
    return found.share_ratio * found.growth_ns / max(1.0, found.after_ns)
