"""Call stacks that a recorder stores frame by frame, made into STACKS: each distinct one once, innermost first."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import STACKS, empty_table

SEPARATOR, IN_NAMES = ";", ","
STACK_NBYTES = 2**20  # of one stack as text: a thousand frames of long C++ names
TEXT_NBYTES = 2**28  # of all stacks of a trace
ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


class _NumberedStacks(Struct, frozen=True, eq=False):
    """`of_chain` has the `stack_id` of every `chain`, null for one that is too long; `stacks` is STACKS."""

    of_chain: pl.DataFrame
    stacks: pl.DataFrame


def number_stacks(frames: pl.DataFrame, texts: pl.Series, first: int = 0) -> _NumberedStacks:
    """Return the stacks of `frames`, numbered from `first` by the first chain that has each.

    `frames` has `chain`, `depth` (0 is innermost; all Int64) and `frame`, which indexes `texts`, the names of the
    frames. Of successive frames of a file without known names one is kept. Left out are stacks of more than
    `STACK_NBYTES`, and those that exceed `TEXT_NBYTES` in all.
    """
    rows = _without_repetitions(frames.drop_nulls(["chain", "depth", "frame"]).sort("chain", "depth"), texts)
    if rows.is_empty():
        return _NumberedStacks(rows.select("chain", stack_id=pl.lit(None, pl.UInt32)), empty_table(STACKS))
    chains = _list_chains(rows, texts)
    distinct = chains.unique("key", keep="first", maintain_order=True).filter(pl.col("nbytes") <= STACK_NBYTES)
    kept = distinct.filter(pl.col("nbytes").cum_sum() <= TEXT_NBYTES).with_row_index("stack_id", first)
    of_chain = chains.join(kept.select("key", "stack_id"), on="key", how="left", maintain_order="left")
    return _NumberedStacks(of_chain.select("chain", "stack_id"), _write_stacks(rows, kept, texts))


def _list_chains(rows: pl.DataFrame, texts: pl.Series) -> pl.DataFrame:
    """Return each `chain` of the sorted `rows` with a `key` that equal chains share, and the `nbytes` of its text."""
    lengths = (texts.str.len_bytes() + 1).gather(rows["frame"]).cast(pl.Int64)
    key, nbytes = pl.col("frame").cast(pl.String).str.join(","), pl.col("nbytes").sum()
    return rows.with_columns(nbytes=lengths).group_by("chain", maintain_order=True).agg(key=key, nbytes=nbytes)


def _write_stacks(rows: pl.DataFrame, kept: pl.DataFrame, texts: pl.Series) -> pl.DataFrame:
    """Return STACKS of the chains in `kept`, whose frames are among the sorted `rows`."""
    rows = rows.join(kept.select("chain", "stack_id"), on="chain", how="inner", maintain_order="left")
    named = rows.select("stack_id", text=texts.gather(rows["frame"]))
    stacks = named.group_by("stack_id", maintain_order=True).agg(frames=pl.col("text").str.join(SEPARATOR))
    return stacks.sort("stack_id").cast(dict(STACKS))  # type: ignore[arg-type]


def _without_repetitions(rows: pl.DataFrame, texts: pl.Series) -> pl.DataFrame:
    """Return the sorted `rows` without frames that have no name, only a file, and follow one of the same file."""
    again = rows.select((pl.col("chain", "frame") == pl.col("chain", "frame").shift()).name.keep())
    nameless = texts.str.starts_with("[").gather(rows["frame"])
    return rows.filter(~(again["chain"] & again["frame"] & nameless).fill_null(False))


def name_frame(name: str | None, file: str | None = None, line: int = 0) -> str:
    """Return the frame of a function: `file(line): name` where `file` is Python's.

    A function without a name, or with an address for one, is named after the file of its code: `[libc.so.6]`.
    """
    known = (name or "").strip()
    if file and file.endswith(".py"):
        known = f"{file}({line}): {known or '<unknown>'}"
    elif not known or ADDRESS.fullmatch(known):
        known = f"[{PurePosixPath(file).name.strip('[]') or 'Unknown'}]" if file else "[Unknown]"
    return known.replace(SEPARATOR, IN_NAMES)
