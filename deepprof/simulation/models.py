"""Models of different sizes: which kernels the parts of an iteration launch, drawn from a seed."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from deepprof.simulation import convnet, kernels
from deepprof.simulation.kernels import Launch, name_elementwise

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

Launches = tuple[Launch, ...]

TOKENS_NBYTES = 65_536
IMAGES_NBYTES = 9_633_792  # 64 images of 224 x 224 in three colours, one byte each
PARAMETERS = 12  # of a block
ADAM = tuple(  # one parameter's update without fusion: operator and functor
    (f"aten::{op}", name_elementwise(f"at::native::{functor}", arrays=arrays))
    for op, functor, arrays in (
        ("_foreach_lerp_", "lerp_scalar_kernel(at::TensorIteratorBase&, c10::Scalar const&)::{lambda(float)#1}", 3),
        ("mul_", "AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >", 2),
        ("addcmul_", "addcmul_cuda_kernel(at::TensorIteratorBase&, c10::Scalar const&)::{lambda(float)#1}", 4),
        ("sqrt", "sqrt_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}", 2),
        ("div", "BinaryFunctor<float, float, float, at::native::binary_internal::DivFunctor<float> >", 3),
        ("add_", "CUDAFunctorOnSelf_add<float>", 2),
        ("addcdiv_", "addcdiv_cuda_kernel(at::TensorIteratorBase&, c10::Scalar const&)::{lambda(float)#1}", 4),
    )
)


class SimulatedModel(Struct, frozen=True, dict=True):
    """What the parts of one iteration launch; `blocks_backward` are in the order in which they run."""

    stem: Launches
    blocks: tuple[Launches, ...]
    head: Launches
    head_backward: Launches
    blocks_backward: tuple[Launches, ...]
    stem_backward: Launches
    optimizer: Launches
    optimizer_name: str
    batch_nbytes: int

    @cached_property
    def forward(self) -> Launches:
        """All launches of the forward pass."""
        return (*self.stem, *chain(*self.blocks), *self.head)

    @cached_property
    def backward(self) -> Launches:
        """All launches of the backward pass."""
        return (*self.head_backward, *chain(*self.blocks_backward), *self.stem_backward)

    @cached_property
    def launches(self) -> Launches:
        """All launches of an iteration, in order."""
        return (*self.forward, *self.backward, *self.optimizer)

    @property
    def device_ns(self) -> int:
        """How long an iteration's kernels need together."""
        return sum_ns(self.launches)

    def map(self, change: Callable[[Launch], Launch]) -> SimulatedModel:
        """Return the model with every launch changed."""
        return replace(
            self,
            stem=tuple(map(change, self.stem)),
            blocks=tuple(tuple(map(change, block)) for block in self.blocks),
            head=tuple(map(change, self.head)),
            head_backward=tuple(map(change, self.head_backward)),
            blocks_backward=tuple(tuple(map(change, block)) for block in self.blocks_backward),
            stem_backward=tuple(map(change, self.stem_backward)),
            optimizer=tuple(map(change, self.optimizer)),
        )


def sum_ns(launches: Launches) -> int:
    """Return how long the kernels need together."""
    return sum(launch.ns for launch in launches)


def draw_model(random: Random, time: tuple[float, float] = (0.7, 1.5)) -> SimulatedModel:
    """Return a transformer or a convolutional network whose kernels need `time` (from, to) of the usual."""
    model = _draw_convnet(random) if random.random() < 0.35 else _draw_transformer(random)
    scale = random.uniform(*time)
    return model.map(lambda launch: replace(launch, ns=round(launch.ns * scale)))


def _draw_transformer(random: Random) -> SimulatedModel:
    """Return a GPT of 4 to 9 layers, with dropout or without."""
    layers, dropout, clip = random.randint(4, 9), random.random() < 0.5, random.random() < 0.7

    def pick(launches: Launches) -> Launches:
        return launches if dropout else tuple(step for step in launches if "Dropout" not in step.op + _name_op(step))

    return SimulatedModel(
        stem=pick(kernels.EMBEDDING),
        blocks=(pick(kernels.BLOCK_FORWARD),) * layers,
        head=kernels.HEAD,
        head_backward=kernels.HEAD_BACKWARD,
        blocks_backward=(pick(kernels.BLOCK_BACKWARD),) * layers,
        stem_backward=kernels.EMBEDDING_BACKWARD,
        optimizer=(*(kernels.CLIP if clip else ()), *kernels.OPTIMIZER),
        optimizer_name="AdamW",
        batch_nbytes=TOKENS_NBYTES,
    )


def _name_op(launch: Launch) -> str:
    """Return the operator's name as autograd functions spell it."""
    return launch.op.removeprefix("aten::").title().replace("_", "")


def _draw_convnet(random: Random) -> SimulatedModel:
    """Return a network of four stages with 1 to 4 blocks each."""
    stages = [stage for stage in range(4) for _ in range(random.randint(1, 4))]
    return SimulatedModel(
        stem=convnet.STEM,
        blocks=tuple(map(convnet.launch_block, stages)),
        head=convnet.HEAD,
        head_backward=convnet.HEAD_BACKWARD,
        blocks_backward=tuple(map(convnet.launch_block_backward, reversed(stages))),
        stem_backward=convnet.STEM_BACKWARD,
        optimizer=convnet.SGD,
        optimizer_name="SGD",
        batch_nbytes=IMAGES_NBYTES,
    )


def shrink_model(model: SimulatedModel, low_ns: int, high_ns: int) -> SimulatedModel:
    """Return the model with kernels a twelfth as long, but within the two bounds."""
    return model.map(lambda launch: replace(launch, ns=min(max(launch.ns // 12, low_ns), high_ns)))


def deepen_model(model: SimulatedModel, times: int) -> SimulatedModel:
    """Return the model with every block `times` in a row."""
    blocks, backward = (
        tuple(chain.from_iterable((block,) * times for block in part)) for part in (model.blocks, model.blocks_backward)
    )
    return replace(model, blocks=blocks, blocks_backward=backward)


def launch_adam(model: SimulatedModel, ns: int) -> SimulatedModel:
    """Return the model with an optimizer that updates one parameter after the other, each kernel `ns` long."""
    update = tuple(Launch(op, kernel, ns) for op, kernel in ADAM)
    return replace(model, optimizer=update * PARAMETERS * len(model.blocks), optimizer_name="Adam")


def compile_model(model: SimulatedModel) -> SimulatedModel:
    """Return the model as TorchInductor compiles it: all but matrix products and attention become Triton kernels."""
    numbers: dict[str, int] = {}

    def rename(launch: Launch) -> Launch:
        if any(part in launch.kernel for part in ("gemm", "flash", "multi_tensor_apply")):
            return launch
        op = launch.op.split(": ")[-1].removeprefix("aten::").removesuffix("Backward0").lower().strip("_")
        kind = "red" if "reduce" in launch.kernel else "poi"
        number = numbers.setdefault(launch.op + launch.kernel, len(numbers))
        name = f"triton_{kind}_fused_{op}_{number}"
        return replace(launch, op=name, kernel=name)

    return model.map(rename)
