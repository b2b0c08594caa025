"""FlashAttention 2 runs on a Hopper device, for whose tensor cores FlashAttention 3 was written."""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import describe_kernels, is_at_work, is_large, name_whole, write_share
from deepprof.metrics.kernels.loop_work import LoopWork

HOPPER = re.compile(r"\b(?:GH200|H(?:100|200|800|20))\b")
OLDER = "flash attention 2"
# FlashAttention-3 (Shah et al., 2024), section 4: 1.5 to 2 times as fast forward, 1.5 to 1.75 times backward, on H100.
TIMES = 2.0
FEW_QUERIES = r"(?i)splitkv"  # of decoding: memory limits them, and tensor cores that are used better do not help
LEAST = 0.15  # of the computing time: half of less is no reason to change a library
CERTAINTY = 0.6  # masks, widths of heads and dropout that it does not have are not recorded
UPDATE = "Use an attention kernel that is written for Hopper."
UPDATE_IN = {
    "pytorch": (
        "cuDNN's attention (torch.nn.attention.sdpa_kernel with SDPBackend.CUDNN_ATTENTION), FlashAttention 3 (Hugging "
        "Face: attn_implementation='flash_attention_3') or flex_attention under torch.compile."
    ),
    "jax": "jax.nn.dot_product_attention(…, implementation='cudnn').",
}


@rule("older-attention", subject="work")
def older_attention(seen: LoopWork) -> Iterator[Finding]:
    """Yield `older-attention` where FlashAttention 2 uses much of a Hopper device's computing time."""
    if not HOPPER.search(seen.device_name or "") or not is_at_work(seen):
        return
    older = (pl.col("category") == "attention") & pl.col("algorithm").str.starts_with(OLDER).fill_null(value=False)
    kernels = seen.work.kernels.filter(older & ~pl.col("name").str.contains(FEW_QUERIES))
    taken_ns = float(kernels["time_ns"].sum())
    if is_large(seen, taken_ns, LEAST):
        saved_ns = taken_ns * (1 - 1 / TIMES)
        yield _conclude(
            WorkClaim(rule="older-attention", seen=seen, kernels=kernels, saved_ns=saved_ns, certainty=CERTAINTY)
        )


def _conclude(claim: WorkClaim) -> Finding:
    seen, saved_ns = claim.seen, claim.saved_ns
    texts = FindingTexts(
        title=f"{write_share(claim.work_share)} is FlashAttention 2, which does not use all of {seen.device_name}",
        summary=(
            f"{describe_kernels(seen, claim.kernels)}. At most {format_ms(saved_ns)} of {name_whole(seen)} "
            f"({format_percent(seen.share(saved_ns))}) could be saved, if the same attention runs {TIMES:g} times as "
            "fast in FlashAttention 3. Sums are in another order: compare the loss of some hundred steps, and measure "
            "the time of an iteration."
        ),
        advice=advise(seen.trace, UPDATE, **UPDATE_IN),
    )
    return claim.conclude(texts, {"times": TIMES})
