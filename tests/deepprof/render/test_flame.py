"""Trees of contexts as lines of text."""

from __future__ import annotations

from io import BytesIO, TextIOWrapper

import polars as pl
import pytest
from rich.console import Console

from deepprof.metrics.contexts.measures import measure_contexts
from deepprof.metrics.contexts.tree import build_tree
from deepprof.metrics.contexts.views import look_down, look_up
from deepprof.render.flame import MEASURES, FlameMeasure, derive_own, draw_bar, draw_flame, join_names, keep_found
from deepprof.render.page import TextPage
from tests.metrics.contexts.test_tree import training


def contexts() -> pl.DataFrame:
    trace = training()
    tree = build_tree(trace)
    taken = tree.contexts.hstack(measure_contexts(trace, tree))
    return taken.with_columns(own=MEASURES["device"].own)


def draw(rows: pl.DataFrame, *, up: bool = False, width: int = 100, depth: int = 12, coding: str = "utf8") -> list[str]:
    screen = TextIOWrapper(BytesIO(), encoding=coding)
    page = TextPage(Console(file=screen, width=width, color_system=None))
    tree = (look_up if up else look_down)(rows, rows["own"])
    draw_flame(page, tree, MEASURES["device"], depth)
    screen.seek(0)
    return screen.read().splitlines()


def test_what_lies_in_each_other_and_takes_the_same_is_one_line() -> None:
    assert draw(contexts()) == [
        " 70.6 %    240 ns ███████    thread 1 › step train.py:5 › Linear_0 › aten::linear",
        " 41.2 %    140 ns ████         LinearBackward0 › cudaLaunchKernel › gemm",
        " 29.4 %    100 ns ███          cudaLaunchKernel › gemm",
        " 29.4 %    100 ns ███        its launch call is not in the trace › gemm",
    ]


def test_from_the_kernel_to_its_callers() -> None:
    assert draw(contexts(), up=True, width=110)[:3] == [
        "  100 %    340 ns ██████████ gemm",
        " 70.6 %    240 ns ███████      cudaLaunchKernel",
        " 41.2 %    140 ns ████           LinearBackward0 › aten::linear › Linear_0 › step train.py:5 › thread 1",
    ]


def test_a_narrow_screen_loses_the_middle() -> None:
    lines = draw(contexts(), width=50)
    assert lines[0] == " 70.6 %    240 ns ███████    thread 1 ...n::linear"
    assert all(len(line) <= 50 for line in lines)


def test_levels_below_each_other_are_limited() -> None:
    assert len(draw(contexts(), depth=1)) == 2


def test_ascii_where_there_is_nothing_else() -> None:
    assert "".join(draw(contexts(), coding="ascii")).isascii()


def test_small_ones_are_one_line() -> None:
    rows = pl.concat([contexts().head(1), *[contexts().tail(1)] * 300])
    inner = pl.int_range(301) > 0
    rows = rows.with_columns(context=pl.int_range(301), parent=pl.when(inner).then(0), depth=inner.cast(pl.Int64))
    rows = rows.with_columns(name=pl.int_range(301).cast(pl.String), own=pl.lit(1, pl.Int64))
    assert [line[29:] for line in draw(rows)] == ["300 smaller ones"]


def test_a_measure_adds_its_columns_up() -> None:
    rows = pl.DataFrame({"a": [3], "own_a": [1], "b": [4], "own_b": [2]})
    measure = FlameMeasure("both", "count", ("a", "b"), str)
    assert rows.select(measure.whole.alias("whole"), own=measure.own).row(0) == (7, 3)


def test_nothing_took_time() -> None:
    assert draw(contexts().with_columns(own=0)) == []


def test_a_search_keeps_what_matches_with_all_within() -> None:
    found = keep_found(contexts(), "LINEARBACK")
    assert found["own"].sum() == 140
    assert keep_found(contexts(), "train.py")["own"].sum() == 240
    assert keep_found(contexts(), ".*")["own"].sum() == 0


def test_own_parts_are_what_is_not_within() -> None:
    rows = contexts()
    taken = rows.select("context", whole="device_ns").filter(pl.col("whole") > 0)
    assert derive_own(rows.drop("own"), taken)["own"].to_list() == rows["own"].to_list()


@pytest.mark.parametrize(
    ("names", "room", "text"),
    [
        (["a", "b", "c"], 20, "a › b › c"),
        (["first", "second", "third", "last"], 23, "first › 2 more › last"),
        (["first", "middle", "last"], 9, "fir...ast"),
        (["a" * 40], 9, "aaa...aaa"),
    ],
)
def test_names_fit_their_room(names: list[str], room: int, text: str) -> None:
    assert join_names(names, room) == text


def test_a_bar_shows_the_smallest_share() -> None:
    assert [draw_bar(share).rstrip() for share in (0, 0.04, 0.5, 1)] == ["█", "█", "█" * 5, "█" * 10]
    assert len(draw_bar(0)) == 10
