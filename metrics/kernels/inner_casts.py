"""Casts inside the operators that take the place of kernels on a processor.

Autocast casts the operands of a product within `aten::linear` or `aten::conv2d`, which is one operator on the outside.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from deepprof.metrics.kernels.loop_work import LoopWork
from deepprof.metrics.names import rows_named

COPY, CAST = r"^aten::copy_$", r"^aten::to$"
TYPES = r'^\["([^"]+)", ?"([^"]+)"'  # of destination and source, of which recorders write the name


def measure_inner_casts(seen: LoopWork) -> pl.DataFrame:
    """Return the operators of a processor in which tensors change their type, with the columns of `sum_typed`.

    `kernels` is the number of casts inside of them and `time_ns` their time, both per iteration. There are none where
    types of operands or the host's operators were not recorded.
    """
    casts = _list_casts(seen)
    around = seen.kernels.sort("start_ns", "event")
    row = np.searchsorted(around["start_ns"].to_numpy(), casts["start_ns"].to_numpy(), side="right") - 1
    end = np.append(around["start_ns"].to_numpy() + around["ns"].to_numpy(), 0)
    inside = casts["start_ns"].to_numpy() < end[row]
    found = casts.filter(pl.Series(inside)).with_columns(kind=around["kind"].gather(row[inside]))
    many = max(1, seen.iterations)
    sums = found.group_by("kind").agg(
        kernels=pl.len() / many, time_ns=pl.col("ns").sum() / many, mean_ns=pl.col("ns").mean()
    )
    columns = ("kind", "name", "operator", "category", "library", "algorithm", "sure")
    rows = seen.work.kernels.select(columns).join(sums, on="kind", how="inner", maintain_order="left")
    return rows.sort("time_ns", "kind", descending=[True, False])


def _list_casts(seen: LoopWork) -> pl.DataFrame:
    """Return `start_ns` and `ns` of all copies of the host between tensors of two types, with what allocates for them.

    `aten::to` allocates the tensor that it copies to.
    """
    trace = seen.trace
    types = trace.operands.select(
        "event", to=pl.col("dtypes").str.extract(TYPES, 1), of=pl.col("dtypes").str.extract(TYPES, 2)
    )
    events = types.filter(pl.col("to") != pl.col("of"))["event"]
    host = trace.host_events.with_row_index("event").drop_nulls("end_ns")
    copies = rows_named(host, trace.names, COPY).filter(pl.col("event").is_in(events.implode())).sort("start_ns")
    around = rows_named(host, trace.names, CAST).select(to_ns="start_ns", to_end_ns="end_ns").sort("to_ns")
    joined = copies.join_asof(around, left_on="start_ns", right_on="to_ns", strategy="backward")
    is_inside = (pl.col("to_end_ns") >= pl.col("end_ns")).fill_null(value=False)
    begin, end = (
        pl.when(is_inside).then(inner).otherwise(outer)
        for inner, outer in (("to_ns", "start_ns"), ("to_end_ns", "end_ns"))
    )
    return joined.select(start_ns=begin, ns=end - begin).sort("start_ns")
