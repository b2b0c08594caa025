"""One training step as TensorFlow runs it: the optimizer updates each variable as soon as its gradient is there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepprof.mining.symbols import SymbolArray, as_symbols

__all__ = ["make_chosen_step", "make_step"]

# Kernels of an operation forward, of its gradient, and how many variables it has.
OPERATIONS = (
    (("MatMul", "BiasAdd"), ("MatMul_nt", "MatMul_tn", "BiasAddGrad"), 2),
    (("Rsqrt", "Mul", "Sub", "AddV2"), ("Mul", "Sum", "Mul", "Sum", "RsqrtGrad"), 2),
    (("Gelu",), ("GeluGrad", "Mul"), 0),
    (("BatchMatMul", "Softmax", "BatchMatMul"), ("BatchMatMul", "SoftmaxGrad", "BatchMatMul", "Mul"), 0),
    (("AddV2",), ("AddN",), 0),
    (("Conv2D", "FusedBatchNorm", "Relu"), ("ReluGrad", "FusedBatchNormGrad", "ConvDgrad", "ConvWgrad"), 3),
    (("Transpose",), ("Transpose",), 0),
)


def make_step(seed: int) -> tuple[SymbolArray, npt.NDArray[np.bool_]]:
    """Return the kernels of one step of a random model, and which symbols are an optimizer's kernels."""
    rng = np.random.default_rng([seed, 18])
    layer = [OPERATIONS[i] for i in rng.integers(0, len(OPERATIONS), int(rng.integers(2, 16)))]
    layers, updates = int(rng.integers(3, 49)), ["ApplyAdam"] * int(rng.integers(1, 4))
    forward = [name for _ in range(layers) for ahead, _, _ in layer for name in ahead]
    back = [name for _, gradient, count in reversed(layer) for name in [*gradient, *updates * count]]
    if rng.random() < 0.3:
        back = [*back, "L2Loss", *updates]
    head = [f"head{i}" for i in range(int(rng.integers(2, 12)))]
    names = ["Gather", "Cast", *forward, *head, *reversed(head), *back * layers, "ScatterAdd", *updates]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    optimizer = np.array([name.startswith("Apply") for name in numbers], bool)
    return as_symbols(np.array([numbers[name] for name in names])), optimizer


def make_chosen_step(seed: int) -> tuple[SymbolArray, npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Return a step whose library chooses another kernel in every third of the layers forward, and coarser symbols.

    Coarser names know only what a kernel is for: forward, backward, or an update.
    """
    rng = np.random.default_rng([seed, 19])
    layers, ahead, back = int(rng.integers(4, 30)), int(rng.integers(8, 14)), int(rng.integers(12, 24))
    forward = [f"f{i}" for i in range(ahead)]
    chosen = rng.choice(ahead, 3, replace=False)
    names = ["embed", "cast"]
    for layer in range(layers):
        names += [f"{name}v{3 * layer // layers}" if i in chosen else name for i, name in enumerate(forward)]
    names += ["norm", "loss"]
    names += [*(f"b{i}" for i in range(back)), "ApplyAdam", "ApplyAdam"] * layers
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    optimizer = np.array([name.startswith("Apply") for name in numbers], bool)
    coarse = np.array([{"f": 0, "b": 1, "A": 2}.get(name[0], 3) for name in numbers], np.int64)
    return as_symbols(np.array([numbers[name] for name in names])), optimizer, coarse
