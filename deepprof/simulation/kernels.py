"""The kernels of a small GPT in bfloat16 on an A100, with their names and times in PyTorch 2."""

# ruff: noqa: E501  kernel names are as long as their templates make them
from __future__ import annotations

from msgspec import Struct


class Launch(Struct, frozen=True):
    """One kernel launch: the operator that requests it, the kernel's name and its typical time."""

    op: str
    kernel: str
    ns: int
    backward: bool = False  # autograd runs it on its own thread


def name_elementwise(functor: str, arrays: int = 3) -> str:
    """Return the name of PyTorch's vectorised element-wise kernel over `functor`."""
    array = f"std::array<char*, {arrays}ul>"
    return f"void at::native::vectorized_elementwise_kernel<4, {functor}, {array} >(int, {functor}, {array})"


def name_gemm(tile: str, layout: str, stages: str = "64x3") -> str:
    """Return the name of a cuBLAS bfloat16 tensor-core matrix product."""
    return f"ampere_bf16_s16816gemm_bf16_{tile}_ldg8_f2f_stages_{stages}_{layout}"


def name_reduce(operation: str) -> str:
    """Return the name of PyTorch's reduction kernel over `operation`."""
    reduction = f"at::native::ReduceOp<float, {operation}, unsigned int, float, 4, 4>"
    return f"void at::native::reduce_kernel<512, 1, {reduction} >({reduction})"


def name_foreach(functor: str, depth: int, arguments: str) -> str:
    """Return the name of PyTorch's kernel over a list of tensors."""
    metadata = f"at::native::(anonymous namespace)::TensorListMetadata<{depth}>"
    return f"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<{metadata}, {functor}{arguments}>({metadata}, {functor}{arguments})"


FLASH = "pytorch_flash::Flash_{}_kernel_traits<64, 128, 128, 4, {}cutlass::bfloat16_t>"
FLASH_FORWARD = FLASH.format("fwd", "false, false, ")
FLASH_BACKWARD = FLASH.format("bwd", "4, 4, false, false, ")
SUM = "at::native::func_wrapper_t<float, at::native::sum_functor<c10::BFloat16, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>"
NORM = "at::native::NormTwoOps<c10::BFloat16, float, float>"
ADD = name_elementwise("at::native::CUDAFunctor_add<c10::BFloat16>")
COPY = name_elementwise("at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}", arrays=2)
GELU = name_elementwise(
    "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda(c10::BFloat16)#1}", arrays=2
)
GELU_BACKWARD = name_elementwise(
    "at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda(c10::BFloat16, c10::BFloat16)#1}"
)
DROPOUT = "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<c10::BFloat16, float, unsigned int, 1, 4, bool>(at::cuda::detail::TensorInfo<c10::BFloat16 const, unsigned int>, at::cuda::detail::TensorInfo<c10::BFloat16, unsigned int>, at::cuda::detail::TensorInfo<bool, unsigned int>, unsigned int, float, at::PhiloxCudaState)"
DROPOUT_BACKWARD = name_elementwise(
    "at::native::masked_scale_kernel<bool, c10::BFloat16, float>(at::Tensor&, at::Tensor, at::Tensor, float)::{lambda(c10::BFloat16, bool)#1}"
)
LAYER_NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, float*, c10::BFloat16*)"
LAYER_NORM_INPUT = "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>(c10::BFloat16 const*, c10::BFloat16 const*, float const*, float const*, c10::BFloat16 const*, c10::BFloat16*, int)"
LAYER_NORM_WEIGHT = "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel_32x32<c10::BFloat16, float>(long, long, c10::BFloat16 const*, c10::BFloat16 const*, float const*, float const*, c10::BFloat16*, c10::BFloat16*)"
SORT = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::DeviceRadixSortPolicy<long, long, unsigned int>::Policy800, false, long, long, unsigned int, int, int>(int*, int*, unsigned int*, unsigned int const*, long*, long const*, long*, long const*, unsigned int, int, int)"

EMBEDDING = (
    Launch(
        "aten::embedding",
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)",
        21_000,
    ),
    Launch(
        "aten::arange",
        "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out(c10::Scalar const&, c10::Scalar const&, c10::Scalar const&, at::Tensor&)::{lambda(long)#1}>(int, at::native::arange_cuda_out(c10::Scalar const&, c10::Scalar const&, c10::Scalar const&, at::Tensor&)::{lambda(long)#1}, long*)",
        2_300,
    ),
    Launch(
        "aten::embedding",
        "void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::BFloat16, long, unsigned int, 2, 2, -2>(at::cuda::detail::TensorInfo<c10::BFloat16, unsigned int>, at::cuda::detail::TensorInfo<c10::BFloat16 const, unsigned int>, at::cuda::detail::TensorInfo<long const, unsigned int>, int, int, unsigned int, long)",
        4_800,
    ),
    Launch("aten::add", ADD, 17_000),
    Launch("aten::native_dropout", DROPOUT, 23_000),
)
BLOCK_FORWARD = (
    Launch("aten::native_layer_norm", LAYER_NORM, 19_000),
    Launch("aten::addmm", name_gemm("128x256", "tn"), 92_000),
    Launch("aten::copy_", COPY, 27_000),
    Launch(
        "aten::_flash_attention_forward",
        f"void pytorch_flash::flash_fwd_kernel<{FLASH_FORWARD}, true, true, false, false, true, true, false>(pytorch_flash::Flash_fwd_params)",
        74_000,
    ),
    Launch("aten::addmm", name_gemm("128x128", "tn", "32x5"), 38_000),
    Launch("aten::native_dropout", DROPOUT, 23_000),
    Launch("aten::add", ADD, 17_000),
    Launch("aten::native_layer_norm", LAYER_NORM, 19_000),
    Launch("aten::addmm", name_gemm("256x128", "tn"), 121_000),
    Launch("aten::gelu", GELU, 41_000),
    Launch("aten::addmm", name_gemm("128x256", "tn"), 118_000),
    Launch("aten::native_dropout", DROPOUT, 23_000),
    Launch("aten::add", ADD, 17_000),
)


def _launch_linear_backward(tile: str, ns: int) -> tuple[Launch, ...]:
    """Return the launches of one linear layer's backward pass: input, weight and bias gradients."""
    op = "autograd::engine::evaluate_function: AddmmBackward0"
    return (
        Launch(op, name_gemm(tile, "nn"), ns, backward=True),
        Launch(op, name_gemm(tile, "nt"), ns, backward=True),
        Launch(op, name_reduce(SUM), ns // 6, backward=True),
    )


def launch_backward(function: str, *kernels: tuple[str, int]) -> tuple[Launch, ...]:
    """Return the launches of one autograd function."""
    op = f"autograd::engine::evaluate_function: {function}Backward0"
    return tuple(Launch(op, name, ns, backward=True) for name, ns in kernels)


LAYER_NORM_BACKWARD = launch_backward("NativeLayerNorm", (LAYER_NORM_INPUT, 33_000), (LAYER_NORM_WEIGHT, 26_000))
BLOCK_BACKWARD = (
    *launch_backward("NativeDropout", (DROPOUT_BACKWARD, 21_000)),
    *_launch_linear_backward("256x128", 118_000),
    *launch_backward("Gelu", (GELU_BACKWARD, 58_000)),
    *_launch_linear_backward("128x256", 121_000),
    *LAYER_NORM_BACKWARD,
    *launch_backward("Add", (ADD, 17_000)),
    *launch_backward("NativeDropout", (DROPOUT_BACKWARD, 21_000)),
    *_launch_linear_backward("128x128", 38_000),
    *launch_backward(
        "ScaledDotProductFlashAttention",
        (
            f"void pytorch_flash::flash_bwd_dot_do_o_kernel<true, {FLASH_BACKWARD}>(pytorch_flash::Flash_bwd_params)",
            16_000,
        ),
        (
            f"void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<{FLASH_BACKWARD}, true, true, false, true, true, false>(pytorch_flash::Flash_bwd_params)",
            196_000,
        ),
        (
            f"void pytorch_flash::flash_bwd_convert_dq_kernel<{FLASH_BACKWARD}>(pytorch_flash::Flash_bwd_params, int)",
            14_000,
        ),
    ),
    *launch_backward(
        "Split",
        (
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 3, 128, 1>(at::native::(anonymous namespace)::OpaqueType<2u>*, at::native::(anonymous namespace)::CatArrInputTensorMetadata<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 128, 1>, at::native::(anonymous namespace)::TensorSizeStride<unsigned int, 4u>, int, unsigned int)",
            31_000,
        ),
    ),
    *_launch_linear_backward("128x256", 92_000),
    *LAYER_NORM_BACKWARD,
    *launch_backward("Add", (ADD, 17_000)),
)
HEAD = (
    Launch("aten::native_layer_norm", LAYER_NORM, 19_000),
    Launch("aten::mm", name_gemm("256x128", "tn"), 840_000),
    Launch("aten::_to_copy", COPY, 390_000),
    Launch(
        "aten::_log_softmax",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)",
        610_000,
    ),
    Launch(
        "aten::nll_loss_forward",
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*, float*, float const*, long const*, float const*, bool, long, long, long, long)",
        11_000,
    ),
)
HEAD_BACKWARD = (
    *launch_backward(
        "NllLoss",
        (
            "void at::native::(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_2d<float, long>(float*, float const*, long const*, float const*, float const*, bool, int, int, long, long)",
            9_000,
        ),
    ),
    *launch_backward(
        "LogSoftmax",
        (
            "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<4, float, float, float, at::native::(anonymous namespace)::LogSoftMaxBackwardEpilogue>(float*, float const*, float const*, int)",
            640_000,
        ),
    ),
    *launch_backward("ToCopy", (COPY, 390_000)),
    *launch_backward("Mm", (name_gemm("256x128", "nn"), 830_000), (name_gemm("256x128", "nt"), 850_000)),
    *LAYER_NORM_BACKWARD,
)
EMBEDDING_BACKWARD = launch_backward(
    "Embedding",
    (SORT, 22_000),
    (SORT, 22_000),
    ("void at::native::(anonymous namespace)::krn_partials_per_segment<long>(long*, long const*, long*, long)", 4_000),
    (
        "void at::native::(anonymous namespace)::compute_grad_weight<c10::BFloat16, long>(long const*, c10::BFloat16 const*, long*, long, long, long const*, long const*, at::AccumulateType<c10::BFloat16, true>::type*, long const*, long)",
        37_000,
    ),
    (
        "void at::native::(anonymous namespace)::sum_and_scatter<c10::BFloat16, long>(long const*, c10::BFloat16*, long, long const*, long*, at::AccumulateType<c10::BFloat16, true>::type const*, long const*, long*, long)",
        15_000,
    ),
)
CLIP = (
    Launch(
        "aten::_foreach_norm",
        name_foreach(
            "at::native::(anonymous namespace)::LpNormFunctor<c10::BFloat16, (at::native::NormType)1, float, 1>",
            1,
            ", float*, int",
        ),
        64_000,
    ),
    Launch("aten::linalg_vector_norm", name_reduce(NORM), 5_200),
    Launch(
        "aten::clamp",
        name_elementwise(
            "at::native::(anonymous namespace)::launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, c10::Scalar, at::native::detail::ClampLimits)::{lambda(float)#1}",
            arrays=2,
        ),
        2_100,
    ),
    Launch(
        "aten::_foreach_mul_",
        name_foreach(
            "at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<c10::BFloat16, 2, 2, 0>",
            2,
            ", std::multiplies<float>",
        ),
        88_000,
    ),
)
OPTIMIZER = 5 * (
    Launch(
        "aten::_fused_adamw_",
        name_foreach(
            "at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::(anonymous namespace)::ADAM_MODE)1, false>",
            4,
            ", float const*, double, double, double, double, double, bool, float*, float*",
        ),
        150_000,
    ),
)
STATISTICS = 6 * (
    Launch("aten::linalg_vector_norm", name_reduce(NORM), 31_000),
    Launch(
        "aten::histc",
        "void at::native::(anonymous namespace)::kernelHistogram1D<float, float, long, 1, 2, -1, (at::native::(anonymous namespace)::CUDAHistogramMemoryType)0>(at::cuda::detail::TensorInfo<float, long>, at::cuda::detail::TensorInfo<float, long>, at::cuda::detail::TensorInfo<float const, long>, long, float, float, long)",
        44_000,
    ),
)
AUTOTUNE = tuple(
    Launch("aten::addmm", name_gemm(tile, "tn", stages), 104_000)
    for tile in ("64x64", "128x64", "256x64", "128x128", "256x128")
    for stages in ("32x6", "64x4")
    for _ in range(2)
)
EXTRA_TERM = (
    Launch(
        "aten::mul",
        name_elementwise(
            "at::native::AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >", arrays=2
        ),
        2_200,
    ),
    Launch("aten::add", name_elementwise("at::native::CUDAFunctor_add<float>"), 2_300),
)
