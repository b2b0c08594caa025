"""One context uses more and more although the iterations show neither drift nor graph growth."""

from __future__ import annotations

from collections.abc import Iterator

from deepprof.diagnosis.context_claims import AMOUNT_WORDS, ContextClaim
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, Numbers, format_ms
from deepprof.diagnosis.rule import rule
from deepprof.metrics.contexts.growing import find_growing
from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.metrics.series.drift import find_drift
from deepprof.metrics.series.growth import find_count_growth, find_interval_growth

REMARK = 0.05  # of an iteration


@rule("growing-context", subject="contexts")
def growing_context(seen: LoopContexts) -> Iterator[Finding]:
    """Yield `growing-context` for the innermost context whose time grows steadily: a remark."""
    if find_drift(seen.loop) or find_interval_growth(seen.loop) or find_count_growth(seen.loop):
        return  # their findings name the context
    least = REMARK * float(seen.loop.usual["iteration_ns"].mean() or 0)  # type: ignore[arg-type]
    grown = [each for column in AMOUNT_WORDS if (each := find_growing(seen, column, least)) is not None]
    if not grown or not least:
        return
    worst = max(grown, key=lambda each: each.growth)
    name = seen.table["name"][worst.context]
    texts = FindingTexts(
        title=f"{name} takes longer from iteration to iteration",
        summary=(
            f"It takes {format_ms(worst.first)} {AMOUNT_WORDS[worst.column]} in the first sixth of the iterations and "
            f"{format_ms(worst.last)} in the last, and more in each sixth than in the one before."
        ),
        advice="Look for what it keeps or traverses again: a list, a graph or a cache that is never emptied.",
    )
    evidence: Numbers = {"measure": worst.column, "first_ns": round(worst.first), "last_ns": round(worst.last)}
    yield ContextClaim(rule="growing-context", seen=seen, context=worst.context).conclude(texts, evidence)
