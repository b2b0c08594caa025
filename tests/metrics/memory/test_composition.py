"""What blocks hold, and what was in use at a moment."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from deepprof.collectors.trace import STACKS
from deepprof.metrics.annotation.event_stages import TraceStages
from deepprof.metrics.annotation.trace_annotation import TraceAnnotation
from deepprof.metrics.memory.block_lifetimes import BLOCKS
from deepprof.metrics.memory.composition import add_up_by, categorize, compose
from deepprof.metrics.memory.device_memory import DeviceMemory
from deepprof.metrics.memory.owners import OWNERS, name_stacks
from tests.loops import make_loop
from tests.metrics.memory.test_floors import mark, with_memory
from tests.tables import Row, make_trace, table

BEGINS = np.array([100, 200, 300, 400])


def block(begin: int | None, end: int | None, stage: str | None, released: str | None, nbytes: int = 8) -> Row:
    return {
        "begin_ns": begin,
        "end_ns": end,
        "nbytes": nbytes,
        "allocation": None if begin is None else 0,
        "stage": stage,
        "released_in": released,
    }


def blocks(*rows: Row) -> pl.DataFrame:
    schema = pl.Schema({**BLOCKS, **OWNERS})
    return pl.DataFrame([{column: row.get(column) for column in schema} for row in rows], schema=schema)


@pytest.mark.parametrize(
    ("row", "category"),
    [
        (block(None, 150, None, "optimizer"), "before the recording"),
        (block(50, None, None, None), "parameters"),
        (block(50, None, "other", None), "parameters"),
        (block(50, 450, "forward", "other"), "parameters"),
        (block(50, None, "optimizer", None), "optimizer state"),
        (block(180, None, "optimizer", None), "optimizer state"),
        (block(180, 280, "optimizer", "optimizer"), "optimizer state"),
        (block(180, 185, "optimizer", "optimizer"), "temporary"),
        (block(150, 205, "backward", "optimizer"), "gradients"),
        (block(150, 185, "backward", "optimizer"), "gradients"),
        (block(150, None, "backward", None), "gradients"),
        (block(150, 160, "backward", "backward"), "temporary"),
        (block(120, 150, "forward", "backward"), "activations"),
        (block(130, 150, "loss", "backward"), "activations"),
        (block(120, 121, "forward", "forward"), "temporary"),
        (block(120, 125, "forward", None), "unknown"),
        (block(120, None, "forward", None), "unknown"),
        (block(105, 210, "data loading", "other"), "inputs"),
        (block(50, 210, "data loading", "other"), "inputs"),
        (block(120, 220, None, None), "unknown"),
    ],
)
def test_what_a_block_holds(row: Row, category: str) -> None:
    assert categorize(blocks(row), BEGINS).to_list() == [category]


def test_without_iterations_nothing_is_a_parameter() -> None:
    rows = blocks(block(50, None, None, None), block(60, 70, "optimizer", "optimizer"))
    assert categorize(rows, np.empty(0, np.int64)).to_list() == ["unknown", "temporary"]
    assert categorize(rows, BEGINS[:1]).to_list() == ["unknown", "temporary"]
    assert categorize(rows.clear(), BEGINS).to_list() == []


def test_what_is_beyond_all_blocks_is_from_before_the_recording() -> None:
    rows = blocks(block(120, 150, "forward", "backward", 30), block(120, 150, "forward", "backward", 10))
    known = rows.with_columns(categorize(rows, BEGINS))
    found = compose(known, 100)
    assert found.select("category", "stage", "blocks", "nbytes").rows() == [
        ("before the recording", None, None, 60),
        ("activations", "forward", 2, 40),
    ]
    assert add_up_by(found, "stage").rows() == [(None, 60), ("forward", 40)]
    assert compose(known, 30)["nbytes"].to_list() == [40]
    assert compose(known.clear()).height == 0


def test_the_line_of_a_stack_is_the_innermost_of_the_users_code() -> None:
    frames = [
        "c10::alloc;torch/nn/functional.py(9): linear;model.py(7): forward;train.py(3): main",
        "torch/nn/functional.py(9): linear;torch/nn/modules/module.py(5): call",
        "c10::alloc",
        "",
    ]
    stacks = table([{"stack_id": number, "frames": text} for number, text in enumerate(frames)], STACKS)
    assert name_stacks(stacks).sort("stack_id").rows() == [
        (0, "forward", "model.py", 7),
        (1, "linear", "torch/nn/functional.py", 9),
    ]


def test_without_addresses_nothing_is_known_of_what_is_in_use() -> None:
    trace = with_memory(make_trace(), [mark(0, 30, None), mark(1, -20, None)])
    nothing = np.zeros(0, np.int8)
    memory = DeviceMemory(TraceAnnotation(trace, None, TraceStages(nothing, nothing, None), None), 0, None)
    assert memory.paired.left_out == {"without-place": 2}
    assert memory.peak.select("category", "nbytes").rows() == [("unknown", 30)]


def test_of_totals_alone_it_is_not_known_what_they_are() -> None:
    looks = [{"time_ns": at, "process": 1, "device": 0, "nbytes": 0, "allocated_nbytes": 30 - at} for at in (0, 1)]
    nothing = np.zeros(0, np.int8)
    known = TraceAnnotation(with_memory(make_trace(), looks), None, TraceStages(nothing, nothing, None), None)
    memory = DeviceMemory(known, 0, None)
    assert (memory.paired.left_out, memory.blocks.height) == ({"without-size": 2}, 0)
    assert memory.peak.select("category", "nbytes").rows() == [("unknown", 30)]


@pytest.mark.parametrize(("thread", "total", "category"), [(None, None, "unknown"), (1, None, "parameters")])
def test_what_an_allocator_took_from_the_driver_may_hold_anything(
    thread: int | None, total: int | None, category: str
) -> None:
    """As nsys records it: of no thread, and without totals."""
    row: Row = {"time_ns": -5, "process": 1, "thread": thread, "device": 0, "address": 4096, "nbytes": 8}
    trace = with_memory(make_trace(), [row | {"allocated_nbytes": total}])
    nothing = np.zeros(0, np.int8)
    known = TraceAnnotation(trace, None, TraceStages(nothing, nothing, None), None)
    assert DeviceMemory(known, 0, make_loop([10.0] * 6)).blocks["category"].to_list() == [category]
