"""Decode loops of a language model: one iteration per token, and no optimizer."""

# ruff: noqa: E501  kernel names are as long as their templates make them
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from deepprof.simulation.kernels import ADD, Launch, name_elementwise, name_gemm, name_reduce
from deepprof.simulation.plan import RankPlan, SimulationRequest
from deepprof.simulation.steps import MAIN_STREAM, Close, Copy, GraphReplay, Open, Pause, Step, Wait

if TYPE_CHECKING:
    from random import Random


GRAPH = 4  # the driver's id of the captured graph
SPLIT = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, cutlass::bfloat16_t>, false, false, false, true, true, true>(flash::Flash_fwd_params)"
COMBINE = SPLIT.replace("splitkv_kernel", "splitkv_combine_kernel")
ROTATE = "void rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*, c10::BFloat16*, c10::BFloat16 const*, int, long, long, int, int, int)"
STORE = "void reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(__nv_bfloat16 const*, __nv_bfloat16 const*, __nv_bfloat16*, __nv_bfloat16*, long const*, long, long, long, int, int, int)"
NORM = "void fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16*, c10::BFloat16 const*, float, int, int)"
SILU = "void act_and_mul_kernel<c10::BFloat16, &silu_kernel<c10::BFloat16>, true>(c10::BFloat16*, c10::BFloat16 const*, int)"
GEMV = "void gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, false, true, false, false, 7, false, cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<__nv_bfloat16 const>, cublasGemvTensorStridedBatched<__nv_bfloat16>, float> >()"
BLOCK = (
    ("aten::rms_norm", NORM, 5_000),
    ("aten::mm", name_gemm("64x64", "tn", "64x6"), 21_000),
    ("_C::rotary_embedding", ROTATE, 4_000),
    ("_C_cache_ops::reshape_and_cache_flash", STORE, 4_000),
    ("flash_attn::mha_fwd_kvcache", SPLIT, 26_000),
    ("flash_attn::mha_fwd_kvcache", COMBINE, 5_000),
    ("aten::mm", name_gemm("64x64", "tn", "64x6"), 17_000),
    ("aten::rms_norm", NORM, 5_000),
    ("aten::mm", name_gemm("128x64", "tn", "64x4"), 58_000),
    ("_C::silu_and_mul", SILU, 6_000),
    ("aten::mm", name_gemm("64x128", "tn", "64x4"), 34_000),
)
EMBEDDING = (
    "aten::embedding",
    "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)",
    5_000,
)
HEAD = (
    ("aten::rms_norm", NORM, 5_000),
    ("aten::mm", name_gemm("128x128", "tn", "64x4"), 190_000),
    ("aten::div", name_elementwise("at::native::BUnaryFunctor<float, float, float>", arrays=2), 9_000),
    ("aten::_softmax", "void at::native::(anonymous namespace)::cunn_SoftMaxForwardSmem<4, float, float, float>(float*, float const*, long)", 24_000),
    ("aten::exponential_", "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>(long, at::PhiloxCudaState)", 11_000),
    ("aten::argmax", name_reduce("at::native::ArgMaxOps<float>"), 16_000),
    ("aten::add", ADD, 3_000),
)  # fmt: skip


class _TokenDecoder(Struct, frozen=True):
    """The launches that make one token: the layers, which a graph may hold, and the sampling after them."""

    layers: tuple[Launch, ...]
    sampling: tuple[Launch, ...]


def _draw_decoder(random: Random, scale: float, *, single: bool) -> _TokenDecoder:
    """Return a model of 6 to 16 layers; for a `single` sequence, matrix products become matrix-vector products."""
    kernels = tuple((op, GEMV if single and op == "aten::mm" else kernel, ns) for op, kernel, ns in BLOCK)
    rows = EMBEDDING, *kernels * random.randint(6, 16)

    def make(rows: tuple[tuple[str, str, int], ...]) -> tuple[Launch, ...]:
        return tuple(Launch(op, kernel, max(1_600, round(ns * scale))) for op, kernel, ns in rows)

    return _TokenDecoder(make(rows), make(HEAD))


def plan_inference(request: SimulationRequest) -> RankPlan:
    """Plan a job of many sequences, with the layers replayed as a graph: the GPU works nearly all the time."""
    random = request.random
    decoder = _draw_decoder(random, random.uniform(0.9, 1.8), single=False)
    marks = random.random() < 0.5
    schedule = Pause(random.randint(15_000, 45_000))

    def build(_: int) -> Iterator[Step]:
        yield from (Open("execute_model"),) * marks
        yield Copy("HtoD", 4_096, pinned=True, stream=MAIN_STREAM)
        yield GraphReplay(decoder.layers, GRAPH)
        yield from decoder.sampling
        yield from (Copy("DtoH", 512, pinned=True), Wait())
        yield from (Close(),) * marks
        yield schedule

    return RankPlan(build=build, warmup=0)


def plan_inference_launch_bound(request: SimulationRequest) -> RankPlan:
    """Plan a job of one sequence in eager mode: the host launches small kernels one by one, and the GPU waits for each."""
    random = request.random
    decoder = _draw_decoder(random, random.uniform(0.12, 0.2), single=True)
    pace = random.uniform(1.3, 2.4) * request.strength**0.5
    look = Pause(round(random.randint(60_000, 120_000) * pace))  # detokenise, check for the end, build the next input

    def build(_: int) -> Iterator[Step]:
        yield from (*decoder.layers, *decoder.sampling)
        yield from (Copy("DtoH", 8, pinned=True), Wait(), look)

    return RankPlan(build=build, warmup=0, pace=pace)
