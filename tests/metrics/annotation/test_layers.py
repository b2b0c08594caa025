"""The layers of a model: from functions of modules, from name scopes, from what repeats."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import deepprof
from deepprof.analysis import Analysis
from deepprof.metrics.annotation.layers import DEEPEST, TraceLayers, _LayerNodes, _name_layers
from tests.metrics.annotation.test_event_stages import ADAM, GEMM, GEMM_BACK, LOSS, NAMES, PLAIN, US, play
from tests.metrics.contexts.test_slices import op
from tests.tables import event, launch, make_trace

MODULES = (
    "gemm",
    "nn.Module: Net_0",
    "nn.Module: Linear_0",
    "nn.Module: Linear_1",
    "aten::linear",
    "autograd::engine::evaluate_function: LinearBackward0",
    "cudaLaunchKernel",
    "multi_tensor_apply<SGD>",
)
KERNEL, NET, FIRST, SECOND, LINEAR, NODE, CALL, SGD = range(8)
STEP = 1_000 * US


def train(steps: int = 6) -> Analysis:
    """Return a net of two layers, each a kernel forward and one backward, the second layer called twice."""
    device, host, number = [], [], 0

    def run(at: int, thread: int, name: int, length: int = 40) -> None:
        nonlocal number
        number += 1
        host.append(launch(number, at + 1, at + 2, CALL) | {"thread": thread})
        device.append(event(name, at + 20 * US, at + (20 + length) * US, correlation=number))

    for step in range(steps):
        start = step * STEP
        host.append(op(1, start, start + 400 * US, NET, category="python"))
        for place, module in enumerate((FIRST, SECOND, SECOND)):
            at, sequence = start + (10 + 100 * place) * US, 10 * step + place
            host.append(op(1, at - 5, at + 80 * US, module, category="python"))
            host.append(op(1, at, at + 70 * US, LINEAR, sequence=sequence, forward_thread=0))
            run(at, 1, KERNEL)
        for place in (2, 1, 0):
            at, sequence = start + (700 - 100 * place) * US, 10 * step + place
            host.append(op(2, at, at + 70 * US, NODE, sequence=sequence, forward_thread=1))
            run(at, 2, KERNEL, 60)
        run(start + 900 * US, 1, SGD, 30)
    return deepprof.analyze(make_trace(device, sorted(host, key=lambda row: row["start_ns"]), names=MODULES))


def test_modules_have_their_kernels_forward_and_backward() -> None:
    analysis = train()
    (loop,) = analysis.loops
    assert loop.anatomy is not None
    assert loop.anatomy.source == "modules"
    rows = {row["path"]: row for row in loop.anatomy.layers.iter_rows(named=True)}
    assert list(rows) == ["", "Net_0", "Net_0/Linear_0", "Net_0/Linear_1"]
    times = {path: (row["forward_ns"] // US, row["backward_ns"] // US, row["kernels"]) for path, row in rows.items()}
    assert times["Net_0/Linear_0"] == (40, 60, 2)
    assert times["Net_0/Linear_1"] == (80, 120, 4)
    assert times["Net_0"] == (120, 180, 6)
    assert rows[""]["busy_ns"] // US == 330
    assert rows[""]["own_busy_ns"] // US == 30
    assert analysis.events["layer"].to_list()[:7] == [
        *["Net_0/Linear_0", "Net_0/Linear_1", "Net_0/Linear_1"],
        *["Net_0/Linear_1", "Net_0/Linear_1", "Net_0/Linear_0", None],
    ]
    assert analysis.layers.height == 4


def test_scopes_of_jax_without_what_it_did_with_them() -> None:
    scopes = {
        "jit(train_step)": "",
        "jit(main)": "",
        "jvp(ResNet)": "ResNet",
        "transpose(jvp(ResNet))": "ResNet",
        "checkpoint(Block_3)": "Block_3",
        "Block_3": "Block_3",
        "while": "",
        "body": "",
        "bodywork": "bodywork",
        "custom_jvp_call": "",
        "": "",
    }
    found = _name_layers(pl.Series("name", list(scopes)))
    assert dict(zip(scopes, found, strict=True)) == scopes


BLOCK, BACK = [GEMM, PLAIN, GEMM, GEMM, PLAIN], [GEMM_BACK, PLAIN, PLAIN, GEMM_BACK, GEMM_BACK, GEMM]


def test_blocks_that_repeat_are_layers_and_the_backward_ones_are_theirs() -> None:
    iteration = [*BLOCK * 4, LOSS, PLAIN, *BACK * 4, ADAM, ADAM]
    analysis = deepprof.analyze(make_trace(play([iteration] * 8), names=NAMES))
    (loop,) = analysis.loops
    assert loop.anatomy is not None
    assert loop.anatomy.source == "blocks"
    layers = analysis.events["layer"].to_list()[len(iteration) : 2 * len(iteration)]
    numbers = [int(layer.split()[1]) if layer else 0 for layer in layers]
    assert numbers[: 4 * len(BLOCK)] == [k for k in (1, 2, 3, 4) for _ in BLOCK]
    backward = numbers[4 * len(BLOCK) + 2 : -2]
    assert backward == [k for k in (4, 3, 2, 1) for _ in BACK]
    assert numbers[-2:] == [0, 0]
    table = loop.anatomy.layers.filter(pl.col("depth") > 0)
    assert table.select("forward_ns", "backward_ns").unique().rows() == [(5 * 8 * US, 6 * 8 * US)]


def test_a_program_without_modules_and_blocks_has_no_layers() -> None:
    analysis = deepprof.analyze(make_trace(play([[GEMM, LOSS, GEMM_BACK, ADAM, PLAIN] * 1] * 8), names=NAMES))
    assert all(loop.anatomy is not None and loop.anatomy.layers.is_empty() for loop in analysis.loops)
    assert analysis.layers.is_empty()


def test_paths_are_names_within_names() -> None:
    nothing = np.empty(0, np.int64)
    layers = TraceLayers(("", "net", "a", "b", "a"), np.array([-1, 0, 1, 1, 3]), "modules", nothing, nothing)
    assert layers.write_paths() == ["", "net", "net/a", "net/b", "net/b/a"]
    assert layers.depth.tolist() == [0, 1, 2, 2, 3]


@pytest.mark.parametrize("steps", [0, 1])
def test_nothing_and_one_iteration(steps: int) -> None:
    assert train(steps).layers.is_empty()


def test_a_module_that_is_run_again_below_itself_is_the_same_layer() -> None:
    nodes = _LayerNodes()
    net = nodes.enter(0, "Net_0", again=True)
    block = nodes.enter(net, "Block_0", again=True)
    relu = nodes.enter(block, "ReLU_0", again=True)
    assert nodes.enter(nodes.enter(relu, "Block_0", again=True), "ReLU_0", again=True) == relu
    assert nodes.enter(relu, "Net_0", again=True) == net
    assert nodes.enter(relu, "Net_0", again=False) not in {net, block, relu}  # scopes have no their own names
    assert nodes.enter(net, "Block_0", again=True) == block


def test_what_lies_deeper_than_models_do_belongs_to_the_layer_there() -> None:
    nodes, at = _LayerNodes(), 0
    for number in range(DEEPEST + 3):
        at = nodes.enter(at, f"Block_{number}", again=True)
    assert at == DEEPEST == len(nodes.names) - 1


def test_compiled_regions_are_of_the_module_that_was_compiled_and_their_backward_too() -> None:
    names = (
        *("triton_poi_fused_relu_0", "nn.Module: OptimizedModule_0", "Torch-Compiled Region: 0/0"),
        *("CompiledFunction", "autograd::engine::evaluate_function: CompiledFunctionBackward", "cuLaunchKernel"),
        "multi_tensor_apply<Adam>",
    )
    device, host = [], []
    for step in range(6):
        at, first = step * STEP, 10 * step + 1
        host += [
            op(1, at, at + 90 * US, 1, category="python"),
            op(1, at + 5, at + 80 * US, 2),
            op(1, at + 10, at + 70 * US, 3, sequence=step, forward_thread=0),
            *(launch(first + k, at + (10 + k) * US, at + (11 + k) * US, 5) for k in range(3)),
            op(2, at + 100 * US, at + 190 * US, 4, sequence=step, forward_thread=1),
            *(launch(first + k, at + (100 + k) * US, at + (101 + k) * US, 5) | {"thread": 2} for k in range(3, 6)),
            launch(first + 6, at + 200 * US, at + 201 * US, 5),
        ]
        device += [event(0, at + (20 + 9 * k) * US, at + (28 + 9 * k) * US, correlation=first + k) for k in range(3)]
        device += [
            event(0, at + (110 + 9 * k) * US, at + (118 + 9 * k) * US, correlation=first + k) for k in range(3, 6)
        ]
        device += [event(6, at + 210 * US, at + 219 * US, correlation=first + 6)]
    rows = sorted(host, key=lambda row: int(str(row["start_ns"])))
    events = deepprof.analyze(make_trace(device, rows, names=names)).events
    assert events["stage"].to_list()[7:14] == ["forward"] * 3 + ["backward"] * 3 + ["optimizer"]
    assert events["layer"].to_list()[7:14] == ["OptimizedModule_0"] * 6 + [None]


def test_kernels_of_a_graph_are_of_what_launched_it_and_else_of_nothing() -> None:
    names = ("gemm", "norm", "cudaGraphLaunch", "nn.Module: Net_0", "train.py(3): step")
    device, host = [], []
    for step in range(6):
        at = step * STEP
        host.append(op(1, at, at + 90 * US, 3 if step % 2 else 4, category="python"))
        host.append(launch(step + 1, at + 5, at + 9, 2))
        device += [event(k % 2, at + (10 + 9 * k) * US, at + (18 + 9 * k) * US, correlation=step + 1) for k in range(8)]
    events = deepprof.analyze(make_trace(device, host, names=names)).events
    assert events["layer"].to_list() == ([None] * 8 + ["Net_0"] * 8) * 3
    assert set(events["stage"].to_list()[8:16]) == {"forward"}
