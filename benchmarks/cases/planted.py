"""Mistakes of what kernels compute, each with a size: the kernels that show it, and those of the work done well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.simulation import convnet
from deepprof.simulation.kernels import COPY, OPTIMIZER, SORT, name_elementwise
from deepprof.simulation.models import ADAM, SimulatedModel
from deepprof.simulation.steps import Launch, Open, Step

__all__ = ["PLANTED", "KernelMistakes", "Planted", "put_on_device"]

USUAL_DEVICE = "NVIDIA A100-SXM4-80GB"  # that of the simulation
H100, GEFORCE = "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 3090"
SHORTEST_NS = 40_000  # of a planted kernel: shorter ones would be their own mistake
FEWEST_PARAMETERS = 12  # that an optimizer updates one by one
FEW_BLOCKS = 8
MULTIPROCESSORS = {USUAL_DEVICE: 108, H100: 132, GEFORCE: 82}

Place = Literal["products", "loss", "gradients", "optimizer"]
Kernel = tuple[str, str, float]  # operator, name, and the share of the time that it needs

UNALIGNED = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x4_nn_align1>(T1::Params)"
SCATTER = (
    "void at::native::indexing_backward_kernel<float, 4>(long const*, long const*, float const*, float*, long, long)"
)
BATCH_NORM = (
    "void at::native::batch_norm_collect_statistics_kernel<at::native::Var, float, float, float, int>("
    "at::GenericPackedTensorAccessor<float const, 3ul, at::RestrictPtrTraits, int>, float, float, "
    "at::GenericPackedTensorAccessor<float, 1ul, at::RestrictPtrTraits, int>, "
    "at::GenericPackedTensorAccessor<float, 1ul, at::RestrictPtrTraits, int>)"
)
BATCH_NORM_INPUT = (
    "void at::native::batch_norm_transform_input_kernel<float, float, float, true, int>("
    "at::GenericPackedTensorAccessor<float const, 3ul, at::RestrictPtrTraits, int>, "
    "at::GenericPackedTensorAccessor<float, 3ul, at::RestrictPtrTraits, int>, float)"
)
BATCH_NORM_BACKWARD = (
    "void at::native::batch_norm_backward_kernel<float, float, float, int>("
    "at::GenericPackedTensorAccessor<float const, 3ul, at::DefaultPtrTraits, int>, "
    "at::GenericPackedTensorAccessor<float const, 3ul, at::DefaultPtrTraits, int>, "
    "at::GenericPackedTensorAccessor<float, 3ul, at::DefaultPtrTraits, int>, bool, float)"
)
UNIFORM = (
    "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, "
    "at::native::templates::cuda::uniform_and_transform<float, float, at::CUDAGeneratorImpl*>(at::TensorIteratorBase&, "
    "at::CUDAGeneratorImpl*)::{lambda(curandStatePhilox4_32_10*)#2}>(long, at::PhiloxCudaState, int)"
)
GREATER = name_elementwise("at::native::(anonymous namespace)::CompareFunctor<float>", arrays=2)
TIMES = name_elementwise(
    "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"
)
SCAN = (
    "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >(float*, float const*, unsigned int, "
    "unsigned int, unsigned int, float, std::plus<float>)"
)
CONCATENATE = (
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*, "
    "at::native::(anonymous namespace)::CatArrInputTensorMetadata<float, unsigned int, 128, 1>, "
    "at::native::(anonymous namespace)::TensorSizeStride<unsigned int, 4u>, int, unsigned int)"
)
FLASH_2 = (
    "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>, "
    "false, true, false, false, true, true, false>(Flash_fwd_params)"
)
FLASH_3 = (
    "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, "
    "cute::tuple<cute::C<128> >, 128, cutlass::bfloat16_t, float, cutlass::arch::Sm90> > > >(Params)"
)
DEPTHWISE = (
    "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>("
    "at::GenericPackedTensorAccessor<float const, 4ul, at::DefaultPtrTraits, int>)"
)
CONVOLUTION = convnet.CUDNN.format("fprop", "tf32f32", convnet.TILES[0])
LOG_SOFTMAX = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, "
    "at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)"
)
LOG_SOFTMAX_BACKWARD = LOG_SOFTMAX.replace("Forward", "Backward")
FUSED_LOSS = "triton_red_fused__log_softmax__log_softmax_backward_data_nll_loss_forward_7"


@dataclass(frozen=True)
class Planted:
    """A mistake that `rule` finds: its kernels, as shares of their time, and `right` ones that take `kept` of it.

    They are at each of the places of an iteration that are called `place`. `device` is what shows the mistake, and
    `blocks` how many each of its kernels has, where they are fewer than the device needs.
    """

    rule: str
    wrong: tuple[Kernel, ...]
    right: tuple[Kernel, ...] = ()
    kept: float = 0.0
    place: Place = "products"
    device: str = USUAL_DEVICE
    blocks: int | None = None
    fewest: int = 1  # times that the kernels come at a place

    def list_kernels(self, lost_ns: float, places: int, *, right: bool) -> _Lot:
        """Return the kernels, which lose this much in all, or those that are right, for this many places or fewer."""
        kernels = self.right if right else self.wrong
        whole = (self.kept if right else 1.0) * lost_ns / (1 - self.kept)
        most = max(1, round(whole / (SHORTEST_NS * max(1, len(kernels)))))
        used, times = (min(places, most), 1) if self.place == "products" else (1, max(self.fewest, most))
        parts = ((op, name, max(1, round(share * whole / (used * times)))) for op, name, share in kernels)
        return _Lot(tuple(Launch(op, name, ns) for op, name, ns in parts), times, used)


PLANTED: Mapping[str, Planted] = MappingProxyType(
    {
        "casts": Planted("repeated-casts", (("aten::_to_copy", COPY, 1.0),)),
        "lists": Planted(
            "unfused-optimizer",
            tuple((op, name, 1 / len(ADAM)) for op, name in ADAM),
            ((OPTIMIZER[0].op, OPTIMIZER[0].kernel, 1.0),),
            kept=7 / 18,
            place="optimizer",
            fewest=FEWEST_PARAMETERS,
        ),
        "rows": Planted(
            "padding-waste",
            (("aten::mm", UNALIGNED, 1.0),),
            (("aten::mm", UNALIGNED.replace("align1", "align8"), 1.0),),
            kept=1 / 3,
        ),
        "vocabulary": Planted(
            "embedding-bound",
            (("aten::sort", SORT, 0.1), ("aten::_index_put_impl_", SCATTER, 0.9)),
            place="gradients",
        ),
        "norms": Planted(
            "normalization-bound",
            (
                ("aten::native_batch_norm", BATCH_NORM, 0.3),
                ("aten::native_batch_norm", BATCH_NORM_INPUT, 0.2),
                ("aten::native_batch_norm_backward", BATCH_NORM_BACKWARD, 0.5),
            ),
            (("aten::cudnn_batch_norm", convnet.NORM, 1.0),),
            kept=0.5,
        ),
        "drawn": Planted(
            "unfused-dropout",
            (("aten::rand", UNIFORM, 0.4), ("aten::gt", GREATER, 0.3), ("aten::mul", TIMES, 0.3)),
        ),
        "sides": Planted(
            "small-grids",
            (("aten::cumsum", SCAN, 1.0),),
            (("aten::cumsum", SCAN, 1.0),),
            kept=FEW_BLOCKS / MULTIPROCESSORS[USUAL_DEVICE],
            blocks=FEW_BLOCKS,
        ),
        "columns": Planted("layout-conversions", (("aten::cat", CONCATENATE, 1.0),)),
        "doubles": Planted(
            "double-precision",
            (("aten::mm", "volta_dgemm_64x64_nn", 1.0),),
            (("aten::mm", "ampere_sgemm_64x64_nn", 1.0),),
            kept=1 / 64,
            device=GEFORCE,
        ),
        "older": Planted(
            "older-attention",
            (("flash_attn::_flash_attn_forward", FLASH_2, 1.0),),
            (("flash_attn_3::fwd", FLASH_3, 1.0),),
            kept=0.5,
            device=H100,
        ),
        "few": Planted(
            "fallback-kernels",
            (("aten::_conv_depthwise2d", DEPTHWISE, 1.0),),
            (("aten::cudnn_convolution", CONVOLUTION, 1.0),),
            kept=0.5,
        ),
        "logits": Planted(
            "unfused-loss",
            (
                ("aten::_log_softmax", LOG_SOFTMAX, 0.5),
                ("aten::_log_softmax_backward_data", LOG_SOFTMAX_BACKWARD, 0.5),
            ),
            (("aten::_log_softmax", FUSED_LOSS, 1.0),),
            kept=2 / 5,
            place="loss",
        ),
    }
)
POINTWISE = ("elementwise_kernel", "reduce_kernel", "dropout", "CatArray")  # in names of what can be in a chain


def is_product(kernel: str) -> bool:
    """Return whether a kernel is a product or a convolution."""
    return "gemm" in kernel


@dataclass(frozen=True, kw_only=True)
class KernelMistakes:
    """What each mistake of what kernels compute costs, as a share of the device's computing time; 0 is none.

    Those of `put_right` have the kernels of the same work done well. `casts`: between types, in front of products.
    `lists`: an optimizer parameter by parameter. `rows`: products that read their elements singly. `vocabulary`: rows
    of a table, added to by index. `norms`: batch norm in kernels of the framework's own. `drawn`: random numbers and
    masks made of them. `sides`: a scan of few blocks. `columns`: copies that only reorder elements. `doubles`:
    products in float64 on a device that is slow at it. `older`: attention kernels of the generation before the
    device's. `few`: a fallback for convolutions. `logits`: a loss that moves the logits several times.
    """

    casts: float = 0.0
    lists: float = 0.0
    rows: float = 0.0
    vocabulary: float = 0.0
    norms: float = 0.0
    drawn: float = 0.0
    sides: float = 0.0
    columns: float = 0.0
    doubles: float = 0.0
    older: float = 0.0
    few: float = 0.0
    logits: float = 0.0
    put_right: frozenset[str] = frozenset()

    @property
    def planted(self) -> dict[str, float]:
        """The sizes of the mistakes of kernels that there are."""
        return {name: size for name in PLANTED if (size := getattr(self, name))}

    @property
    def device(self) -> str:
        """The name of the device, which some of the mistakes need."""
        devices = (PLANTED[name].device for name in self.planted)
        return next((device for device in devices if device != USUAL_DEVICE), USUAL_DEVICE)

    @property
    def blocks(self) -> dict[str, int]:
        """The blocks of kernels that have too few, by their names."""
        wrong = (PLANTED[name] for name in self.planted if name not in self.put_right)
        return {kernel: each.blocks for each in wrong if each.blocks is not None for _, kernel, _ in each.wrong}

    def plant(self, steps: Iterable[Step], model: SimulatedModel) -> Iterator[Step]:
        """Yield the steps of an iteration of the model, with the kernels of the mistakes at their places."""
        groups = self.group(model)
        counts = dict.fromkeys(groups, 0)
        for here, step in find_places(steps):
            if here in groups:
                yield from groups[here].at(counts[here], backward=isinstance(step, Launch) and step.backward)
                counts[here] += 1
            yield step

    def group(self, model: SimulatedModel) -> dict[Place | None, _Group]:
        """Return what is planted at every kind of place; mistakes take places in front of products by turns."""
        names: dict[Place | None, list[str]] = {}
        for name in self.planted:
            names.setdefault(PLANTED[name].place, []).append(name)
        return {place: self.share_out(called, model) for place, called in names.items()}

    def share_out(self, names: list[str], model: SimulatedModel) -> _Group:
        """Return what the mistakes of these names plant at the one kind of place that they have."""
        many = PLANTED[names[0]].place == "products"
        places = max(1, count_products(model) // len(names)) if many else 1
        sizes = ((PLANTED[name], self.planted[name] * model.device_ns, name in self.put_right) for name in names)
        lots = tuple(each.list_kernels(lost_ns, places, right=right) for each, lost_ns, right in sizes)
        return _Group(lots, places if many else None)


@dataclass(frozen=True)
class _Lot:
    """Kernels of a mistake, `times` in a row at each of the places that it uses."""

    launches: tuple[Launch, ...]
    times: int
    used: int


@dataclass(frozen=True)
class _Group:
    """What is planted at one kind of place: all of it at each, or in turns at this many places for every mistake."""

    lots: tuple[_Lot, ...]
    places: int | None

    def at(self, number: int, *, backward: bool) -> Iterator[Launch]:
        """Yield what runs at place `number`."""
        turn, lot = divmod(number, len(self.lots))
        for each in self.lots if self.places is None else self.lots[lot : lot + 1]:
            if self.places is None or _is_due(turn, each.used, self.places):
                yield from (replace(launch, backward=backward) for launch in each.launches * each.times)


def _is_due(number: int, used: int, places: int) -> bool:
    """Return whether place `number` is one of `used` that are spread evenly over this many."""
    return number < places and (number + 1) * used // places > number * used // places


def count_products(model: SimulatedModel) -> int:
    """Return how many places in front of products the model has."""
    return max(1, sum(place == "products" for place, _ in find_places(model.launches)))


def find_places(steps: Iterable[Step]) -> Iterator[tuple[Place | None, Step]]:
    """Yield each step with the place before it that it is the end of.

    Places in front of products are behind kernels that no compiler joins to others, so that no chain becomes longer.
    """
    before: Step | None = None
    forward = False  # whether the forward pass runs
    for step in steps:
        yield _name_place(before, step, forward=forward), step
        if isinstance(step, Launch):
            forward = not step.backward
        before = step


def _name_place(before: Step | None, step: Step, *, forward: bool) -> Place | None:
    """Return the place between two steps."""
    if isinstance(step, Open) and step.name.startswith("Optimizer.step"):
        return "gradients"
    if isinstance(before, Open) and before.name.startswith("Optimizer.step"):
        return "optimizer"
    if not isinstance(step, Launch):
        return None
    if step.backward and forward:
        return "loss"
    quiet = isinstance(before, Launch) and not any(part in before.kernel for part in POINTWISE)
    return "products" if quiet and is_product(step.kernel) else None


def put_on_device(trace: Trace, mistakes: KernelMistakes) -> Trace:
    """Return the trace of the device that shows these mistakes, with the blocks that their kernels have."""
    shapes, names = trace.launch_shapes, trace.names.gather(trace.device_events["name_id"])
    kernels = names.gather(shapes["event"])
    few = kernels.replace_strict(mistakes.blocks, default=None, return_dtype=pl.UInt64)
    placed = replace(trace, launch_shapes=shapes.with_columns(grid=pl.coalesce(few, "grid")))
    if mistakes.device == USUAL_DEVICE:
        return placed
    device = {
        "name": pl.lit(mistakes.device),
        "multiprocessors": pl.lit(MULTIPROCESSORS[mistakes.device]).cast(trace.devices.schema["multiprocessors"]),
        "properties": pl.lit(None, pl.String),  # they are of the usual device
    }
    return replace(placed, devices=trace.devices.with_columns(**device))
