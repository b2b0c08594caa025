"""Reading rows of tables by index, or adding to them, is much of the computing time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.names.short import shorten
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.frameworks import advise
from deepprof.diagnosis.judgement import FindingTexts, SeverityLimits, format_ms, format_percent
from deepprof.diagnosis.rule import rule
from deepprof.diagnosis.work_claims import LIMITS, WorkClaim
from deepprof.diagnosis.work_evidence import is_at_work, is_large, weigh_names, write_per, write_share
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.kernels.operator_runs import sum_typed, widen
from deepprof.plurals import counted, verb

Bools = npt.NDArray[np.bool_]

LEAST = 0.15  # of the computing time: a lookup of tokens is a percent of it
REMARK = SeverityLimits(warning=math.inf, critical=math.inf)  # the rows must be read
CERTAINTY = 0.6  # how the rows are spread decides what can be saved
NEAR = 2  # kernels between a sort of indices and what it is for
TABLES = r"(?i)split_embedding|fbgemm|permute_pooled_embs|embedding_bag|EmbeddingBag"
GRADIENT = r"(?i)compute_grad_weight|sum_and_scatter|krn_partials|embedding_(?:dense_)?backward|EmbeddingGrad"
GATHERS = r"scatter_gather_internal_kernel<(?:false|\(bool\)0)"  # ATen's kernel for both, told that it gathers
ADDS = r"(?i)scatter|backward|index_put|index_add|indexing_backward|compute_grad_weight|sum_and_scatter|IndexedSlices"


class _Access(Struct, frozen=True, kw_only=True):
    """A kind of access to tables: its words, the share of its time that could be saved at most, why, and advice."""

    what: str
    saved_ratio: float
    assumption: str
    advice: str
    special: dict[str, str]
    limits: SeverityLimits = LIMITS


OF_TABLES = _Access(
    what="lookups and updates of embedding tables, bound by memory",
    saved_ratio=0.5,
    assumption="if the rows have half as many bytes",
    advice="Move fewer bytes: rows in 16 or 8 bits, and a cache for tables in slower memory.",
    special={
        "pytorch": (
            "In FBGEMM and TorchRec: weights_precision=FP16 with stochastic rounding, an optimizer state per row "
            "(EXACT_ROWWISE_ADAGRAD), tables divided by rows or columns over more ranks, and duplicates removed "
            "before the lookup. Compare the model's quality with float32 rows."
        )
    },
)
ADDING = _Access(
    what="adding to rows by index (scatter)",
    saved_ratio=1.0,
    assumption="if a product or a sorted sum in its place costs next to nothing",
    advice="Avoid adding to the same rows from many threads at a time, which serialises them.",
    special={
        "pytorch": (
            "Look rows up with torch.nn.functional.embedding or index_select instead of indexing, whose backward pass "
            "sorts all indices; torch.compile may fuse it."
        ),
        "jax": (
            "Look the embedding up as a product with one-hot vectors (in MaxText use_iota_embed), whose gradient is a "
            "product, too; or pass indices_are_sorted and unique_indices where they are."
        ),
        "tensorflow": "Use tf.nn.embedding_lookup with one-hot products for small tables.",
    },
)
DENSE_GRADIENT = _Access(
    what="the gradient of embedding tables, added up row by row",
    saved_ratio=1.0,
    assumption="if few rows occur more than once, or a product in its place costs next to nothing",
    advice="Add fewer equal rows up, which wait for each other.",
    special={
        "pytorch": (
            "Set padding_idx of torch.nn.Embedding, so that padding adds nothing; multiply small tables by one-hot "
            "vectors; for large ones sparse=True with SparseAdam writes only the rows of the batch."
        )
    },
)
READING = _Access(
    what="reading rows by index (gather)",
    saved_ratio=0.5,
    assumption="if the rows have half as many bytes, or are read in the order in which they are stored",
    advice="Read rows once, sorted by index, and in a narrower type.",
    special={"pytorch": "index_select reads whole rows at once; indexing by several tensors element by element."},
    limits=REMARK,
)


@rule("embedding-bound", subject="work")
def embedding_bound(seen: LoopWork) -> Iterator[Finding]:
    """Yield `embedding-bound` when access by index is much of the computing time."""
    if not is_at_work(seen):
        return
    typed = seen.typed
    marked = _mark(typed)
    kernels = sum_typed(seen, typed.filter(marked))
    taken_ns = float(kernels["time_ns"].sum())
    if not is_large(seen, taken_ns, LEAST):
        return
    times = _divide(kernels)
    access = times[0][0]
    claim = WorkClaim(
        rule="embedding-bound",
        seen=seen,
        kernels=kernels,
        saved_ns=sum(each.saved_ratio * ns for each, ns in times),
        limits=access.limits,
        certainty=weigh_names(kernels, CERTAINTY),
    )
    others = [each for each, _ in times[1:]]
    yield claim.conclude(_write(claim, access, others), {"largest_kernel": shorten(kernels["name"][0])})


def _mark(typed: pl.DataFrame) -> Bools:
    """Mark the kernels that access rows by index, and the sorts of indices directly before or behind them."""
    own = (typed["category"] == "embedding_index").to_numpy()
    sorts: Bools = (typed["category"] == "sort_scan_topk").to_numpy()
    return own | (sorts & widen(own, NEAR))


def _divide(kernels: pl.DataFrame) -> list[tuple[_Access, float]]:
    """Return the kinds of access with their time, the one with most time first."""
    name = pl.col("name")
    number = (
        pl.when(name.str.contains(TABLES)).then(0)
        .when(name.str.contains(GRADIENT)).then(1)
        .when(name.str.contains(ADDS) & ~name.str.contains(GATHERS)).then(2)
        .otherwise(3)
    )  # fmt: skip
    sums = kernels.group_by(number.alias("access")).agg(pl.col("time_ns").sum()).sort("time_ns", "access")
    kinds = (OF_TABLES, DENSE_GRADIENT, ADDING, READING)
    return [(kinds[access], ns) for access, ns in sums.reverse().iter_rows()]


def _write(claim: WorkClaim, access: _Access, others: Sequence[_Access]) -> FindingTexts:
    """Return the texts of the finding on a kind of access, next to `others` with less time."""
    seen, first = claim.seen, claim.kernels.row(0, named=True)
    assumptions = [access.assumption, *(f"for {each.what}, {each.assumption}" for each in others)]
    count = float(claim.kernels["kernels"].sum())
    return FindingTexts(
        title=f"{write_share(claim.work_share)} is {access.what}",
        summary=(
            f"{counted(count, 'kernel')} {write_per(seen)} {verb(count, 'takes', 'take')} "
            f"{format_ms(claim.taken_ns)}; the largest, {shorten(first['name'])}, takes "
            f"{format_ms(first['time_ns'])}. At most {format_ms(claim.saved_ns)} "
            f"({format_percent(seen.share(claim.saved_ns))} of the time) could be saved, {'; '.join(assumptions)}."
        ),
        advice=advise(seen.trace, access.advice, **access.special),
    )
