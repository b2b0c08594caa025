"""Attention is written out: its scores pass through memory between two products, which a fused kernel spares."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import WorkClaim
from deepprof.diagnosis.work_evidence import is_enough, name_whole, share_of_kernels, weigh_names
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.kernels.written_attention import PRODUCT, find_written_attention
from deepprof.plurals import counted

LEAST = 0.04  # of the kernels' time: the sequence of kernels leaves no doubt, but less is not worth a change
OF_PRODUCTS = 0.5  # of the time of both products is at most that of writing and reading scores
CERTAINTY = 0.85
FUSE = "Compute attention in one fused kernel."
MATH = "aten::_scaled_dot_product_attention_math"  # the path that writes the scores, where no fused kernel fits
TAKE = (
    "Let scaled_dot_product_attention take a fused kernel: it ran its math path. Fused ones need a mask without "
    "gradient, heads of equal width, and for FlashAttention half precision; torch.nn.attention.sdpa_kernel with "
    "SDPBackend.EFFICIENT_ATTENTION and FLASH_ATTENTION alone warns of what does not fit."
)
FUSE_IN = {
    "pytorch": (
        "Call torch.nn.functional.scaled_dot_product_attention with attn_mask, dropout_p and is_causal in place of the "
        "products and the softmax (Hugging Face: attn_implementation='sdpa'). In half precision it takes "
        "FlashAttention, in float32 the memory-efficient kernel; neither writes the scores to memory."
    ),
    "jax": "Call jax.nn.dot_product_attention with implementation='cudnn', in bfloat16 or float16.",
    "tensorflow": "Use keras.layers.MultiHeadAttention with flash_attention=True, or let XLA fuse it.",
}


@rule("unfused-attention", subject="work")
def unfused_attention(seen: LoopWork) -> Iterator[Finding]:
    """Yield `unfused-attention` where softmax, masks and dropout between two products use much of the time."""
    if not is_enough(seen):
        return
    found = find_written_attention(seen.kernels, seen.kinds.table)
    taken_ns = found.group_by(pl.col("category") == PRODUCT, maintain_order=True).agg(pl.col("part_ns").sum())
    sums = {product: ns / seen.iterations for product, ns in taken_ns.iter_rows()}
    if share_of_kernels(seen, sums.get(False, 0.0)) >= LEAST:
        saved_ns = sums[False] + OF_PRODUCTS * sums.get(True, 0.0)
        yield _conclude(seen, found.filter(pl.col("category") != PRODUCT), saved_ns)


def _conclude(seen: LoopWork, between: pl.DataFrame, saved_ns: float) -> Finding:
    kernels = _gather(seen, between)
    claim = WorkClaim(
        rule="unfused-attention",
        seen=seen,
        kernels=kernels,
        saved_ns=saved_ns,
        certainty=weigh_names(kernels, CERTAINTY),
    )
    pairs = between["section"].n_unique() / seen.iterations
    softmax = between.filter(pl.col("category") == "softmax")
    softmax_ns = float(softmax["part_ns"].sum()) / seen.iterations
    texts = FindingTexts(
        title=(
            f"{format_percent(claim.work_share)} of the computing time is softmax, masks and scaling of attention that "
            "is written out between two products"
        ),
        summary=(
            f"Between {counted(pairs, 'pair')} of products {'' if seen.loop.single else 'per iteration '}run "
            f"{counted(float(kernels['kernels'].sum()), 'kernel')} for {format_ms(claim.taken_ns)}, "
            f"{_name(softmax_ns)}. A fused kernel keeps the scores on the chip: at most {format_ms(saved_ns)} of "
            f"{name_whole(seen)} ({format_percent(seen.share(saved_ns))}) could be saved, this time and half of that "
            "of the products, which write and read the scores. It sums in another order, which changes the last "
            "digits; measure the time of an iteration and the peak of memory."
        ),
        advice=TAKE if (seen.trace.names == MATH).any() else advise(seen.trace, FUSE, **FUSE_IN),
    )
    evidence = {
        "pairs_per_iteration": round(pairs, 2),
        "softmax_ns_per_iteration": round(softmax_ns) or None,
        "written_by_hand": bool(between["by_hand"].any()),
    }
    return claim.conclude(texts, evidence)


def _name(softmax_ns: float) -> str:
    if not softmax_ns:
        return "a softmax of single operations (maximum, exponential, sum, division)"
    return f"{format_ms(softmax_ns)} of it softmax, the rest scaling, masks, dropout and copies"


def _gather(seen: LoopWork, between: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels as rows of `Work.kernels`, with the amounts of those between products alone."""
    own = between.group_by("kind").agg(
        kernels=pl.len() / seen.iterations, time_ns=pl.col("part_ns").sum() / seen.iterations
    )
    rows = seen.work.kernels.drop("kernels", "time_ns")
    return rows.join(own, on="kind", how="inner", maintain_order="left")
