"""Kernels that only turn tensors from one memory layout into another take much of the time (DeepContext, section 6).

Libraries put them around convolutions whose tensors do not have the layout that the fastest kernels want.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deepprof.diagnosis.context_claims import ContextClaim
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.metrics.contexts.code_lines import find_most
from deepprof.metrics.contexts.per_loop import LoopContexts
from deepprof.metrics.kernels.name_kinds import classify_names

CONVERSION = "conversion of layout"  # cuDNN's and MIOpen's transposes around convolutions
LIMITS = SeverityLimits(warning=0.1, critical=0.3)
KEEP = "Keep the tensors in the layout that these kernels turn them into, from the input on."
KEEP_IN = {"pytorch": "model.to(memory_format=torch.channels_last), and the same for each batch."}


@rule("layout-conversions", subject="contexts")
def layout_conversions(seen: LoopContexts) -> Iterator[Finding]:
    """Yield `layout-conversions` when conversions of layout take a tenth of the device's time."""
    turned = seen.table["kind"].is_in(["kernel"]) & (classify_names(seen.table["name"])["algorithm"] == CONVERSION)
    own = np.where(turned.fill_null(value=False).to_numpy(), seen.table["own_device_ns"].to_numpy(), 0.0)
    whole, taken_ns = float(seen.table["device_ns"][0]), float(own.sum())
    if not taken_ns or taken_ns < LIMITS.warning * whole:
        return
    count = float(seen.table.filter(turned)["kernels"].sum())
    texts = FindingTexts(
        title="Tensors are turned from one memory layout into another",
        summary=(
            f"{count:.0f} kernels per iteration only change the order of channels, rows and columns: "
            f"{format_ms(taken_ns)} ({format_percent(taken_ns / whole)} of all that runs)."
        ),
        advice=advise(seen.trace, KEEP, **KEEP_IN),
    )
    evidence = {
        "kernels_per_iteration": round(count, 1),
        "device_ns_per_iteration": round(taken_ns),
        "share_ratio": round(taken_ns / whole, 4),
    }
    claim = ContextClaim(
        rule="layout-conversions",
        seen=seen,
        context=find_most(seen.table, own) or int(np.argmax(own)),
        severity="critical" if taken_ns >= LIMITS.critical * whole else "warning",
        saved_ns=taken_ns,
    )
    yield claim.conclude(texts, evidence)
