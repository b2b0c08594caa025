"""Kernels that only turn tensors from one memory layout into another are much of the computing time.

Libraries put them around convolutions whose tensors do not have the layout that the fastest kernels want (DeepContext,
section 6); programs copy with `.contiguous()` and `cat`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import is_at_work, weigh_names, write_per, write_share
from deepprof.diagnosis.work_marks import mark_conversions, mark_copies
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.kernels.operator_runs import sum_typed

Bools = npt.NDArray[np.bool_]


class _Kind(Struct, frozen=True):
    """What kernels do, in words, and what to do about it, in general and by framework."""

    what: str
    advice: str
    special: dict[str, str]


CERTAINTY = 0.8
KEEP = "Keep the tensors in the layout that these kernels turn them into, from the input on."
KEEP_IN = {
    "pytorch": "model.to(memory_format=torch.channels_last), and the same for each batch.",
    "jax": "Give the convolution its dimensions as NHWC and HWIO, or those that XLA chooses in the compiled module.",
    "tensorflow": "data_format='channels_last' for all convolutions of the model.",
}
COPY = "Avoid copies that only reorder elements."
COPY_IN = {
    "pytorch": (
        "Leave out .contiguous() where the next operator takes strides, write into slices of one tensor instead of "
        "torch.cat, and let torch.compile fuse the rest."
    ),
    "jax": "Order the axes once, or let one jax.jit fuse transposes and concatenations with what uses them.",
}
CONVERSIONS = _Kind("conversions of memory layout around convolutions", KEEP, KEEP_IN)
COPIES = _Kind("copies that only reorder elements", COPY, COPY_IN)


@rule("layout-conversions", subject="work")
def layout_conversions(seen: LoopWork) -> Iterator[Finding]:
    """Yield `layout-conversions` when conversions of layout, or other copies, are much of the computing time."""
    if not is_at_work(seen):
        return
    typed = seen.typed
    conversions, copies = mark_conversions(seen, typed), mark_copies(seen, typed)
    if conversions.any():
        yield _conclude(seen, typed, conversions, CONVERSIONS)
    elif copies.any():
        yield _conclude(seen, typed, copies, COPIES)


def _conclude(seen: LoopWork, typed: pl.DataFrame, marked: Bools, kind: _Kind) -> Finding:
    """Return the finding on these kernels, all of whose time could be saved at most."""
    kernels = sum_typed(seen, typed.filter(marked))
    taken_ns = float(kernels["time_ns"].sum())
    claim = WorkClaim(
        rule="layout-conversions",
        seen=seen,
        kernels=kernels,
        saved_ns=taken_ns,
        certainty=weigh_names(kernels, CERTAINTY),
    )
    texts = FindingTexts(
        title=f"{write_share(claim.work_share)} is {kind.what}",
        summary=(
            f"{float(kernels['kernels'].sum()):.0f} kernels {write_per(seen)} only change the order of channels, rows "
            f"and columns: {format_ms(taken_ns)}, {format_percent(seen.share(taken_ns))} of the time, which is the "
            "most that could be saved, if all tensors had the layout that is needed."
        ),
        advice=advise(seen.trace, kind.advice, **kind.special),
    )
    return claim.conclude(texts, {})
