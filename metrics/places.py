"""Where in the program it happens: the host range, operator and Python frame around a set of spans."""

from __future__ import annotations

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.spans import Spans, covered, union

__all__ = ["find_calls", "find_place"]

MOST = 0.5  # of the spans' time lies in what is named
ALL = 0.9  # of the time from the first span to the last: what is open all the time is no place
LIKELY = 12  # names looked at closely
KINDS = {"operator": "op", "frame": "python"}  # word in a place: category of host events


def find_place(trace: Trace, spans: Spans) -> dict[str, int | str] | None:
    """Return the range, the operator and the Python frame that most of `spans` lies in, None where there is none.

    Of those around each other the shortest one wins.
    """
    if not spans.total_ns:
        return None
    ranges = trace.annotations.filter((pl.col("side") == "host") & (pl.col("end_ns") > pl.col("start_ns")))
    place: dict[str, int | str] = {}
    for word, rows in (
        ("range", ranges),
        *((word, trace.host_events.filter(pl.col("category") == kind)) for word, kind in KINDS.items()),
    ):
        name = narrowest(rows, spans)
        if name is not None:
            place[word] = trace.name(name)
    return place or None


def narrowest(rows: pl.DataFrame, spans: Spans) -> int | None:
    """Return the name id whose rows cover most of `spans` with the least time of their own."""
    inside = covered(spans, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    touching = rows.select("name_id", "start_ns", "end_ns", inside=pl.Series(inside)).filter(pl.col("inside") > 0)
    at_most = touching.group_by("name_id", maintain_order=True).agg(pl.col("inside").sum())
    likely = at_most.filter(pl.col("inside") >= MOST * spans.total_ns).sort(
        "inside", descending=True, maintain_order=True
    )
    extent = int(spans.ends[-1] - spans.starts[0])
    known: list[tuple[int, int]] = []
    for name in likely["name_id"].head(LIKELY).to_list():
        own = touching.filter(pl.col("name_id") == name)
        around = union(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
        filled = int(covered(around, spans.starts, spans.ends).sum())
        if around.total_ns < ALL * extent and filled >= MOST * spans.total_ns:
            known.append((around.total_ns, name))
    return min(known)[1] if known else None


def find_calls(trace: Trace, pattern: str, spans: Spans) -> dict[str, int | str] | None:
    """Return the runtime call among those that match `pattern` which takes most time within `spans`, as a place."""
    calls = trace.host_events.filter(pl.col("category") == "runtime")
    ids = calls["name_id"].unique()
    wanted = ids.filter(trace.names.gather(ids).str.contains(pattern).fill_null(value=False))
    rows = calls.filter(pl.col("name_id").is_in(wanted.implode()))
    inside = covered(spans, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    total = rows.select("name_id", inside=pl.Series(inside)).group_by("name_id").agg(pl.col("inside").sum())
    best = total.filter(pl.col("inside") > 0).sort("inside", "name_id", descending=[True, False])
    return {"call": trace.name(best["name_id"][0])} if best.height else None
