"""What the host and the device have in common: the boxes of one stage or layer on both sides (Hotline's `~`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.annotation.boxes import BOX_KINDS
from deepprof.metrics.contexts.frames import number_distinct

Int64s = npt.NDArray[np.int64]

PAIRED = [BOX_KINDS.index(kind) for kind in ("iteration", "stage", "layer")]
SECTION = BOX_KINDS.index("section")


def find_twins(boxes: pl.DataFrame) -> Int64s:
    """Return for every box the one of the same stage or layer on the other side, -1 for none.

    `boxes` have `parent` (a row), `depth`, `side`, `kind` (a number of `BOX_KINDS`) and `title`; each iteration has its
    host and its device after each other. Boxes are paired by the titles of what is around them, sections left out, and
    of several by their order.
    """
    path, wanted = _number_paths(boxes), boxes["kind"].is_in(PAIRED)
    device = boxes["side"] == "device"
    fresh = (boxes["parent"].is_null() & (boxes["side"] == "host")) | (
        boxes["parent"].is_null() & device & (boxes["side"].shift(1) != "host").fill_null(value=True)
    )
    keys = pl.DataFrame({"pair": fresh.cum_sum(), "path": path, "device": device}).with_row_index("box").filter(wanted)
    keys = keys.with_columns(turn=pl.col("box").cum_count().over("pair", "path", "device"))
    both = keys.filter(~pl.col("device")).join(keys.filter("device"), on=["pair", "path", "turn"], suffix="_device")
    twin = np.full(boxes.height, -1, np.int64)
    host, other = both["box"].to_numpy(), both["box_device"].to_numpy()
    twin[host], twin[other] = other, host
    return twin


def _number_paths(boxes: pl.DataFrame) -> Int64s:
    """Return a number for the titles of a box and of all around it; sections have the one of what is around them."""
    parent = boxes["parent"].cast(pl.Int64).fill_null(0).to_numpy()
    depth, section = boxes["depth"].to_numpy().astype(np.int64), (boxes["kind"] == SECTION).to_numpy()
    title = number_distinct(boxes.select(pl.col("title").fill_null("")))[0].to_numpy().astype(np.int64)
    path, known = np.zeros(boxes.height, np.int64), 1
    for level in range(int(depth.max(initial=-1)) + 1):
        here = np.flatnonzero(depth == level)
        around = path[parent[here]] if level else np.zeros(len(here), np.int64)
        keys, number = np.unique(around * (int(title.max(initial=0)) + 1) + title[here], return_inverse=True)
        path[here] = np.where(section[here], around, known + number)
        known += len(keys)
    return path
