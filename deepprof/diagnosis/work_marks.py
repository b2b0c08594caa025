"""Which kernels a cause claims, so that no two findings count the time of the same ones.

The functions mark rows of `LoopWork.typed`, none where a cause is too small to be reported.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.diagnosis.rules.unfused_attention import LEAST as LEAST_ATTENTION
from deepprof.diagnosis.work_evidence import is_large, share_of_kernels
from deepprof.metrics.kernels.kinds import PRODUCTS
from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.kernels.operator_runs import number_runs, widen
from deepprof.metrics.kernels.typed_kernels import OPERATOR_LIBRARIES
from deepprof.metrics.kernels.written_attention import find_written_attention
from deepprof.metrics.operators import is_stand_in

Bools = npt.NDArray[np.bool_]
Mark = Callable[[LoopWork, pl.DataFrame], Bools]

# Shares of the computing time from which on a cause is reported.
LEAST_OPTIMIZER = 0.15  # three fifths of it could be saved
LEAST_BATCH_NORM = 0.08  # half of it could be saved, in inference all
LEAST_OTHER_NORM = 0.2  # layer and group norm are one kernel each already: only their neighbours could join them
LEAST_CASTS = 0.1
LEAST_CONVERSIONS = 0.08  # convolutions in the layout that their kernels want need none
LEAST_COPIES = 0.15  # some are in every program
LEAST_DROPOUT = 0.1  # a fused one draws its numbers while it reads the data, and writes no mask
LEAST_DRAWN = 0.2  # of that: where random numbers use less, the operators behind them do something else
MASKING = 4  # operators behind random numbers that make a mask of them and apply it: compare, cast, multiply, divide
LEAST_LOSS = 0.15  # three fifths of it could be saved

FOREACH, LOOPED = "foreach", "loop over parameters"  # algorithms of optimizers that are not fused
BEFORE, BEHIND = 5, 1  # operators around addcmul and addcdiv in an optimizer's step for one parameter
FEWEST_PARAMETERS = 8  # fewer may be a model's own addcmul
FEWEST_OTHERS = 2  # operations in one run with a cast: it belongs to a chain
FUSING = r"^(?:Triton|XLA)"  # libraries whose kernels are fused already
BATCH_NORM = r"(?i)batch_?norm|\bbn_|BnFwd|BnBwd|batchnorm"
BY_CHANNELS_LAST = r"(?i)nhwc|channels_last"
CONVERSION = "conversion of layout"  # the algorithm of transposes that cuDNN and MIOpen put around convolutions
TRANSPOSE = r"(?i)transpose"  # around a convolution it is a conversion
AROUND = 3  # kernels between a transpose and its convolution
LOG_SOFTMAX = r"(?i)log_?softmax"
GRADIENT = r"(?i)backward"


def mark_optimizer(seen: LoopWork, typed: pl.DataFrame) -> Bools:
    """Mark the kernels of an optimizer that is not fused: over lists of tensors, or parameter by parameter."""
    algorithm = typed["algorithm"].fill_null("")
    lists = ((algorithm == FOREACH) & (typed["category"] == "optimizer")).to_numpy()
    return _if_large(seen, typed, lists | _mark_looped(typed, (algorithm == LOOPED).to_numpy()), LEAST_OPTIMIZER)


def _mark_looped(typed: pl.DataFrame, own: Bools) -> Bools:
    """Mark what belongs to steps parameter by parameter: the kernels of optimizers and the operators around them."""
    if not own.any():
        return own
    counts = (typed["category"] == "memory_set_copy").to_numpy()  # numbers of steps that are read on a processor
    runs = number_runs(typed, typed["of_operator"].to_numpy() | own | counts)
    steps = own & (np.bincount(runs[own])[runs * own] >= FEWEST_PARAMETERS)
    found = steps.copy()
    for offset in range(-BEHIND, BEFORE + 1):
        found |= np.roll(steps, -offset) & (np.roll(runs, -offset) == runs) & (runs >= 0)
    return found


def mark_batch_norm(seen: LoopWork, typed: pl.DataFrame) -> Bools:
    """Mark batch normalization that is neither compiled nor in channels-last layout."""
    compiled = typed["library"].fill_null("").str.contains(FUSING)
    of_batch = ((typed["category"] == "normalization") & ~compiled).to_numpy() & _have_names(typed, BATCH_NORM)
    return _if_large(seen, typed, of_batch & ~_have_names(typed, BY_CHANNELS_LAST), LEAST_BATCH_NORM)


def mark_other_norm(seen: LoopWork, typed: pl.DataFrame) -> Bools:
    """Mark layer, group and other normalization that a framework's operator does in separate kernels."""
    other = (typed["category"] == "normalization").to_numpy() & ~_have_names(typed, BATCH_NORM)
    return _if_large(seen, typed, other & _have_names(typed, OPERATOR_LIBRARIES, "library"), LEAST_OTHER_NORM)


def mark_neighbours(typed: pl.DataFrame, norms: Bools) -> Bools:
    """Mark the operators on every element directly before and behind these kernels, such as ReLU and additions."""
    pointwise = (typed["of_operator"] & (typed["category"] == "elementwise")).to_numpy()
    runs = number_runs(typed, pointwise | norms)
    return pointwise & np.isin(runs, runs[norms])


def mark_casts(seen: LoopWork, typed: pl.DataFrame) -> Bools:
    """Mark casts where products are computed: those outside of chains, or all if they are longer than the products.

    A cast within a chain of operators goes away with the chain. On a CPU the operator alone does not show whether it
    casts, copies or does nothing.
    """
    casts = (typed["category"] == "cast").to_numpy()
    ns = typed["part_ns"].to_numpy()
    products_ns = float(ns[typed["category"].is_in(PRODUCTS).to_numpy()].sum())
    if is_stand_in(seen.trace) or not products_ns:
        return np.zeros(len(casts), np.bool_)
    more = float(ns[casts].sum()) > products_ns
    return _if_large(seen, typed, casts if more else casts & ~_mark_in_chains(typed, casts), LEAST_CASTS)


def _mark_in_chains(typed: pl.DataFrame, casts: Bools) -> Bools:
    """Mark the casts that several other operations are in one run with."""
    runs = number_runs(typed, typed["of_operator"].to_numpy())
    others = typed.select(run=pl.Series(runs), operation="operation").filter((pl.Series(runs) >= 0) & ~pl.Series(casts))
    counts = others.group_by("run").agg(pl.col("operation").n_unique())
    chained = counts.filter(pl.col("operation") >= FEWEST_OTHERS)["run"].to_numpy()
    return casts & np.isin(runs, chained)


def mark_conversions(seen: LoopWork, typed: pl.DataFrame) -> Bools:
    """Mark conversions of layout for convolutions."""
    return _if_large(seen, typed, _list_conversions(typed), LEAST_CONVERSIONS)


def _list_conversions(typed: pl.DataFrame) -> Bools:
    """Mark conversions of layout for convolutions, even the shortest."""
    layout = typed["category"] == "layout"
    named = (layout & (typed["algorithm"] == CONVERSION).fill_null(value=False)).to_numpy()
    turned = layout.to_numpy() & _have_names(typed, TRANSPOSE)
    near = widen((typed["category"] == "convolution").to_numpy(), AROUND)
    return named | (turned & near)


def mark_copies(seen: LoopWork, typed: pl.DataFrame) -> Bools:
    """Mark other kernels that only order elements anew, but for those in chains, which a compiler would fuse."""
    moves = typed["of_operator"].to_numpy() | _have_names(typed, TRANSPOSE)  # XLA's slices are part of loops
    layout = (typed["category"] == "layout").to_numpy() & moves
    runs = number_runs(typed, typed["of_operator"].to_numpy())
    with_others = np.isin(runs, runs[typed["of_operator"].to_numpy() & ~layout])
    return _if_large(seen, typed, layout & ~with_others & ~_list_conversions(typed), LEAST_COPIES)


def mark_dropout(seen: LoopWork, typed: pl.DataFrame) -> Bools:
    """Mark random numbers that are drawn by their own kernels, with the operators that make a mask of them."""
    drawn = ((typed["category"] == "random") & (typed["algorithm"].fill_null("") != "dropout")).to_numpy()
    operators = typed["of_operator"].to_numpy()
    runs = number_runs(typed, operators | drawn)
    marked, behind = drawn.copy(), drawn
    for _ in range(MASKING):
        behind = np.append(False, behind[:-1] & (runs[:-1] == runs[1:])) & operators
        marked |= behind
    ns = typed["part_ns"].to_numpy()
    is_dropout = ns[drawn].sum() >= LEAST_DRAWN * ns[marked].sum()
    return _if_large(seen, typed, marked & is_dropout, LEAST_DROPOUT)


def mark_loss(seen: LoopWork, typed: pl.DataFrame) -> Bools:
    """Mark log-softmax and losses in their own kernels, and all of a loss that is written out."""
    log_softmax = (typed["category"] == "softmax").to_numpy() & _have_names(typed, LOG_SOFTMAX)
    of_loss = (typed["category"] == "loss").to_numpy() | log_softmax
    alone = of_loss & ~_have_names(typed, FUSING, "library")
    return _if_large(seen, typed, alone | mark_written_loss(typed), LEAST_LOSS)


def mark_written_loss(typed: pl.DataFrame) -> Bools:
    """Mark what is between two products where a softmax is followed by its own gradient: the end of the forward pass.

    Between a softmax of attention and its gradient there are products. Log-softmax shows a loss by itself.
    """
    place = typed.select(pl.struct("window", "stream").rle_id()).to_series()
    ends = typed["category"].is_in(PRODUCTS) | (place != place.shift()).fill_null(value=True)
    name, softmax = pl.col("name").fill_null(""), pl.col("category") == "softmax"
    plain, backward = softmax & ~name.str.contains(LOG_SOFTMAX), name.str.contains(GRADIENT)
    rows = typed.with_columns(section=ends.cum_sum())
    found = rows.select(((plain & ~backward).any() & (plain & backward).any()).over("section")).to_series()
    marked: Bools = (found & ~typed["category"].is_in(PRODUCTS)).fill_null(value=False).to_numpy()
    return marked


def mark_attention(seen: LoopWork, typed: pl.DataFrame) -> Bools:
    """Mark softmax, masks and dropout between the two products of attention that is written out."""
    events = find_written_attention(seen.kernels, seen.kinds.table)["event"]
    marked = typed["event"].is_in(events.implode()).to_numpy()
    ns = float(typed["part_ns"].to_numpy()[marked].sum()) / max(1, seen.iterations)
    return marked if share_of_kernels(seen, ns) >= LEAST_ATTENTION else np.zeros(len(marked), np.bool_)


MARKS: tuple[Mark, ...] = (mark_optimizer, mark_casts, mark_conversions, mark_dropout, mark_loss)


def mark_claimed(seen: LoopWork, typed: pl.DataFrame) -> Bools:
    """Mark what more special causes than a chain of operators claim, but for attention that is written out."""
    found = np.zeros(typed.height, np.bool_)
    for mark in MARKS:
        found |= mark(seen, typed)
    return found


def _have_names(typed: pl.DataFrame, pattern: str, column: str = "name") -> Bools:
    """Return which rows have a name like this; names are searched once for all kernels of a kind."""
    _, first, rows = np.unique(typed["kind"].to_numpy(), return_index=True, return_inverse=True)
    found: Bools = typed[column].gather(first).fill_null("").str.contains(pattern).to_numpy()
    return found[rows]


def _if_large(seen: LoopWork, typed: pl.DataFrame, marked: Bools, least: float) -> Bools:
    """Return the marks if their kernels are at least this share of the computing time, else none."""
    ns = float(typed["part_ns"].to_numpy()[marked].sum()) / max(1, seen.iterations)
    return marked if marked.any() and is_large(seen, ns, least) else np.zeros(len(marked), np.bool_)
