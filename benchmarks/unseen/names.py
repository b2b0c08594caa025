"""Names of kernels and operators as frameworks write them."""

# ruff: noqa: E501  kernel names are as long as their templates make them
from __future__ import annotations

from random import Random
from typing import NamedTuple

__all__ = ["FLAVOURS", "Kernel", "draw_kernels", "is_eager"]

FLAVOURS = ("pytorch", "pytorch", "compiled", "xla", "tensorflow", "native", "amd")
EAGER = ("pytorch", "amd", "tensorflow")
HEAVY = ("gemm", "grad", "fprop", "flash", "Cijk", "nvjet", "dot", "conv2d")
LIGHT, TRIES = 0.06, 100


class Kernel(NamedTuple):
    """A kernel of a model: the operator that launches it, its name and its time."""

    op: str
    name: str
    ns: int


ELEMENT = "void at::native::vectorized_elementwise_kernel<4, {functor}, std::array<char*, {arrays}ul> >(int, {functor}, std::array<char*, {arrays}ul>)"
FUNCTORS = (
    ("aten::add", "at::native::CUDAFunctor_add<c10::BFloat16>"),
    ("aten::mul", "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"),
    ("aten::gelu", "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}"),
    ("aten::relu", "at::native::(anonymous namespace)::launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, c10::Scalar)::{lambda()#1}"),
    ("aten::copy_", "at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}"),
    ("aten::silu", "at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda()#1}"),
)  # fmt: skip
TORCH_FORWARD = (
    ("aten::addmm", "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn"),
    ("aten::mm", "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn"),
    ("aten::native_layer_norm", "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, float*, c10::BFloat16*)"),
    ("flash_attn::_flash_attn_forward", "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t, Flash_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t> >, false, true, false, false, true, true, false, false>(flash::Flash_fwd_params)"),
    ("aten::cudnn_convolution", "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn"),
    ("aten::cudnn_batch_norm", "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct, float const*, cudnnTensorStruct, float*, float const*, float const*, float, float, float*, float*, float*, float*, float, float)"),
    ("aten::max_pool2d_with_indices", "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, int>(int, float const*, int, int, int, int, int, int, int, int, int, int, int, int, int, float*, long*)"),
    ("aten::embedding", "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)"),
    ("aten::cat", "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 3, 128, 1>()"),
    ("aten::sum", "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float> >, unsigned int, float, 4> >()"),
)  # fmt: skip
TORCH_BACKWARD = (
    ("aten::mm", "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_nn"),
    ("aten::mm", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x4_nt"),
    ("aten::native_layer_norm_backward", "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel_32x32<c10::BFloat16, float>(long, long, c10::BFloat16 const*, c10::BFloat16 const*, float const*, float const*, c10::BFloat16*, c10::BFloat16*)"),
    ("flash_attn::_flash_attn_backward", "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8, 4, 4, 4, false, false, cutlass::bfloat16_t>, false, true, false, false, true, true, false>(flash::Flash_bwd_params)"),
    ("aten::convolution_backward", "sm80_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn"),
    ("aten::convolution_backward", "sm80_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64x32_stage5_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn"),
    ("aten::threshold_backward", "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::threshold_kernel_impl<float>(at::TensorIteratorBase&, float, float)::{lambda(float, float)#1}, std::array<char*, 3ul> >()"),
    ("aten::gelu_backward", "void at::native::vectorized_elementwise_kernel<4, at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}, std::array<char*, 3ul> >()"),
    ("aten::embedding_dense_backward", "void at::native::(anonymous namespace)::compute_grad_weight<c10::BFloat16, long>(long const*, c10::BFloat16*, long*, long, long, long const*, long const*)"),
    ("aten::sum", "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float> >, unsigned int, float, 4> >()"),
)  # fmt: skip
TORCH_UPDATE = (
    ("aten::_foreach_add_", "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>()"),
    ("aten::_fused_adamw_", "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>, float const*, double>()"),
    ("aten::_foreach_mul_", "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<1>, at::native::(anonymous namespace)::BinaryOpScalarFunctor<float, 1, 1, 0>, std::multiplies<float>, float>()"),
)  # fmt: skip
AMD_PRODUCTS = (
    "Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT{m}x{n}x64_MI16x16x1_SN_LDSB0_AFC1_AFEM1_AFEM1_ASEM1_CLR0_CADS0",
    "Cijk_Ailk_Bjlk_BBS_BH_UserArgs_MT{m}x{n}x32_MI32x32x1_SN_LDSB1_AFC0_AFEM1_AFEM1_ASEM1_CLR1_CADS0",
)
XLA_FORWARD = ("loop_{op}_fusion_{n}", "input_{op}_reduce_fusion_{n}", "jvp_{layer}__{op}_{n}", "gemm_fusion_dot_{n}_0", "loop_convert_fusion_{n}", "wrapped_{op}_{n}")  # fmt: skip
XLA_BACKWARD = ("transpose_jvp_{layer}___{op}_{n}", "loop_{op}_fusion_{n}", "input_{op}_reduce_fusion_{n}", "gemm_fusion_dot_general_{n}_0")  # fmt: skip
XLA_UPDATE = ("loop_multiply_add_fusion_{n}", "fusion.{n}", "loop_select_fusion_{n}")
XLA_OPS = ("add", "multiply", "broadcast", "transpose", "dot_general", "convert", "select", "exponential", "reduce_sum")
LAYERS = ("Dense_0", "Dense_1", "Conv_0", "LayerNorm_0", "Attention", "Encoder", "Mlp")
TENSORFLOW = {
    "forward": ("void tensorflow::functor::BiasNCHWKernel<Eigen::half>(int, float const*, float const*, float*, int, int)", "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn", "void tensorflow::functor::ShuffleInTensor3Simple<unsigned int, 2, 1, 0, false>(int, unsigned int const*, tensorflow::functor::Dimension<3>, unsigned int*)", "{up}_GPU_DT_FLOAT_DT_FLOAT_kernel", "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize256x64x32_stage4_warpsize4x1x1_g1_tensor16x8x16_kernel_cudnn"),
    "backward": ("void tensorflow::BiasGradNCHW_SharedAtomics<float>(float const*, float*, int, int, int, int)", "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_nt", "{up}Grad_GPU_DT_FLOAT_DT_FLOAT_kernel", "void tensorflow::functor::BlockReduceKernel<float*, float*, 256, tensorflow::functor::Sum<float> >()", "sm80_xmma_wgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn"),
    "update": ("void tensorflow::functor::ApplyAdamKernel<float>(int, float*, float*, float*, float const*, float const*, float const*, float const*, float const*, float const*, float const*, bool)", "AssignAddVariableOp_GPU_DT_INT64_kernel"),
}  # fmt: skip
NATIVE = ("void {op}_kernel<double, 256>(double*, double const*, double const*, int)", "{op}_step(float*, float*, int, int, int)", "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__reduce::ReduceAgent<{op}*>, int>()", "void csrMv_kernel<double, double, double, 128, 1, {n}>(cusparseCsrMvParams<double>)", "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>, cublasGemvTensorStridedBatched<float> > >()")  # fmt: skip
NATIVE_OPS = ("stencil", "advect", "project", "residual", "jacobi", "gather_cells", "pack_halo", "apply_boundary", "integrate", "bounding_box", "force", "sort_bodies")  # fmt: skip
COMPILED = ("triton_poi_fused_{ops}_{n}", "triton_red_fused_{ops}_{n}", "triton_per_fused_{ops}_{n}", "ampere_bf16_s16816gemm_bf16_128x{m}_ldg8_f2f_stages_64x3_nn")  # fmt: skip
COMPILED_OPS = (
    "add_mul",
    "native_layer_norm",
    "gelu_view",
    "clone_transpose",
    "cat_mul_neg",
    "silu_mul",
    "sum_threshold",
)


def is_eager(flavour: str) -> bool:
    """Return whether the framework launches kernel by kernel from an interpreter."""
    return flavour in EAGER


def draw_kernels(random: Random, flavour: str, phase: str, count: int, mean_ns: float) -> list[Kernel]:
    """Return kernels of a phase, about `mean_ns` long; products and convolutions use most of the time, as they do."""
    named = [draw_name(random, flavour, phase) for _ in range(count)]
    if phase != "update":
        named[::3] = [draw_heavy(random, flavour, phase) for _ in named[::3]]
    sizes = [random.lognormvariate(0, 0.6) * weigh(name, flavour) for _, name in named]
    scale = mean_ns * count / sum(sizes) if sizes else 0.0
    return [Kernel(op, name, max(1_400, round(size * scale))) for (op, name), size in zip(named, sizes, strict=True)]


def weigh(name: str, flavour: str) -> float:
    """Return how long a kernel needs next to others: a healthy model computes products and little else."""
    return 1.0 if flavour == "native" or any(word in name for word in HEAVY) else LIGHT


def draw_heavy(random: Random, flavour: str, phase: str) -> tuple[str, str]:
    """Return an operator and a kernel that do much."""
    for _ in range(TRIES):
        op, name = draw_name(random, flavour, phase)
        if weigh(name, flavour) > LIGHT:
            break
    return op, name


def draw_name(random: Random, flavour: str, phase: str) -> tuple[str, str]:
    """Return an operator and a kernel."""
    match flavour:
        case "pytorch":
            return draw_torch(random, phase)
        case "amd":
            op, name = draw_torch(random, phase)
            return (op, draw_product(random)) if "gemm" in name or "volution" in op else (op, name)
        case "compiled":
            return "", fill(random, random.choice(COMPILED))
        case "xla":
            forms = {"forward": XLA_FORWARD, "backward": XLA_BACKWARD, "update": XLA_UPDATE}
            return "", fill(random, random.choice(forms[phase]))
        case "tensorflow":
            name = fill(random, random.choice(TENSORFLOW[phase]))
            return random.choice(("MatMul", "Conv2D", "BiasAdd", "Mul", "AddV2")) + "Grad" * (phase == "backward"), name
    return "", fill(random, random.choice(NATIVE))


def draw_torch(random: Random, phase: str) -> tuple[str, str]:
    """Return an operator and a kernel of PyTorch."""
    if phase == "update" and random.random() < 0.8:
        return TORCH_UPDATE[1]
    if random.random() < 0.03:
        return "aten::zero_", "Memset (Device)"
    if random.random() < 0.4 and phase != "update":
        op, functor = random.choice(FUNCTORS)
        return op, ELEMENT.replace("{functor}", functor).replace("{arrays}", str(random.randint(2, 3)))
    return random.choice({"forward": TORCH_FORWARD, "backward": TORCH_BACKWARD, "update": TORCH_UPDATE}[phase])


def draw_product(random: Random) -> str:
    """Return a matrix product of AMD's library."""
    return fill(random, random.choice(AMD_PRODUCTS))


def fill(random: Random, form: str) -> str:
    """Return a name of that form."""
    return form.format(
        op=random.choice(NATIVE_OPS if "_kernel" in form or "_step" in form else XLA_OPS),
        ops=random.choice(COMPILED_OPS),
        up=random.choice(("Relu", "AddV2", "Mul", "Tanh", "Sub")),
        layer=random.choice(LAYERS),
        n=random.randint(0, 99),
        m=random.choice((64, 128, 192, 256)),
    )
