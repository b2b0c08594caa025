"""The ranges that `record_function` wrote into a snapshot: a start and an end, paired by name."""

from __future__ import annotations

import polars as pl

from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.times import TIME_LIMIT_NS
from deepprof.collectors.trace import ANNOTATIONS

START, END = "START", "END"
PLACE = ("device", "name", "depth")
MICROSECOND = 1_000


def pair_annotations(marks: pl.DataFrame, tally: Tally) -> tuple[pl.DataFrame, pl.Series]:
    """Return ANNOTATIONS and their names. A start and the end that closes it are two records and one row.

    The end is counted as `joined`, one without a start as `unopened`; a mark that is neither is a moment.
    """
    limit = TIME_LIMIT_NS // MICROSECOND
    sound = pl.col("name").is_not_null() & pl.col("time_us").is_between(-limit, limit)
    rows = tally.keep(marks, sound, "invalid")
    names = rows["name"].unique(maintain_order=True).alias("name")
    step = pl.col("stage").replace_strict({START: 1, END: -1}, default=0, return_dtype=pl.Int64).fill_null(0)
    rows = rows.with_columns(step=step, time_ns=pl.col("time_us") * MICROSECOND)
    level = pl.col("step").cum_sum().over("device", "name")
    rows = rows.with_columns(depth=level + (pl.col("step") < 0))
    following = pl.col("step", "time_ns").shift(-1).over(PLACE).name.prefix("next_")
    before = pl.col("step").shift(1).over(PLACE).alias("before")
    moments, stages = rows.filter(pl.col("step") == 0), rows.filter(pl.col("step") != 0).with_columns(following, before)
    ends = stages.filter(pl.col("step") < 0)
    unopened = ends.filter((pl.col("before") != 1).fill_null(True)).height
    tally.dropped.update({"unopened": unopened} if unopened else {})
    tally.dropped.update({"joined": ends.height - unopened} if ends.height > unopened else {})
    closed = pl.when(pl.col("next_step") < 0).then("next_time_ns")
    opened = stages.filter(pl.col("step") > 0).with_columns(end_ns=closed)
    found = pl.concat([opened, moments.with_columns(end_ns=pl.col("time_ns"))], how="diagonal")
    return _shape(found, names), names


def _shape(rows: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    ids = pl.DataFrame({"name": names}).with_row_index("name_id")
    rows = rows.join(ids, on="name", how="left", maintain_order="left")
    given = {"start_ns": pl.col("time_ns"), "side": pl.lit("host"), "framework": pl.lit(False)}
    known = rows.select("end_ns", "name_id", **given)
    absent = [pl.lit(None).alias(column) for column in ANNOTATIONS if column not in known.columns]
    shaped = known.with_columns(absent).select(list(ANNOTATIONS)).cast(dict(ANNOTATIONS))  # type: ignore[arg-type]
    return shaped.sort("start_ns", maintain_order=True)
