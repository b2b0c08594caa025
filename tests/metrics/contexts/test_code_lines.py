"""Which line of whose code a context belongs to, and where most of an amount is."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from deepprof.metrics.contexts.code_lines import describe_place, find_lines, find_most
from deepprof.metrics.contexts.frames import write_place
from deepprof.metrics.contexts.tree import CONTEXTS

Node = tuple[int | None, str, str, str | None, int | None]


def contexts(*nodes: Node) -> pl.DataFrame:
    """Return contexts of parent, kind, name, file and line; parents are before their children."""
    depths = list[int]()
    for parent, *_ in nodes:
        depths.append(0 if parent is None else depths[parent] + 1)
    rows = [
        {"context": number, "parent": parent, "depth": depth, "kind": kind, "name": name, "file": file, "line": line}
        for number, ((parent, kind, name, file, line), depth) in enumerate(zip(nodes, depths, strict=True))
    ]
    return pl.DataFrame([row | {"backward": False} for row in rows], schema=CONTEXTS)


ALL: Node = (None, "all", "all", None, None)


@pytest.mark.parametrize(
    ("file", "is_code"),
    [
        ("train.py", True),
        ("/home/u/lib/model.py", True),
        (r"C:\job\train.py", True),
        ("torchvision/models/resnet.py", True),
        ("/opt/conda/lib/python3.11/site-packages/transformers/modeling.py", True),
        ("/opt/conda/lib/python3.11/site-packages/torch/nn/modules/conv.py", False),
        ("torch/nn/modules/conv.py", False),
        ("/usr/lib/python3.10/threading.py", False),
        ("threading.py", False),
        ("multiprocessing/queues.py", False),
        ("<string>", False),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_the_users_code_and_libraries_are_meant_and_not_the_framework(file: str, is_code: bool) -> None:
    table = contexts(
        ALL, (0, "python", "main", "main.py", 3), (1, "python", "f", file, 7), (2, "operator", "mm", None, None)
    )
    assert find_lines(table).tolist() == [-1, 1, 2, 2] if is_code else [-1, 1, 1, 1]


def test_the_frameworks_line_is_better_than_none() -> None:
    table = contexts(ALL, (0, "python", "relu", "torch/nn/functional.py", 9), (1, "python", "<built-in>", None, None))
    assert find_lines(table).tolist() == [-1, 1, 1]
    assert find_lines(contexts(ALL)).tolist() == [-1]
    assert find_lines(contexts(ALL, (0, "python", "f", "train.py", None))).tolist() == [-1, -1], "no file has that line"


def test_the_innermost_with_half_of_it_is_where_it_lies() -> None:
    table = contexts(
        ALL,
        (0, "thread", "thread 1", None, None),
        (1, "python", "step", "train.py", 1),
        (2, "module", "Linear_0", None, None),
        (2, "module", "Linear_1", None, None),
    )
    assert find_most(table, np.array([0.0, 0, 1, 5, 4])) == 3
    assert find_most(table, np.array([0.0, 0, 2, 4, 4])) == 2
    assert find_most(table, np.array([0.0, 7, 1, 2, 3])) is None, "a thread is no place"
    assert find_most(table, np.zeros(5)) is None


def test_a_place_is_the_line_and_what_is_around() -> None:
    table = contexts(
        ALL,
        (0, "range", "step", None, None),
        (1, "python", "forward", "model.py", 12),
        (2, "module", "Net_0", None, None),
        (3, "module", "Linear_0", None, None),
        (4, "operator", "aten::linear", None, None),
        (5, "operator", "aten::addmm", None, None),
    )
    assert describe_place(table, find_lines(table), 6) == {
        "function": "forward",
        "file": "model.py",
        "line": 12,
        "operator": "aten::addmm",
        "module": "Linear_0",
        "range": "step",
    }
    assert describe_place(table, find_lines(table), 0) == {}


def test_a_line_on_which_a_function_begins_is_called_so() -> None:
    table = contexts(ALL, (0, "python", "forward", "net/model.py", 12), (1, "operator", "aten::mm", None, None))
    place = describe_place(table, find_lines(table), 2, np.array([False, True, False]))
    assert place["line_is"] == "definition"
    assert write_place(place) == "forward (defined at net/model.py:12)"
    del place["line_is"]
    assert write_place(place) == "forward (net/model.py:12)"
