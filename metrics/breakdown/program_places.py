"""Where in the program a set of spans is: the host range, operator and Python frame around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import polars as pl

from deepprof.collectors.trace import Trace
from deepprof.metrics.breakdown.host_states import on_threads
from deepprof.metrics.names import rows_named
from deepprof.metrics.spans import Spans, covered, intersect, union

MIN_NAMED_SHARE = 0.5  # least share of the spans' time that is in the named place
ALL = 0.9  # of the time between the spans: a name that is open all the time is no place
LIKELY = 12  # names examined closely
MOST = 0.8  # of some time: nearly all of it
# Frames and operators in which a thread waits for others: of a thread that does not feed the device they explain
# nothing. JAX's are the events and results of a computation that others make.
AT_REST = (
    r"\b(threading|queue|selectors|synchronize|connection|popen_fork)\.py\(\d+\): "
    r"|<(built-in )?(method|function) '?(acquire|wait|poll|select|recv|sleep)\b"
    r"|\b(block_until_ready|try_to_block)\b|BufferSequencingEvent::|\bAwait\b|BlockHostUntil|BlockUntil"
)
KINDS = {"operator": "op", "frame": "python"}  # word in a place: category of host events
Place = dict[str, int | str]


def find_place(trace: Trace, spans: Spans, threads: pl.DataFrame | None = None) -> Place | None:
    """Return the range, the operator and the Python frame that most of `spans` is in, None where there is none.

    Of nested ones the shortest wins. Those on `threads` (process, thread) are preferred to the rest, of which those
    that wait do not count.
    """
    if not spans.total_ns:
        return None
    place: Place = {}
    for word, rows in _kinds_of_places(trace):
        own = None if threads is None else _narrowest(on_threads(rows, threads), spans)
        name = _narrowest(rows if threads is None else _without_waits(rows, trace), spans) if own is None else own
        if name is not None:
            place[word] = trace.name(name)
    return place or None


def find_own_place(trace: Trace, spans: Spans, threads: pl.DataFrame) -> Place | None:
    """Return the range, the operator and the Python frame of `threads` that most of `spans` is in."""
    return _find_names(trace, spans, lambda rows: on_threads(rows, threads))


def measure_time_in(trace: Trace, spans: Spans, place: Place, word: str, threads: pl.DataFrame | None = None) -> int:
    """Return how much of `spans` is in the operator, frame or range (`word`) of a place, on `threads` if given."""
    rows = dict(_kinds_of_places(trace))[word]
    named = rows.filter(pl.col("name_id").is_in((trace.names == place[word]).arg_true().implode()))
    own = named if threads is None else on_threads(named, threads)
    return intersect(union(own["start_ns"].to_numpy(), own["end_ns"].to_numpy()), spans).total_ns


def find_place_beside(trace: Trace, spans: Spans, threads: pl.DataFrame, within: Spans | None = None) -> Place | None:
    """Return what threads of the same processes other than `threads` run in most of `spans`.

    Frames in which a thread waits do not count. Where `within` is given, it must run in nearly all of the spans, and
    hardly outside of that time.
    """

    def select(rows: pl.DataFrame) -> pl.DataFrame:
        others = rows.join(threads, on=["process", "thread"], how="anti", nulls_equal=True)
        beside = others.join(threads.select("process").unique(), on="process", how="semi", nulls_equal=True)
        working = _without_waits(beside, trace)
        return working if within is None else _only_within(working, spans, within)

    return _find_names(trace, spans, select)


def _find_names(trace: Trace, spans: Spans, select: Callable[[pl.DataFrame], pl.DataFrame]) -> Place | None:
    """Return for every kind of place the name of the narrowest of the selected rows; None where there is none."""
    found = {word: _narrowest(select(rows), spans) for word, rows in _kinds_of_places(trace)}
    return {word: trace.name(name) for word, name in found.items() if name is not None} or None


def _only_within(rows: pl.DataFrame, spans: Spans, within: Spans) -> pl.DataFrame:
    """Return the rows whose names cover nearly all of the spans, and hardly anything outside of `within`."""
    start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
    times = rows.select("name_id", length=pl.col("end_ns") - pl.col("start_ns")).with_columns(
        inside=pl.Series(covered(spans, start, end)), then=pl.Series(covered(within, start, end))
    )
    totals = times.group_by("name_id").agg(pl.all().sum())
    most = totals.filter(pl.col("inside") >= MOST * spans.total_ns, pl.col("then") >= MOST * pl.col("length"))
    return rows.filter(pl.col("name_id").is_in(most["name_id"].implode()))


def _without_waits(rows: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Return the rows whose names are not those of frames in which a thread waits."""
    ids = rows["name_id"].unique()
    waits = ids.filter(trace.names.gather(ids).str.contains(AT_REST).fill_null(value=False))
    return rows.filter(~pl.col("name_id").is_in(waits.implode()))


def _kinds_of_places(trace: Trace) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield each kind of place with its rows: name_id, process, thread, start_ns and end_ns."""
    columns = ("name_id", "process", "thread", "start_ns", "end_ns")
    closed = pl.col("end_ns") > pl.col("start_ns")
    ranges = trace.annotations.filter((pl.col("side") == "host") & closed).select(columns)
    yield "range", _numberless(ranges, trace.names)
    for word, category in KINDS.items():
        yield word, trace.host_events.filter((pl.col("category") == category) & closed).select(columns)


def _numberless(ranges: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Return the ranges; those that differ only in numbers, as step markers do, get the name of one of them."""
    ids = ranges["name_id"].unique()
    family = names.gather(ids).str.replace_all(r"\d+", "#")
    one = pl.DataFrame({"name_id": ids, "family": family}).select("name_id", one=pl.col("name_id").min().over("family"))
    return ranges.join(one, on="name_id", how="left", maintain_order="left").drop("name_id").rename({"one": "name_id"})


def _narrowest(rows: pl.DataFrame, spans: Spans) -> int | None:
    """Return the name id whose rows cover most of `spans` with the least time of their own."""
    inside = covered(spans, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    touching = rows.select("name_id", "start_ns", "end_ns", inside=pl.Series(inside)).filter(pl.col("inside") > 0)
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    names = touching.group_by("name_id").agg(pl.col("inside").sum(), length=length)  # too much if they are nested
    likely = names.filter(pl.col("inside") >= MIN_NAMED_SHARE * spans.total_ns).sort("length", "name_id")
    known: list[tuple[int, int]] = []
    for name in likely["name_id"].head(LIKELY).to_list():
        own = touching.filter(pl.col("name_id") == name)
        around = union(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
        if _tells(around, spans):
            known.append((around.total_ns, name))
    return min(known)[1] if known else None


def _tells(around: Spans, spans: Spans) -> bool:
    """Return whether most of `spans` is in `around`, and not nearly all of the time between them."""
    first, last = spans.starts[:1], spans.ends[-1:]
    filled = int(covered(around, spans.starts, spans.ends).sum())
    between = int((last - first)[0]) - spans.total_ns
    if not between:  # a single span: a name that lasts much longer may be open all the time
        return filled >= MIN_NAMED_SHARE * spans.total_ns and around.total_ns <= 2 * spans.total_ns
    return filled >= MIN_NAMED_SHARE * spans.total_ns and int(covered(around, first, last)[0]) - filled < ALL * between


def find_calls(trace: Trace, pattern: str, spans: Spans, threads: pl.DataFrame | None = None) -> Place | None:
    """Return, as a place, the runtime call matching `pattern` that uses most time within `spans`.

    Only calls on `threads` (process, thread) count where they are given.
    """
    calls = trace.host_events.filter((pl.col("category") == "runtime") & pl.col("end_ns").is_not_null())
    calls = calls if threads is None else on_threads(calls, threads)
    rows = rows_named(calls, trace.names, pattern)
    inside = covered(spans, rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    total = rows.select("name_id", inside=pl.Series(inside)).group_by("name_id").agg(pl.col("inside").sum())
    best = total.filter(pl.col("inside") > 0).sort("inside", "name_id", descending=[True, False])
    return {"call": trace.name(best["name_id"][0])} if best.height else None
