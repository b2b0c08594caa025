"""Layers of two runs, matched by their paths: own times, what only one run has, and when nothing is stated."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from deepprof.analysis import Loop
from deepprof.comparison import layer_changes
from deepprof.comparison.layer_changes import compare_layers
from deepprof.results.comparison_result import LayersInBoth
from tests.deepprof.comparison.annotated_loops import Layers, annotate_loop

NET: Layers = {
    "net": (100, 10, 40, 60),
    "net/Conv2d_3": (50, 50, 20, 30),
    "net/norm": (40, 40, 15, 25),
}


def loop_of(layers: Layers, source: str | None = "modules") -> Loop:
    return annotate_loop({"forward": [1000]}, layers=layers, source=source)


def between(a: Layers, b: Layers) -> LayersInBoth:
    found = compare_layers(loop_of(a), loop_of(b))
    assert found is not None
    return found


def test_equal_layers_have_not_changed() -> None:
    assert between(NET, NET) == LayersInBoth(source="modules", matched=3)


def test_a_slower_layer_is_named_and_what_is_around_it_is_not() -> None:
    slower = NET | {"net": (160, 10, 60, 100), "net/Conv2d_3": (110, 110, 40, 70)}
    (row,) = between(NET, slower).rows
    assert (row.path, row.a_ns, row.b_ns, row.difference_ns) == ("net/Conv2d_3", 50, 110, 60)
    assert (row.a_forward_ns, row.b_forward_ns, row.a_backward_ns, row.b_backward_ns) == (20, 40, 30, 70)


def test_passes_are_without_the_layers_within() -> None:
    (row,) = between(NET, NET | {"net": (125, 35, 55, 70)}).rows
    assert (row.path, row.difference_ns) == ("net", 25)
    assert (row.a_forward_ns, row.b_forward_ns, row.a_backward_ns, row.b_backward_ns) == (5, 20, 5, 15)
    (row,) = between(NET, NET | {"net": (90, 15, 30, 60)}).rows  # medians that do not add up
    assert (row.b_forward_ns, row.b_backward_ns) == (0, 5)


def test_the_whole_path_counts() -> None:
    moved = {"other": NET["net"], "other/Conv2d_3": NET["net/Conv2d_3"], "net": NET["net"]}
    found = between(NET, moved)
    assert (found.matched, found.changed) == (1, 0)
    assert (found.a_only, found.a_only_ns, found.b_only, found.b_only_ns) == (2, 90, 2, 60)


def test_equal_paths_are_one_layer() -> None:
    twice: Layers = {"block 1": (10, 10, 4, 6), "block 1 ": (20, 20, 8, 12)}
    (row,) = between({"block 1": (7, 7, 3, 4)}, twice).rows
    assert (row.path, row.a_ns, row.b_ns, row.b_forward_ns, row.b_backward_ns) == ("block 1", 7, 30, 12, 18)


def test_the_largest_difference_comes_first_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    a: Layers = dict.fromkeys("abcd", (100, 100, 50, 50))
    b: Layers = {name: (ns, ns, 50, 50) for name, ns in (("a", 110), ("b", 50), ("c", 110), ("d", 100))}
    assert [row.path for row in between(a, b).rows] == ["b", "a", "c"]
    monkeypatch.setattr(layer_changes, "MOST_LAYERS", 2)
    found = between(a, b)
    assert ([row.path for row in found.rows], found.changed, found.matched) == (["b", "a"], 3, 4)


def test_other_layers_are_said_to_be_others() -> None:
    found = between(NET, {"graph/op": (10, 10, 10, 0)})
    assert (found.problem, found.rows) == ("no layer has the same path in both runs", ())
    assert (found.matched, found.a_only, found.b_only) == (0, 3, 1)


def test_layers_that_are_known_differently_are_not_compared() -> None:
    modules, blocks = loop_of(NET), loop_of(NET, "blocks")
    none = annotate_loop({"forward": [1000]})
    bare = replace(none, anatomy=None)
    for a, b, problem in (
        (modules, blocks, "the layers of A are known by modules, those of B are known by blocks that repeat"),
        (none, blocks, "the layers of A are unknown, those of B are known by blocks that repeat"),
        (modules, bare, "the layers of A are known by modules, those of B are unknown"),
    ):
        assert compare_layers(a, b) == LayersInBoth(problem=problem)
    assert compare_layers(none, bare) is compare_layers(bare, none) is None
