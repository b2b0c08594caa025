"""One function of the user's code, or of a library, starts much of what runs (DeepContext, analysis 1)."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.collectors.names.functors import shorten_with_function
from deepprof.diagnosis.context_claims import ContextClaim
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.metrics.contexts.frames import write_place
from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.plurals import counted

HOT = 0.3  # of the device's time in a usual iteration
ALL = 0.9  # of it: a function that starts everything is not where to look
LINE = ("function", "source", "begins")


@rule("hotspot", subject="contexts")
def hotspot(seen: LoopContexts) -> Iterator[Finding]:
    """Yield `hotspot` for the line of code that has most of the device's time: a remark, with its largest kernel."""
    whole, kernels = float(seen.table["device_ns"][0]), _find_hottest(seen)
    taken_ns = float(kernels["own_device_ns"].sum())
    if kernels.is_empty() or not HOT * whole <= taken_ns <= ALL * whole:
        return
    best = kernels.row(0, named=True)
    name, kernel_ns, calls = _find_largest(kernels)
    largest = "most" if kernel_ns > taken_ns / 2 else "the largest part"
    place = write_place(seen.describe_place(int(best["context"])))
    texts = FindingTexts(
        title=f"{format_percent(taken_ns / whole)} of the device's work is launched in {place}",
        summary=(
            f"What it launches, directly or through the framework, takes {format_ms(taken_ns)} of {seen.loop.unit}; "
            f"{largest} of that is {name} ({format_ms(kernel_ns)} in {counted(calls, 'call')})."
        ),
        advice="Look here first when the computation itself is to become faster; deepprof flame shows what is in it.",
    )
    evidence = {
        "device_ns_per_iteration": round(taken_ns),
        "share_ratio": round(taken_ns / whole, 4),
        "kernel_ns_per_iteration": round(kernel_ns),
    }
    yield ContextClaim(rule="hotspot", seen=seen, context=int(best["context"])).conclude(texts, evidence)


def _find_largest(kernels: pl.DataFrame) -> tuple[str, float, int]:
    """Return the short name that uses most of the kernels' time, that time, and the number of calls."""
    sums: dict[str, tuple[float, float]] = {}
    for name, taken_ns, calls in kernels.select("name", "own_device_ns", "own_kernels").iter_rows():
        short = shorten_with_function(name or "")
        before = sums.get(short, (0.0, 0.0))
        sums[short] = before[0] + taken_ns, before[1] + calls
    name, (taken_ns, calls) = max(sums.items(), key=lambda item: item[1])
    return name, taken_ns, max(1, round(calls))


def _find_hottest(seen: LoopContexts) -> pl.DataFrame:
    """Return what ran for the function with most of the device's time, the longest first, with its `LINE`."""
    ran = seen.table.with_columns(code=pl.Series(seen.lines)).filter(
        (pl.col("code") >= 0) & (pl.col("own_device_ns") > 0)
    )
    frames = seen.table.select(code=pl.col("context").cast(pl.Int64), function="name", source="file", begins="line")
    lines = ran.join(frames, on="code", how="left")
    taken = lines.group_by(LINE).agg(pl.col("own_device_ns").sum())
    top = taken.sort("own_device_ns", *LINE, descending=[True, False, False, False]).head(1)
    return lines.join(top, on=LINE, how="semi").sort("own_device_ns", descending=True, maintain_order=True)
