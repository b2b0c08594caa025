"""What a block of memory holds, by when and for whom it was allocated and released; and what was in use at a moment."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.annotation.stage_names import STAGE

Int64s = npt.NDArray[np.int64]

I64, TEXT = pl.Int64(), pl.String()
CATEGORIES = (
    *("parameters", "gradients", "optimizer state", "activations", "inputs", "temporary"),
    *("before the recording", "unknown"),
)
CATEGORY = pl.Enum(CATEGORIES)
FEWEST_ITERATIONS = 2  # that a block outlives before it can be a parameter

COMPOSITION = TableSchema.of(
    "The blocks in use at one moment that have all this in common; null where the recording does not say.",
    {
        "category": (CATEGORY, "what they hold"),
        "stage": (STAGE, "the stage of their allocation"),
        "layer": (TEXT, "the layer for which they were allocated"),
        "operator": (TEXT, "the outermost operator; of a backward pass its forward one"),
        "function": (TEXT, "the innermost function of the user's or a library's code"),
        "file": (TEXT, "its file"),
        "line": (pl.UInt32(), "its line"),
        "blocks": (I64, "how many there are; null: not known, of memory from before the recording"),
        "nbytes": (I64, "their size, in all"),
    },
)
OWNER = ("category", "stage", "layer", "operator", "function", "file", "line")


def categorize(blocks: pl.DataFrame, begins: Int64s) -> pl.Series:
    """Return what each block holds, as `CATEGORY`; `blocks` has the columns of `BLOCKS` and `OWNERS`.

    `begins` are the begins of all iterations on the host, in ns, in order. A block that is released in the stage and
    iteration of its allocation is temporary. Of others:

    - allocated before the first iteration, alive in the last: a parameter, or the optimizer's state if allocated there;
    - allocated in the optimizer: its state; in the backward pass: a gradient; while data is loaded: an input;
    - allocated in the forward pass or the loss, and released later: an activation.

    A block of the forward pass that is never released is unknown, as is one whose stage is.
    """
    born, died = (_find_iterations(blocks[name], begins) for name in ("begin_ns", "end_ns"))
    rows = blocks.select("allocation", "stage", "released_in", "end_ns").with_columns(born=born, died=died)
    kept = pl.col("end_ns").is_null()
    lasting = (kept | (pl.col("died") >= len(begins) - 1)) & (pl.col("born") < 0) & (len(begins) >= FEWEST_ITERATIONS)
    same = ~kept & (pl.col("born") == pl.col("died")) & (pl.col("stage") == pl.col("released_in"))
    doubtful = ~kept & (pl.col("born") == pl.col("died")) & pl.col("released_in").is_null()
    forward = pl.col("stage").is_in(["forward", "loss"])
    return rows.select(
        pl.when(pl.col("allocation").is_null())
        .then(pl.lit("before the recording"))
        .when(same.fill_null(value=False))
        .then(pl.lit("temporary"))
        .when(doubtful)
        .then(pl.lit("unknown"))
        .when(pl.col("stage") == "optimizer")
        .then(pl.lit("optimizer state"))
        .when(pl.col("stage") == "backward")
        .then(pl.lit("gradients"))
        .when(lasting & (pl.col("stage") != "data loading").fill_null(value=True))
        .then(pl.lit("parameters"))
        .when(pl.col("stage") == "data loading")
        .then(pl.lit("inputs"))
        .when(forward & ~kept)
        .then(pl.lit("activations"))
        .otherwise(pl.lit("unknown"))
        .cast(CATEGORY)
        .alias("category")
    ).to_series()


def _find_iterations(times: pl.Series, begins: Int64s) -> pl.Series:
    """Return the place in `begins` of the iteration in which each time is, -1 before the first; null for null."""
    at = np.searchsorted(begins, times.fill_null(0).to_numpy(), side="right") - 1
    return pl.Series(at.astype(np.int64)).set(times.is_null(), None)


def compose(blocks: pl.DataFrame, total: int | None = None, rest_of: str = "before the recording") -> pl.DataFrame:
    """Return what blocks that are alive at one moment are, as a table `COMPOSITION`, the largest first.

    What `total`, the memory in use, is beyond all of them was allocated before the recording, where all allocations in
    it have their blocks; otherwise `rest_of` is another category.
    """
    groups = blocks.group_by(OWNER, maintain_order=True).agg(blocks=pl.len(), nbytes=pl.col("nbytes").sum())
    rest = 0 if total is None else total - int(blocks["nbytes"].sum())
    older = [{"category": rest_of, "nbytes": rest}] if rest > 0 else []
    tables = [groups.select(list(COMPOSITION)).cast(dict(COMPOSITION)), pl.DataFrame(older, schema=COMPOSITION)]  # type: ignore[arg-type]
    return pl.concat(tables).sort("nbytes", descending=True, maintain_order=True)


def add_up_by(composition: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """Return `nbytes` of a composition by some of its columns, the largest first."""
    sums = composition.group_by(keys, maintain_order=True).agg(pl.col("nbytes").sum())
    return sums.sort("nbytes", descending=True, maintain_order=True)
