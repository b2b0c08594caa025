"""Two runs compared by their code: which calling contexts carry the difference, and when nothing is stated."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import deepprof
from benchmarks.cases.contexts import EMBED, HOST, OTHER, REST, Call, write
from deepprof.analysis import Analysis
from deepprof.collectors.trace import Accounting
from deepprof.comparison import code_paths, compare, contexts
from deepprof.comparison.code_paths import CodePaths, match_paths
from deepprof.comparison.path_times import PathTimes
from deepprof.metrics.contexts.frames import KIND
from deepprof.metrics.contexts.paths import add_up
from deepprof.render.comparison_json import encode
from deepprof.render.comparison_text import print_comparison
from deepprof.results.comparison_result import CodeLine, ContextChange

GATHER = Call(EMBED, [("aten::index", 20.0)], backward={"aten::index": 45.0})
PLAIN = (GATHER, *REST)
LINE = CodeLine("embed", "model.py", 10)
STEP = ("ProfilerStep#*", "train_step")


def run(*calls: Call, iterations: int = 24) -> Analysis:
    return deepprof.analyze(write(calls, iterations=iterations))


@cache
def plain() -> Analysis:
    return run(*PLAIN)


def changes(a: Analysis, b: Analysis) -> tuple[ContextChange, ...]:
    worst = compare(a, b).worst
    assert worst is not None
    return worst.contexts


def told(rows: Sequence[ContextChange]) -> list[tuple[str, str, str, int, int]]:
    return [(row.status, row.measure, row.path[-1], row.a_ns, row.b_ns) for row in rows]


def shown(a: Analysis, b: Analysis, width: int = 80) -> str:
    file = io.StringIO()
    print_comparison(compare(a, b), Console(file=file, width=width))
    return file.getvalue()


def test_equal_runs_say_nothing() -> None:
    assert changes(plain(), run(*PLAIN)) == ()
    assert "by code" not in shown(plain(), run(*PLAIN))


def test_the_innermost_context_with_a_slower_kernel_is_named() -> None:
    slower = replace(GATHER, backward={"aten::index": 300.0})
    (row,) = changes(plain(), run(slower, *REST))
    node = "autograd::engine::evaluate_function: IndexBackward0"
    assert row.path == (*STEP, "embed", "aten::index", node)
    assert (row.status, row.measure, row.kind) == ("changed", "device", "operator")
    assert (row.a_ns, row.b_ns, row.difference_ns) == (45_000, 300_000, 255_000)
    assert (row.a, row.b) == (LINE, LINE)


def test_a_context_that_shrinks_is_named_beside_one_that_grows() -> None:
    more, less = replace(GATHER, kernels=[("aten::index", 220.0)]), Call("data.py(9): load", host_us=20)
    a, b = (
        run(*PLAIN, replace(less, kernels=[("aten::mul", 150.0)])),
        run(more, *REST, replace(less, kernels=[("aten::mul", 20.0)])),
    )
    assert told(changes(a, b)) == [
        ("changed", "device", "aten::index", 65_000, 265_000),
        ("changed", "device", "aten::mul", 150_000, 20_000),
    ]


def test_rows_do_not_count_twice() -> None:
    """A function that changes by more than a context within it has a row for what that one does not carry."""
    small = [(f"aten::part{number}", 10.0) for number in range(10)]
    grown = [(name, 15.0) for name, _ in small]
    a, b = (
        run(*REST, Call(EMBED, [("aten::index", 20.0), *small])),
        run(*REST, Call(EMBED, [("aten::index", 220.0), *grown])),
    )
    assert told(changes(a, b)) == [
        ("changed", "device", "aten::index", 20_000, 220_000),
        ("changed", "device", "embed", 100_000, 150_000),
    ]


def test_a_function_with_another_name_is_gone_and_new() -> None:
    renamed = replace(GATHER, function="model.py(10): lookup")
    gone, new = sorted(changes(plain(), run(renamed, *REST)), key=lambda row: row.status)[::1]
    assert told([gone, new]) == [("gone", "device", "embed", 65_000, 0), ("new", "device", "lookup", 0, 65_000)]
    assert (gone.a, gone.b, new.a, new.b) == (LINE, None, None, CodeLine("lookup", "model.py", 10))


def test_the_file_is_part_of_a_function_and_the_line_is_not() -> None:
    moved = replace(GATHER, function="model.py(14): embed", kernels=[("aten::index", 120.0)])
    (row,) = changes(plain(), run(moved, *REST))
    assert (row.status, row.a, row.b) == ("changed", LINE, CodeLine("embed", "model.py", 14))
    elsewhere = replace(GATHER, function="layers.py(10): embed")
    assert {row.status for row in changes(plain(), run(elsewhere, *REST))} == {"gone", "new"}


def test_host_time_is_that_of_the_function_without_waits() -> None:
    (row,) = changes(run(OTHER, *REST), run(replace(OTHER, host_us=500.0), *REST))
    assert (row.measure, row.path[-1]) == ("host", "augment")
    assert row.difference_ns == pytest.approx(200_000, rel=0.01)


def test_an_operator_in_place_of_another_is_no_row_where_the_time_is_the_same() -> None:
    other = replace(GATHER, kernels=[("aten::index_select", 21.0)], backward={"aten::index_select": 45.0})
    assert changes(plain(), run(other, *REST)) == ()


def test_an_operator_with_nothing_around_it_is_neither_new_nor_gone() -> None:
    """Without numbers the backward pass has its own thread, where another recorder may show the work elsewhere."""

    def apart(trace: deepprof.Trace, name: str) -> deepprof.Trace:
        node = "autograd::engine::evaluate_function: IndexBackward0"
        names = [name if each == node else each for each in trace.names.to_list()]
        hosts = trace.host_events.with_columns(sequence=pl.lit(None, trace.host_events.schema["sequence"]))
        return msgspec.structs.replace(trace, host_events=hosts, names=pl.Series(trace.names.name, names))

    heavy = replace(GATHER, backward={"aten::index": 200.0})
    a, b = (deepprof.analyze([apart(each, name) for each in write((heavy, *REST))]) for name in ("One", "Other"))
    assert changes(a, b) == ()


def test_an_operator_that_only_one_run_has_is_new_where_it_adds_time() -> None:
    more = replace(GATHER, kernels=[("aten::index", 20.0), ("aten::sort", 90.0)])
    assert told(changes(plain(), run(more, *REST))) == [("new", "device", "aten::sort", 0, 90_000)]
    assert told(changes(run(more, *REST), plain())) == [("gone", "device", "aten::sort", 90_000, 0)]


def test_less_than_a_hundredth_of_the_iteration_is_no_row() -> None:
    assert changes(plain(), run(replace(GATHER, kernels=[("aten::index", 27.0)]), *REST)) == ()


def test_what_varies_as_much_within_a_run_is_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean differs by a tenth of an iteration, for one iteration of 24 lasts much longer."""
    trace = write(PLAIN)[0]
    names = trace.names.to_list()
    slow = (pl.col("name_id") == names.index("index_kernel")).cum_sum() == 12
    late = trace.device_events.with_columns(
        grown=pl.when(slow & (pl.col("name_id") == names.index("index_kernel"))).then(1_600_000).otherwise(0)
    )
    late = late.with_columns(shift=pl.col("grown").cum_sum())
    events = late.with_columns(
        start_ns=pl.col("start_ns") + pl.col("shift") - pl.col("grown"), end_ns=pl.col("end_ns") + pl.col("shift")
    ).drop("grown", "shift")
    other = deepprof.analyze(msgspec.structs.replace(trace, device_events=events))
    assert changes(plain(), other) == ()
    monkeypatch.setattr(contexts, "_surely_differ", lambda *sides: True)
    assert changes(plain(), other)


def test_few_iterations_must_all_differ() -> None:
    assert contexts._surely_differ(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    assert not contexts._surely_differ(np.array([1.0, 3.5]), np.array([3.0, 4.0]))
    assert told(
        changes(run(*PLAIN, iterations=4), run(replace(GATHER, kernels=[("aten::index", 99.0)]), *REST, iterations=4))
    )


def test_runs_with_little_code_in_common_say_nothing() -> None:
    other = [replace(call, function=call.function.replace("model", "other")) for call in REST]
    assert changes(plain(), run(GATHER, *other)) == ()


def test_a_run_without_code_or_iterations_says_nothing() -> None:
    def bare(trace: deepprof.Trace) -> deepprof.Trace:
        calls = trace.host_events.filter(pl.col("category") == "runtime")
        kept = trace.device_events.height + calls.height
        tables = {"host_events": calls, "annotations": trace.annotations.clear()}
        return msgspec.structs.replace(trace, **tables, accounting=Accounting(kept, kept))

    slower = run(replace(GATHER, kernels=[("aten::index", 99.0)]), *REST)
    without = deepprof.analyze([bare(trace) for trace in write(PLAIN)])
    assert without.trees == {}
    assert changes(without, slower) == changes(slower, without) == ()
    assert compare(run(*PLAIN, iterations=1), slower).pairs == ()


def test_only_the_contexts_that_changed_most_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "MOST_EXAMINED", 1)
    (row,) = changes(plain(), run(replace(GATHER, kernels=[("aten::index", 120.0)]), *REST))
    assert row.difference_ns == 100_000


@st.composite
def two_runs(draw: st.DrawFn) -> tuple[CodePaths, PathTimes, PathTimes]:
    """A tree of paths, and what each needs with all within in two iterations of two runs that have all of them."""
    many = draw(st.integers(1, 12))
    outer = [0, *(draw(st.integers(0, number - 1)) for number in range(1, many + 1))]
    parent, depth = np.array(outer), np.zeros(many + 1, np.int64)
    for path in range(1, many + 1):
        depth[path] = depth[outer[path]] + 1
    frames = pl.DataFrame({"kind": ["python"] * many, "name": [str(path) for path in range(1, many + 1)]})
    none = np.zeros(0, np.int64)
    sides = []
    for _ in range(2):
        own = np.array([0, *draw(st.lists(st.integers(0, 50), min_size=many, max_size=many))])
        whole = add_up(own, parent, depth)[1:]
        path, iteration = np.repeat(np.arange(1, many + 1), 2), np.tile([0, 1], many)
        means = np.append(0, whole).astype(float)
        sides.append(PathTimes(path, iteration, np.repeat(whole, 2), 2, means, np.ones(many + 1, np.bool_)))
    return CodePaths(parent, frames, none, none), *sides


@given(two_runs())
def test_carriers_leave_no_change_and_count_none_twice(drawn: tuple[CodePaths, PathTimes, PathTimes]) -> None:
    paths, a, b = drawn
    least = 10
    rest = b.means - a.means
    found = list(contexts._find_carriers(paths, a, b, least))
    assert [each.path for each in found] == sorted((each.path for each in found), reverse=True)
    for each in found:
        assert abs(each.b_ns - each.a_ns) >= least
        path = each.path
        while path:
            rest[path] -= each.b_ns - each.a_ns
            path = int(paths.parent[path])
    assert (np.abs(rest[1:]) < least).all()


def tree(*rows: tuple[int | None, str, str]) -> pl.DataFrame:
    """Contexts of (parent, kind, name), the first of which is around all."""
    depths: list[int] = []
    for parent, _, _ in rows:
        depths.append(0 if parent is None else depths[parent] + 1)
    table = pl.DataFrame(
        {"parent": [row[0] for row in rows], "depth": depths}, {"parent": pl.UInt32, "depth": pl.UInt16}
    )
    frames = {"kind": pl.Series([row[1] for row in rows], dtype=KIND), "name": pl.Series([row[2] for row in rows])}
    return table.with_columns(**frames, file=pl.lit(None, pl.String))


def test_paths_are_of_code_only_and_equal_frames_within_each_other_are_one() -> None:
    a = tree(
        (None, "all", "all"),
        (0, "thread", "thread 1"),
        (1, "range", "r"),
        (2, "runtime", "x"),
        (3, "operator", "o"),
        (4, "operator", "o"),
    )
    b = tree(
        (None, "all", "all"),
        (0, "thread", "thread 1"),
        (0, "thread", "thread 2"),
        (2, "range", "r"),
        (3, "operator", "o"),
        (4, "kernel", "k"),
    )
    paths = match_paths(a, b)
    assert [paths.spell(path) for path in paths.of_a.tolist()] == [(), (), ("r",), (), ("r", "o"), ()]
    assert [paths.spell(path) for path in paths.of_b.tolist()] == [(), (), (), ("r",), ("r", "o"), ()]
    assert paths.of_a[[2, 4]].tolist() == paths.of_b[[3, 4]].tolist()
    assert (paths.parent[1:] < np.arange(1, len(paths.parent))).all()


def test_trees_without_code_have_no_paths() -> None:
    empty = tree((None, "all", "all"), (0, "unattributed", "no calls"))
    assert code_paths.match_paths(empty, empty).of_a.tolist() == [0, 0]


GOLDEN = """\
Time on the device, by code (+ new, - gone), per mean iteration
                                               A        B  difference
    embed model.py:10 → 14 › aten::index  165 µs   265 µs     +100 µs
  + hash model.py:80                        0 ns  30.0 µs    +30.0 µs

Time on the host without waits, by code (+ new, - gone), per mean iteration
                                A     B  difference
  - select_rows data.py:5  801 µs  0 ns     -801 µs
"""


def test_the_tables() -> None:
    moved = replace(GATHER, function="model.py(14): embed", kernels=[("aten::index", 220.0)])
    before = replace(GATHER, kernels=[("aten::index", 120.0)])
    a, b = run(before, *REST, HOST), run(moved, *REST, Call("model.py(80): hash", [("aten::mul", 30.0)]))
    assert GOLDEN in shown(a, b)
    assert all(len(line) <= 40 for line in shown(a, b, width=40).splitlines())


def test_json_has_the_rows_of_the_slowest_pair() -> None:
    slower = run(replace(GATHER, kernels=[("aten::index", 120.0)]), *REST)
    (pair,) = json.loads(encode(compare(plain(), slower)))["pairs"]
    assert pair["contexts"] == [
        {
            "status": "changed",
            "measure": "device",
            "kind": "operator",
            "path": [*STEP, "embed", "aten::index"],
            "a": {"function": "embed", "file": "model.py", "line": 10},
            "b": {"function": "embed", "file": "model.py", "line": 10},
            "a_ns": 65_000,
            "b_ns": 165_000,
            "difference_ns": 100_000,
        }
    ]
    (pair,) = json.loads(encode(compare(plain(), slower), limit=0))["pairs"]
    assert pair["contexts"] == []
