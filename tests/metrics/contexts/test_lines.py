"""What lines of code take: all of it, once."""

from __future__ import annotations

from deepprof.metrics.contexts.lines import LINES, UNKNOWN, sum_lines
from deepprof.metrics.contexts.sent import read_sent
from tests.metrics.contexts.test_sent import nodes_of, sums_of

NODES = nodes_of(
    (1, 0, "python", "/home/me/train.py(5): step", 7),
    (2, 1, "python", "/usr/lib/python3.11/site-packages/torch/nn/functional.py(9): relu", 12),
    (3, 2, "operator", "aten::relu"),
    (4, 0, "python", "/home/me/train.py(5): step", 9),
    (5, 0, "operator", "aten::mm"),
    (6, 4, "python", "/home/me/model.py(3): forward", 4),
)


def test_a_line_has_what_frameworks_do_for_it() -> None:
    sums = sums_of((1, 1, 80, 0, 0), (2, 1, 70, 0, 0), (3, 1, 60, 1, 9), (4, 1, 30, 2, 5), (5, 3, 20, 0, 0))
    found = sum_lines(read_sent(NODES).measure(sums))
    assert found.schema == LINES
    assert found.rows() == [("step me/train.py:7", 80, 9), ("step me/train.py:9", 30, 5), ("aten::mm", 20, 0)]


def test_another_line_of_the_users_has_its_own() -> None:
    sums = sums_of((4, 1, 50, 0, 0), (6, 1, 40, 1, 7), (99, 1, 3, 0, 0))
    assert sum_lines(read_sent(NODES).measure(sums)).rows() == [
        ("forward me/model.py:4", 40, 7),
        ("step me/train.py:9", 10, 0),
        (UNKNOWN, 3, 0),
    ]


def test_native_functions_are_no_lines() -> None:
    nodes = nodes_of(
        (1, 0, "python", "/home/me/train.py(5): step", 7),
        (2, 1, "native", "shop::forward"),
        (3, 2, "operator", "aten::mm"),
        (4, 0, "native", "main"),
        (5, 4, "operator", "aten::add"),
    )
    sums = sums_of((1, 0, 70, 0, 0), (2, 0, 70, 0, 0), (3, 2, 70, 1, 9), (4, 0, 5, 0, 0), (5, 1, 5, 0, 0))
    assert sum_lines(read_sent(nodes).measure(sums)).rows() == [("step me/train.py:7", 70, 9), ("aten::add", 5, 0)]


def test_nothing_has_no_lines() -> None:
    found = sum_lines(read_sent(nodes_of()).measure(sums_of()))
    assert found.schema == LINES
    assert found.is_empty()
