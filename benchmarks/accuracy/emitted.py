"""Kernels as a training program emits them: forward, backward mirrored, the update of every group of parameters.

Unlike the blocks of `models`, a backward pass is made of the forward pass: each operation has its own backward kernels,
and an evaluation runs the forward pass of the very model that is trained.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from benchmarks.accuracy.kernels import Ints

Rng = np.random.Generator
Emission = list[str]

# Operations of a layer, each with the kernels of its forward and its backward pass; `{w}` is a width of the model.
OPERATIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "norm": (("layer_norm<{w}>",), ("norm_grad_input<{w}>", "norm_gamma_beta<{w}>")),
    "rms": (("pow", "mean_reduce<{w}>", "rsqrt", "mul"), ("mul", "mul", "sum_reduce<{w}>", "pow_backward")),
    "linear": (("gemm_tn<{w}>",), ("gemm_nn<{w}>", "gemm_nt<{w}>")),
    "biased": (("gemm_tn<{w}>", "add_bias"), ("gemm_nn<{w}>", "gemm_nt<{w}>", "sum_reduce<{w}>")),
    "attention": (("flash_forward<{w}>",), ("flash_dot", "flash_backward<{w}>", "flash_convert")),
    "softmax": (("bmm<{w}>", "div", "softmax<{w}>", "bmm_nn<{w}>"), ("bmm_nt<{w}>", "softmax_grad", "div", "bmm<{w}>")),
    "activation": (("gelu",), ("gelu_backward",)),
    "gate": (("silu", "mul"), ("mul", "mul", "silu_backward")),
    "dropout": (("fused_dropout",), ("masked_scale",)),
    "residual": (("add",), ("add",)),
    "copy": (("copy",), ("copy",)),
    "convolution": (("conv_fprop<{w}>",), ("conv_dgrad<{w}>", "conv_wgrad<{w}>")),
    "batch_norm": (("bn_forward<{w}>",), ("bn_backward<{w}>",)),
    "relu": (("clamp",), ("threshold_backward",)),
}
TRAINED_ONLY = {"fused_dropout"}  # an evaluation runs without
TRANSFORMERS = (
    ("norm", "biased", "copy", "softmax", "biased", "dropout", "residual"),
    ("norm", "linear", "attention", "linear", "residual"),
    ("rms", "linear", "linear", "linear", "copy", "attention", "copy", "linear", "residual"),
)
MIXERS = (
    ("norm", "biased", "activation", "biased", "dropout", "residual"),
    ("rms", "linear", "linear", "gate", "linear"),
)
CONVOLUTION = ("convolution", "batch_norm", "relu", "convolution", "batch_norm", "residual", "relu")
HEAD = (("norm", "linear"), ("log_softmax", "nll_loss"), ("nll_backward", "log_softmax_backward"))
UPDATES: dict[str, tuple[str, ...]] = {
    "foreach": (
        "multi_tensor_lerp",
        "multi_tensor_mul",
        "multi_tensor_addcmul",
        "multi_tensor_sqrt",
        "multi_tensor_div",
    ),
    "fused": ("multi_tensor_apply<FusedAdam>",),
    "single": ("mul", "add_scalar", "addcmul", "sqrt", "addcdiv"),
}


@dataclass(frozen=True)
class Shape:
    """A model: the operations of a layer, how many layers in how many widths, and how it is updated."""

    layer: tuple[str, ...]
    layers: int
    widths: int
    update: str
    groups: int
    clipped: bool
    zeroed: bool


@dataclass
class Book:
    """Numbers for kernel names, in the order of first use; what is in <> is a variant of the name before it."""

    numbers: dict[str, int] = field(default_factory=dict)

    def read(self, names: Emission) -> Ints:
        """Return the numbers of names."""
        return np.array([self.numbers.setdefault(name, len(self.numbers)) for name in names], np.int64)

    @property
    def coarse(self) -> Ints:
        """The number of the first name that is the same without its variant, per name."""
        first: dict[str, int] = {}
        return np.array([first.setdefault(name.split("<")[0], number) for name, number in self.numbers.items()])

    @property
    def optimizer(self) -> npt.NDArray[np.bool_]:
        """Whether a name states that it is an optimizer's."""
        return np.array(["Adam" in name or name.startswith("multi_tensor") for name in self.numbers], bool)


def draw_shape(rng: Rng, layers: int) -> Shape:
    """Return a model of this many layers."""
    if rng.random() < 0.25:
        layer, widths = CONVOLUTION, int(rng.integers(1, 5))
    else:
        layer, widths = (*TRANSFORMERS[rng.integers(3)], *MIXERS[rng.integers(2)]), 1
    update = str(rng.choice(list(UPDATES)))
    groups = layers * 4 if update == "single" else int(rng.integers(3, 30))
    return Shape(layer, layers, min(widths, layers), update, groups, bool(rng.random() < 0.4), bool(rng.random() < 0.3))


def layers_of(shape: Shape) -> list[tuple[str, str]]:
    """Return the operations of all layers, each with its width."""
    return [(op, f"s{i * shape.widths // shape.layers}") for i in range(shape.layers) for op in shape.layer]


def filled(kernels: tuple[str, ...], width: str) -> Emission:
    """Return an operation's kernels of a width."""
    return [name.replace("{w}", width) for name in kernels]


def forward(shape: Shape, *, training: bool) -> Emission:
    """Return the forward pass up to the loss."""
    body = [name for op, width in layers_of(shape) for name in filled(OPERATIONS[op][0], width)]
    head = [name for op in HEAD[0] for name in filled(OPERATIONS[op][0], "vocabulary")]
    made = ["embedding", "add_position", *body, *head, *HEAD[1]]
    return [name for name in made if training or name not in TRAINED_ONLY]


def backward(shape: Shape) -> Emission:
    """Return the backward pass: every operation of the forward pass, the last one first."""
    head = [name for op in reversed(HEAD[0]) for name in filled(OPERATIONS[op][1], "vocabulary")]
    body = [name for op, width in reversed(layers_of(shape)) for name in filled(OPERATIONS[op][1], width)]
    return [*HEAD[2], *head, *body, "embedding_sort", "embedding_backward"]


def update(shape: Shape) -> Emission:
    """Return the optimizer's step, after the gradients are clipped."""
    scaled = ["mul"] * shape.groups if shape.update == "single" else ["multi_tensor_scale"]
    clip = ["norm_reduce"] * max(3, shape.layers // 2) + ["stack", "norm_total", "clip_coefficient", *scaled]
    return (clip if shape.clipped else []) + [*UPDATES[shape.update]] * shape.groups


def zeroing(shape: Shape) -> Emission:
    """Return what sets the gradients to zero before the first forward pass, in programs that do not drop them."""
    return ["fill_zero"] * shape.groups if shape.zeroed else []
