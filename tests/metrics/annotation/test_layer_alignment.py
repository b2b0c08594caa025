"""Which operators count as those of a forward pass, on slices by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from deepprof.collectors.trace import LAYERS
from deepprof.metrics.annotation.layer_alignment import align_layers
from deepprof.metrics.contexts.slices import HostSlices, read_slices
from tests.tables import Row, make_trace, table

MODEL = ("conv2d", "batch_norm", "relu_", "conv2d", "batch_norm", "add_", "relu", "mean", "linear")
ENGINE = "autograd::engine::evaluate_function: {}"


class Host:
    """Operators one after the other, or within each other."""

    def __init__(self) -> None:
        self.rows, self.names, self.time = list[Row](), list[str](), 0

    def run(self, name: str, *inner: str, thread: int = 1, **more: object) -> None:
        """Add an operator with others in it."""
        start = self.time
        for each in inner:
            self.time += 1
            self.run(each, thread=thread)
        self.time += 1
        self.rows.append(self.make(name, start, thread) | more)

    def make(self, name: str, start: int, thread: int) -> Row:
        full = name if "::" in name or name[0].isupper() else f"aten::{name}"
        if full not in self.names:
            self.names.append(full)
        place = {"process": 1, "thread": thread, "category": "op", "name_id": self.names.index(full)}
        return place | {"start_ns": start, "end_ns": self.time}

    def align(self, model: Sequence[str]) -> tuple[HostSlices, list[tuple[str, int]]]:
        """Return the slices, and the name and match of each that has one."""
        trace = make_trace(host=self.rows, names=self.names)
        slices = read_slices(trace)
        found = align_layers(slices, trace.names, layers(model))
        names = trace.names.gather(slices.rows["name_id"]).to_list()
        return slices, [(names[row], int(found[row])) for row in np.flatnonzero(found >= 0).tolist()]


def layers(model: Sequence[str]) -> pl.DataFrame:
    rows = [
        {"position": at, "operator": f"aten::{name}", "layer": f"l{at}", "call": 0} for at, name in enumerate(model)
    ]
    return table(rows, LAYERS)


def places(found: list[tuple[str, int]]) -> list[int]:
    return [place for _, place in found]


WHOLE = list(range(len(MODEL)))


def test_in_place_and_not_are_the_same_and_inner_operators_are_none() -> None:
    host = Host()
    for _ in range(3):
        for name in MODEL:
            host.run({"relu_": "relu", "add_": "add"}.get(name, name), f"_{name}", "relu")
        host.run("mse_loss", "linear")
    _, found = host.align(MODEL)
    assert places(found) == WHOLE * 3
    assert found[2] == ("aten::relu", 2)


def test_backward_nodes_are_no_part_of_a_pass() -> None:
    host = Host()
    for name in MODEL:
        host.run(name)
    for name in reversed(MODEL):
        host.run(ENGINE.format("Node"), name)
        host.run("ReluBackward0", name)
    _, found = host.align(MODEL)
    assert places(found) == WHOLE


def test_a_function_of_the_users_own_is_looked_into() -> None:
    host = Host()
    host.run("conv2d")
    host.run("MyFunction", "batch_norm", "relu", "conv2d")
    for name in MODEL[4:]:
        host.run(name)
    _, found = host.align(MODEL)
    assert places(found) == WHOLE


def test_casts_in_between_move_nothing_and_have_a_place_where_the_model_has_as_many() -> None:
    model = ("conv2d", "to", "relu", "conv2d", "detach", "relu", "linear", "mean", "add", "mul")
    host = Host()
    for _ in range(2):
        host.run("to")
        for name in model:
            host.run(name)
    host.run("conv2d")
    host.run("to")
    for name in model[1:]:
        host.run(name)
    _, found = host.align(model)
    whole = list(range(len(model)))
    assert places(found) == [*whole, *whole, 0, *whole[2:]]


def test_passes_on_several_threads_are_apart() -> None:
    host = Host()
    for name in MODEL:
        host.run(name, thread=1)
        host.run(name, thread=2)
    _, found = host.align(MODEL)
    assert places(found) == WHOLE * 2


def run_checkpointed(host: Host, *, numbered: bool) -> None:
    """Add a pass of three equal layers, and a backward pass that runs each again."""
    for layer in range(3):
        begun = len(host.rows)
        host.run("CheckpointFunction", "conv2d", "batch_norm", "relu", "linear")
        host.rows[-1] |= {"sequence": layer, "forward_thread": 0} if numbered else {}
        assert len(host.rows) == begun + 5
    host.run("mean")
    for layer in (2, 1, 0):
        start = host.time
        host.run("CheckpointFunctionBackward", "conv2d", "batch_norm", "relu", "linear", "mul")
        node = host.make(ENGINE.format("CheckpointFunctionBackward"), start, 1)
        told = {"sequence": layer, "forward_thread": 1} if numbered else {}
        host.rows[-1] |= told
        host.rows.append(node | told)
        host.time += 1


CHECKPOINTED = ("conv2d", "batch_norm", "relu", "linear") * 3 + ("mean", "div", "exp")


def test_what_is_computed_again_has_the_layer_of_the_node_that_does_it() -> None:
    host = Host()
    run_checkpointed(host, numbered=True)
    _, found = host.align(CHECKPOINTED)
    assert places(found) == [*range(13), *range(8, 12), *range(4, 8), *range(4)]


def test_nothing_is_matched_without_layers_or_operators() -> None:
    host = Host()
    host.run("conv2d")
    assert host.align(())[1] == []
    assert Host().align(MODEL)[1] == []
    assert host.align(("to",))[1] == []
    host.run("to")
    assert host.align(("to",))[1] == []
