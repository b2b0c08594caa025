"""The kernels of a convolutional network in channels-last layout on an A100, as PyTorch and cuDNN 8 name them."""

# ruff: noqa: E501  kernel names are as long as their templates make them
from __future__ import annotations

from deepprof.simulation.kernels import Launch, launch_backward, name_elementwise, name_foreach, name_gemm, name_reduce

TILES = ("64x64x16_stage4", "128x64x16_stage4", "128x128x16_stage4", "256x64x16_stage3")  # a stage's convolutions
CUDNN = "sm80_xmma_{}_implicit_gemm_{}_tf32f32_f32_nhwckrsc_nhwc_tilesize{}_warpsize2x2x1_g1_tensor16x8x8_kernel_cudnn"
NORM = "void cudnn::batchnorm_fwtr_nhwc_semiPersist<float, float, 512, 32, 1, 2, true>(cudnnTensorStruct, float const*, cudnnTensorStruct, float*, float const*, float const*, float, float, float*, float*, float*, float*)"
NORM_BACKWARD = "void cudnn::batchnorm_bwtr_nhwc_semiPersist<float, float, 512, 32, 1, 2, true>(cudnnTensorStruct, float const*, cudnnTensorStruct, float const*, cudnnTensorStruct, float*, float const*, float*, float*, float const*, float const*)"
RELU = name_elementwise(
    "at::native::(anonymous namespace)::launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar)::{lambda(float)#1}",
    arrays=2,
)
RELU_BACKWARD = name_elementwise("at::native::threshold_kernel_impl<float>(at::TensorIteratorBase&)")
ADD = name_elementwise("at::native::CUDAFunctor_add<float>")
POOL = "void at::native::(anonymous namespace)::max_pool_forward_nhwc<float>(float const*, int, long, long, long)"
POOL_BACKWARD = POOL.replace("forward", "backward")
MEAN = name_reduce("at::native::MeanOps<float, float, float, float>")


def _name_convolution(direction: str, stage: int, layer: int) -> str:
    """Return the name of cuDNN's kernel for a layer of a stage; `direction` is fprop, dgrad or wgrad."""
    types = "tf32f32" if direction != "wgrad" else "indexed_tf32f32"
    return CUDNN.format(direction, types, TILES[(stage + layer) % len(TILES)])


def launch_block(stage: int) -> tuple[Launch, ...]:
    """Return the forward launches of a bottleneck block of `stage`, 0 to 3."""
    steps = []
    for layer, ns in enumerate((38_000, 74_000, 41_000)):
        steps += [Launch("aten::cudnn_convolution", _name_convolution("fprop", stage, layer), ns)]
        steps += [Launch("aten::cudnn_batch_norm", NORM, 46_000 - 6_000 * stage)]
        steps += [Launch("aten::clamp_min_", RELU, 24_000)] if layer < 2 else []
    return (*steps, Launch("aten::add_", ADD, 31_000), Launch("aten::clamp_min_", RELU, 26_000))


def launch_block_backward(stage: int) -> tuple[Launch, ...]:
    """Return the backward launches of a bottleneck block of `stage`."""
    steps = list(launch_backward("Relu", (RELU_BACKWARD, 33_000)))
    for layer, ns in ((2, 44_000), (1, 81_000), (0, 43_000)):
        steps += launch_backward("CudnnBatchNorm", (NORM_BACKWARD, 58_000 - 7_000 * stage))
        names = _name_convolution("dgrad", stage, layer), _name_convolution("wgrad", stage, layer)
        steps += launch_backward("Convolution", (names[0], ns), (names[1], ns))
        steps += launch_backward("Relu", (RELU_BACKWARD, 29_000)) if layer else ()
    return (*steps, *launch_backward("Add", (ADD, 30_000)))


STEM = (
    Launch("aten::cudnn_convolution", _name_convolution("fprop", 0, 3), 160_000),
    Launch("aten::cudnn_batch_norm", NORM, 92_000),
    Launch("aten::clamp_min_", RELU, 61_000),
    Launch("aten::max_pool2d_with_indices", POOL, 70_000),
)
STEM_BACKWARD = (
    *launch_backward("MaxPool2DWithIndices", (POOL_BACKWARD, 140_000)),
    *launch_backward("Relu", (RELU_BACKWARD, 74_000)),
    *launch_backward("CudnnBatchNorm", (NORM_BACKWARD, 121_000)),
    *launch_backward("Convolution", (_name_convolution("wgrad", 0, 3), 190_000)),
)
HEAD = (
    Launch("aten::mean", MEAN, 12_000),
    Launch("aten::addmm", name_gemm("64x64", "tn"), 14_000),
    Launch(
        "aten::_log_softmax",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*, float const*, int, int, int)",
        6_000,
    ),
    Launch(
        "aten::nll_loss_forward",
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*, float*, float const*, long const*, float const*, bool, long, long, long, long)",
        4_000,
    ),
)
HEAD_BACKWARD = (
    *launch_backward(
        "LogSoftmax",
        (
            "void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, true, false>(float*, float const*, float const*, int, int, int)",
            5_000,
        ),
    ),
    *launch_backward("Addmm", (name_gemm("64x64", "nn"), 13_000), (name_gemm("64x64", "nt"), 13_000)),
    *launch_backward("Mean", (name_elementwise("at::native::BUnaryFunctor<float, float, float>", arrays=2), 15_000)),
)
SGD = tuple(
    Launch("aten::_foreach_add_", name_foreach(f"at::native::(anonymous namespace)::{functor}", depth, arguments), ns)
    for functor, depth, arguments, ns in (
        ("BinaryOpListAlphaFunctor<float, 2, 2, 0>", 2, ", std::plus<float>, float", 95_000),
        ("BinaryOpScalarFunctor<float, 1, 1, 0>", 1, ", std::multiplies<float>, float", 61_000),
        ("BinaryOpListAlphaFunctor<float, 2, 2, 0>", 2, ", std::plus<float>, float", 95_000),
        ("BinaryOpListAlphaFunctor<float, 2, 2, 0>", 2, ", std::plus<float>, float", 95_000),
    )
)
