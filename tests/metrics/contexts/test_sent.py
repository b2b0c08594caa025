"""The tree of nodes and sums, against the tree of the recording that they were computed from."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.measures import measure_contexts
from deepprof.metrics.contexts.sent import AMOUNTS, LARGEST, NOT_SENT, SENT, read_sent
from deepprof.metrics.contexts.tree import CONTEXTS, ContextTree, build_tree
from tests.chance import examples
from tests.metrics.contexts.test_slices import op
from tests.metrics.contexts.test_tree import training
from tests.tables import Row, event, make_trace

KINDS = ("python", "operator", "native")
NODES = {
    "context": pl.UInt64(),
    "parent": pl.UInt64(),
    "kind": pl.Enum(KINDS),
    "name": pl.String(),
    "line": pl.UInt32(),
}
SUMS = {"time_ns": pl.Int64(), "window_ns": pl.Int64(), "context": pl.UInt64(), "count": pl.UInt64()}
SUMS |= {"host_ns": pl.Int64(), "device_count": pl.UInt64(), "device_ns": pl.Int64()}
WINDOW_NS = 100
NAMES = (
    "train.py(5): step",
    "model.py(9): forward",
    "aten::linear",
    "aten::addmm",
    "autograd::engine::evaluate_function: LinearBackward0",
    "gemm",
)
Path = tuple[tuple[str, str], ...]
"""Kind and name, as recorded, of the contexts around one and of itself."""


def nodes_of(*rows: tuple[int, int, str, str] | tuple[int, int, str, str, int]) -> pl.DataFrame:
    """Return nodes: number, parent, kind, name and perhaps the running line."""
    return pl.DataFrame([(*row, 0)[:5] for row in rows], schema=NODES, orient="row")


def sums_of(*rows: tuple[int, int, int, int, int]) -> pl.DataFrame:
    """Return sums of one window: context, then `AMOUNTS`."""
    return pl.DataFrame([(0, WINDOW_NS, *row) for row in rows], schema=SUMS, orient="row")


def compute_sent(trace: Trace, seed: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the nodes and sums that a job sends which runs as a trace states, in windows, in any order.

    A slice counts in the window in which it begins, its own time for all contexts on its path.
    """
    tree = build_tree(trace)
    of_rows = [_path_of(tree, trace, row) for row in range(len(tree.slices.start))]
    numbers: dict[Path, int] = {(): 0}
    for path in of_rows:
        for length in range(1, len(path) + 1):
            numbers.setdefault(path[:length], (len(numbers) * 0x9E3779B97F4A7C15) % (1 << 64))
    nodes = [(number, numbers[path[:-1]], *path[-1], 0) for path, number in numbers.items() if path]
    sums: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0] * 4)
    lasted = tree.slices.end - tree.slices.start
    for row, path in enumerate(of_rows):
        window = tree.slices.start[row] // WINDOW_NS
        own = int(lasted[row] - lasted[tree.slices.parent == row].sum())
        for length in range(1, len(path) + 1):
            sums[window, numbers[path[:length]]][1] += own
        if path and not _is_left_out(tree, row):
            sums[window, numbers[path]][0] += 1
    for row, begin, end in zip(
        tree.sites.row.tolist(), trace.device_events["start_ns"], trace.device_events["end_ns"], strict=True
    ):
        if row >= 0 and of_rows[row]:
            found = sums[begin // WINDOW_NS, numbers[of_rows[row]]]
            found[2] += 1
            found[3] += end - begin
    rows = [(window * WINDOW_NS, WINDOW_NS, context, *amounts) for (window, context), amounts in sums.items()]
    random.Random(seed).shuffle(nodes)
    return pl.DataFrame(nodes, schema=NODES, orient="row"), pl.DataFrame(rows, schema=SUMS, orient="row")


def _is_left_out(tree: ContextTree, row: int) -> bool:
    """Return whether a job sends no context of its own for a slice: it is a call, or a range."""
    return tree.slices.rows["kind"][row] not in KINDS


def _path_of(tree: ContextTree, trace: Trace, row: int) -> Path:
    """Return the path to a slice of what a job sends contexts for, with the names that were recorded."""
    found: list[tuple[str, str]] = []
    while row >= 0:
        if not _is_left_out(tree, row):
            found.append((tree.slices.rows["kind"][row], trace.names[tree.slices.rows["name_id"][row]]))
        row = int(tree.forward[row]) if tree.forward[row] >= 0 else int(tree.slices.parent[row])
    return tuple(reversed(found))


def by_path(contexts: pl.DataFrame, amounts: Mapping[str, str]) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """Return what contexts took by their paths of frames; those that take nothing, and calls and kernels, have none."""
    paths: list[tuple[Any, ...]] = []
    found: dict[tuple[Any, ...], tuple[int, ...]] = {}
    for row in contexts.iter_rows(named=True):
        around = paths[row["parent"]] if row["parent"] is not None else ()
        own = (row["kind"], row["name"], row["file"], row["line"], row["backward"])
        shown = row["kind"] in {*KINDS, "module"}
        paths.append((*around, own) if shown else around)
        values = tuple(row[name] for name in amounts.values())
        if shown and any(values):
            before = found.get(paths[-1], (0,) * len(values))
            found[paths[-1]] = tuple(map(sum, zip(before, values, strict=True)))
    return found


ROWS = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 300), st.integers(1, 200), st.sampled_from(range(5))), max_size=16
)
WORK = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 400), st.integers(1, 60)), max_size=8)


def recorded(rows: list[tuple[int, int, int, int]], work: list[tuple[int, int, int]]) -> Trace:
    """Return a recording; the backward pass has its own thread, as on devices."""
    host: list[Row] = []
    for number, (of, start, length, name) in enumerate(rows):
        thread = 3 if name == 4 else of
        category = "python" if name < 2 else "op"
        more = {"external_id": number, "sequence": 3, "forward_thread": int(name == 4)} if name in {2, 4} else {}
        more |= {"external_id": number}
        host.append(op(thread, start, start + length, name, category=category, **more))
    device = [event(5, at, at + length, external_id=of) for of, at, length in work]
    return make_trace(device, host, names=NAMES)


def check(trace: Trace, seed: int = 0) -> None:
    """Compare both trees: contexts and what they needed, with all within them."""
    tree = build_tree(trace)
    taken = tree.contexts.hstack(measure_contexts(trace, tree))
    nodes, sums = compute_sent(trace, seed)
    found = read_sent(nodes, at_lines=False).measure(sums)
    assert found.schema == SENT
    names = {"host": "host_ns", "device": "device_ns"}
    expected = by_path(taken, names)
    assert by_path(found, names) == {path: amounts for path, amounts in expected.items() if any(amounts)}


def test_training_is_the_same_tree() -> None:
    """The calls of the hand-made job are no contexts that a job sends: their time is of what is around them."""
    check(training())


@settings(max_examples=examples(300), deadline=None)
@given(ROWS, WORK, st.integers(0, 3))
def test_the_tree_of_a_recording_comes_back(
    rows: list[tuple[int, int, int, int]], work: list[tuple[int, int, int]], seed: int
) -> None:
    check(recorded(rows, work), seed)


def test_a_call_in_another_line_is_another_context() -> None:
    nodes = nodes_of(
        (1, 0, "python", "train.py(5): step", 7),
        (2, 0, "python", "train.py(5): step", 8),
        (3, 1, "operator", "aten::mm"),
        (4, 2, "operator", "aten::mm"),
    )
    sums = sums_of((1, 2, 50, 0, 0), (2, 2, 30, 0, 0), (3, 2, 40, 2, 9), (4, 2, 10, 2, 4))
    found = read_sent(nodes).measure(sums)
    assert found.filter(name="step").select("line", "own_host_ns", "host_ns", "device_ns").rows() == [
        (7, 10, 50, 9),
        (8, 20, 30, 4),
    ]
    merged = read_sent(nodes, at_lines=False).measure(sums)
    assert merged.filter(name="step").select("line", "own_count", "own_host_ns", "host_ns").rows() == [(5, 4, 30, 80)]
    assert merged.filter(name="aten::mm").select("own_count", "own_device_count", "device_ns").rows() == [(4, 4, 13)]
    assert merged.select("own_count", "count", "host_ns", "device_ns").row(0) == (0, 8, 80, 13)


def test_windows_are_measured_one_by_one() -> None:
    nodes = nodes_of((1, 0, "python", "train.py(5): step", 7), (2, 1, "operator", "aten::mm"))
    sums = sums_of((1, 1, 50, 0, 0), (2, 1, 40, 1, 9), (1, 1, 70, 0, 0), (2, 1, 65, 1, 8))
    windows = sums.with_columns(window=pl.Series([0, 0, 2, 2]))
    sent = read_sent(nodes)
    assert sent.measure_windows("host_ns", windows, 3)[2:].tolist() == [[50, 0, 70], [40, 0, 65]]
    assert sent.measure_windows("device_ns", windows, 3)[:1].tolist() == [[9, 0, 8]]


@pytest.mark.parametrize(
    ("nodes", "place"),
    [
        (nodes_of((1, 9, "operator", "a")), "a"),  # its parent is missing
        (nodes_of((1, 1, "operator", "a")), "a"),  # it is in itself
        (nodes_of((1, 2, "operator", "a"), (2, 1, "operator", "a")), "a"),  # and so do both
        (nodes_of(), NOT_SENT),  # it was not sent at all
    ],
)
def test_what_nobody_could_send_is_shown_apart(nodes: pl.DataFrame, place: str) -> None:
    found = read_sent(nodes).measure(sums_of((1, 1, 5, 0, 7)))
    (row,) = found.filter(pl.col("own_device_ns") > 0).rows(named=True)
    assert row["name"] == place
    assert found.filter(name=NOT_SENT).select("host_ns", "device_ns").row(0) == (5, 7)
    assert found["device_ns"][0] == 7


def test_numbers_that_no_window_has_are_bounded() -> None:
    found = read_sent(nodes_of((1, 0, "operator", "a"))).measure(sums_of((1, 1, -5, 1, 1 << 62), (1, 1 << 63, 3, 1, 1)))
    assert found.select("count", "host_ns", "device_ns").row(2) == (LARGEST + 1, 3, LARGEST + 1)


def test_nothing_is_a_tree_without_branches() -> None:
    sent = read_sent(nodes_of())
    assert sent.contexts.schema == CONTEXTS
    assert sent.contexts["name"].to_list() == ["all", NOT_SENT]
    assert sent.measure(sums_of()).select(pl.exclude(CONTEXTS.names()).sum()).row(0) == (0,) * (2 * len(AMOUNTS))


def test_paths_of_any_depth_end() -> None:
    nodes = nodes_of(*((each, each - 1, "operator", f"a{each}") for each in range(1, 3000)))
    found = read_sent(nodes).measure(sums_of((2999, 1, 5, 1, 7)))
    assert found["device_ns"][0] == 7
    assert found["depth"].max() == 1001
