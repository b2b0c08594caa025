"""The call stacks of runtime calls and operating system calls: the tables `…_CALLCHAINS`, a row for each frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from deepprof.collectors.importers.call_stacks import name_frame, number_stacks

if TYPE_CHECKING:
    from deepprof.collectors.importers.nsys.nsys_database import NsysDatabase
    from deepprof.collectors.importers.nsys.nsys_tables import NsysTables

CHAINS = {"CUPTI_ACTIVITY_KIND_RUNTIME": "CUDA_CALLCHAINS", "OSRT_API": "OSRT_CALLCHAINS"}
FRAME = ("symbol", "module", "unresolved")
NAMES = ("symbol", "module")


def add_stacks(source: NsysTables, table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the `rows` of `table` with `stack_id` for their `callchainId`; the stacks are added to `source.stacks`.

    Calls whose stack is too long to be kept are flagged `long-stack`.
    """
    frames, texts = _read_frames(source, CHAINS[table])
    found = number_stacks(frames, texts, sum(stacks.height for stacks in source.stacks))
    source.stacks.append(found.stacks)
    of_chain = found.of_chain.rename({"chain": "callchainId"}).with_columns(chained=pl.lit(True))
    rows = rows.join(of_chain, on="callchainId", how="left", maintain_order="left")
    if long := int(rows.select((pl.col("chained") & pl.col("stack_id").is_null()).sum()).item() or 0):
        source.tally.flagged["long-stack"] += long
    return rows.drop("chained")


def _read_frames(source: NsysTables, table: str) -> tuple[pl.DataFrame, pl.Series]:
    """Return the frames in `table` as `number_stacks` takes them, and their names."""
    rows = source.database.integers(table, dict.fromkeys(("id", "stackDepth", *FRAME)))
    rows = rows.with_columns(_read_names(source.database, source.strings, table, rows, name) for name in NAMES)
    distinct = rows.select(FRAME).unique(maintain_order=True)
    named = [name_frame(None if unresolved else symbol, module) for symbol, module, unresolved in distinct.iter_rows()]
    texts = pl.Series("frame", named, dtype=pl.String)
    numbers = pl.DataFrame({"text": texts.unique(maintain_order=True)}).with_row_index("frame")
    distinct = distinct.with_columns(text=texts).join(numbers, on="text", how="left", maintain_order="left")
    rows = rows.join(distinct, on=FRAME, how="left", nulls_equal=True, maintain_order="left")
    return rows.select("frame", chain="id", depth="stackDepth"), numbers["text"]


def _read_names(
    database: NsysDatabase, strings: dict[int, str], table: str, rows: pl.DataFrame, column: str
) -> pl.Series:
    """Return the texts of the ids in a `column` of `rows`, or the texts that a directory's table has in their place."""
    ids = rows[column]
    known = {key: strings[key] for key in ids.drop_nulls().unique() if key in strings}
    texts = ids.replace_strict(known, default=None, return_dtype=pl.String)
    if not ids.null_count():
        return texts.alias(column)
    return texts.zip_with(ids.is_not_null(), database.texts(table, column).cast(pl.String)).alias(column)
