"""Attention that is written out: scores, softmax and what is around it as kernels between two products.

A framework without fused attention multiplies queries and keys, scales and masks the scores, takes their softmax, drops
some, and multiplies with the values; the backward pass does the same in reverse. On a stream this is a product, a few
kernels with a softmax among them, and a product. Softmax by hand is a maximum, an exponential and a sum, and its
gradient divides, sums and negates.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

PRODUCT = "matmul"
# What is between two products of attention; anything else shows that the second one is about something else.
LOOKED_UP = ("embedding_index", "sort_scan_topk")  # biases by relative position, and their gradients
BETWEEN = (
    *("softmax", "elementwise", "layout", "cast", "random", "reduction", "memory_set_copy", "unknown"),
    *LOOKED_UP,
)
MOST_BETWEEN = 24  # kernels: a mask may be made anew, which takes ten
# Softmax of a loss: its product is the last layer, and no second one follows.
OF_LOSS = r"(?i)log_?soft_?max|softmax_warp_\w+<[^()]*?, *(?:\(int\))?\d+, *(?:\(bool\))?(?:true|1)\b"
STEPS: Mapping[str, str] = MappingProxyType(
    {
        "maximum": r"(?i)max_?ops|max_values|\bamax|reduce_max|aten::max$",
        "exponential": r"(?i)(?:^|[^a-z])exp(?:_kernel|_cuda|onential|_?$)",
        "division": r"(?i)(?:^|[^a-z])(?:true_)?div(?:_?functor|_true|_kernel|ide|_?$)",
        "gradient": r"(?i)backward",
        "negation": r"(?i)(?:^|[^a-z])neg(?:_kernel|ate|_?$)",
    }
)


def find_written_attention(kernels: pl.DataFrame, kinds: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs of products of attention with the kernels between them, in the order of their streams.

    `kernels` are of `kernels.computed_work.list_kernels`, `kinds` is the table of kinds that they number. A row has
    their columns, `category` (that of the products is `PRODUCT`), `section` (the number of the pair), and `by_hand`:
    whether its softmax is written as single operations.
    """
    rows = _describe(kernels, kinds).sort("stream", "start_ns", "event")
    place = pl.struct("stream", "window")
    edges = ~pl.col("category").is_in(BETWEEN) | (place != place.shift()).fill_null(value=True)
    placed = rows.with_columns(section=edges.cast(pl.Int64).cum_sum())
    chosen = _choose_sections(placed).with_columns(pair="section")
    second = chosen.with_columns(pl.col("section") + 1)
    inner = placed.drop(STEPS).join(chosen, on="section", how="inner", maintain_order="left")
    ends = placed.drop(STEPS).filter(pl.col("category") == PRODUCT).join(second, on="section", how="inner")
    rows = pl.concat([inner, ends]).drop("section").rename({"pair": "section"})
    return rows.unique("event", keep="first").sort("stream", "start_ns", "event")


def _describe(kernels: pl.DataFrame, kinds: pl.DataFrame) -> pl.DataFrame:
    """Return the kernels with their categories and the steps of softmax that their names state."""
    of_loss = (pl.col("category") == "softmax") & pl.col("name").str.contains(OF_LOSS)
    described = kinds.with_row_index("kind").select(
        pl.col("kind").cast(pl.Int64),
        pl.when(of_loss).then(pl.lit("loss")).otherwise(pl.col("category").cast(pl.String)).alias("category"),
        *(pl.col("name").str.contains(pattern).alias(step) for step, pattern in STEPS.items()),
    )
    rows = kernels.join(described, on="kind", how="left", maintain_order="left")
    return rows.with_columns(pl.col("category").fill_null("unknown"), pl.col(*STEPS).fill_null(value=False))


def _choose_sections(placed: pl.DataFrame) -> pl.DataFrame:
    """Return `section` and `by_hand` of the sections that are between two products of attention.

    A section begins with its first product. What is looked up by the results of a softmax is the next token or an
    expert. A softmax whose gradient follows without a product between them is that of a loss. A norm's gradient by hand
    looks like that of a softmax, but comes more often: gradients count where there are no more of them than softmaxes
    by hand.
    """
    softmax = pl.col("category") == "softmax"
    after = softmax.cum_sum() > 0
    sums = (pl.col("category") == "reduction").any()
    sections = placed.group_by("section", maintain_order=True).agg(
        pl.col("category", "stream", "window").first(),
        kernels=pl.len() - 1,
        softmax=softmax.any(),
        turns=(pl.col("gradient") & softmax).any() & (~pl.col("gradient") & softmax).any(),
        looked_up=(pl.col("category").is_in(LOOKED_UP) & after & ~pl.col("gradient").any()).any(),
        forward=pl.col("maximum").any() & pl.col("exponential").any() & sums,
        backward=pl.col("division").any() & pl.col("negation").any() & sums,
    )
    place, product = pl.struct("stream", "window"), pl.col("category") == PRODUCT
    follows = (product & (place == place.shift())).shift(-1)
    pairs = sections.filter(product & follows & (pl.col("kernels") <= MOST_BETWEEN))
    forward = pairs.filter(~pl.col("softmax") & pl.col("forward"))
    backward = pairs.filter(~pl.col("softmax") & pl.col("backward") & ~pl.col("forward"))
    found = [
        pairs.filter(pl.col("softmax") & ~pl.col("looked_up") & ~pl.col("turns")),
        forward,
        backward if backward.height <= forward.height else backward.clear(),
    ]
    return pl.concat(found).select("section", by_hand=~pl.col("softmax"))
