"""Jobs that keep their devices busy, as an expert meets them: the kernels that real programs launch."""

from __future__ import annotations

from tests.kineto_jobs import DeviceOfJob, TimedKernel

A100 = DeviceOfJob()
H100 = DeviceOfJob("NVIDIA H100 80GB HBM3", 9, 0, 132)
B200 = DeviceOfJob("NVIDIA B200", 10, 0, 148)
V100 = DeviceOfJob("Tesla V100-SXM2-32GB", 7, 0, 80)
T4 = DeviceOfJob("Tesla T4", 7, 5, 40)
L4 = DeviceOfJob("NVIDIA L4", 8, 9, 58)
P100 = DeviceOfJob("Tesla P100-PCIE-16GB", 6, 0, 56)
RTX_4090 = DeviceOfJob("NVIDIA GeForce RTX 4090", 8, 9, 128)
RTX_3090 = DeviceOfJob("NVIDIA GeForce RTX 3090", 8, 6, 82)
GTX_1080_TI = DeviceOfJob("NVIDIA GeForce GTX 1080 Ti", 6, 1, 28)
MI250X = DeviceOfJob("AMD Instinct MI250X", 9, 0, 110)
MI300X = DeviceOfJob("AMD Instinct MI300X", 9, 4, 304)
UNNAMED = DeviceOfJob("")

ATEN = "at::native::"
VECTORIZED = f"void {ATEN}vectorized_elementwise_kernel<4, {ATEN}"
FLASH = (
    "void pytorch_flash::flash_{}_kernel<pytorch_flash::Flash_{}_kernel_traits<64, 128, 64, 4, false, false, "
    "cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<64, 128, 64, 4, cutlass::bfloat16_t> >, false, true>"
    "(pytorch_flash::Flash_fwd_params)"
)
LAYER_NORM = f"void {ATEN}(anonymous namespace)::vectorized_layer_norm_kernel<{{0}}, float>(int, float, {{0}} const*)"
LAYER_NORM_BACKWARD = (
    f"void {ATEN}(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<{{0}}, float>({{0}} const*)"
)
GELU = (
    VECTORIZED
    + "GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}, at::detail::Array<char*, 2> >(int)"
)
GELU_BACKWARD = GELU.replace("GeluCUDA", "GeluBackwardCUDA")
ADD = VECTORIZED + "CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)"
MUL = (
    f"void {ATEN}vectorized_elementwise_kernel<4, {ATEN}BinaryFunctor<float, float, float, "
    f"{ATEN}binary_internal::MulFunctor<float> >, at::detail::Array<char*, 3> >(int)"
)
DIV = MUL.replace("Mul", "Div")
RELU = (
    VECTORIZED
    + "(anonymous namespace)::launch_clamp_scalar(at::TensorIteratorBase&)::{lambda(float)#1}, at::detail::Array<char*, 2> >(int)"
)
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<{0}, {0}, float, 10, false, false>({0}*, {0} const*, int, int, int)"
SOFTMAX_BACKWARD = SOFTMAX.replace("forward", "backward")
CAST = f"void {ATEN}vectorized_elementwise_kernel<4, {ATEN}bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{{lambda(float)#1}}, at::detail::Array<char*, 2> >(int)"
NOCAST = (
    f"void {ATEN}elementwise_kernel<128, 4, {ATEN}gpu_kernel_impl_nocast<{ATEN}direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}>"
    "(at::TensorIteratorBase&)::{lambda(int)#1}>(int)"
)
OLD_COPY = NOCAST.replace("gpu_kernel_impl_nocast", "gpu_kernel_impl").replace("lambda()#3", "lambda()#2")
FUSED_ADAM = (
    f"void {ATEN}(anonymous namespace)::multi_tensor_apply_kernel<{ATEN}(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, "
    f"{ATEN}(anonymous namespace)::FusedAdamMathFunctor<float, 4, ({ATEN}ADAM_MODE)1, false> >(int)"
)
FOREACH = (
    f"void {ATEN}(anonymous namespace)::multi_tensor_apply_kernel<{ATEN}(anonymous namespace)::TensorListMetadata<{{}}>, "
    f"{ATEN}(anonymous namespace)::{{}} >(int)"
)
LOG_SOFTMAX = (
    f"void {ATEN}(anonymous namespace)::cunn_SoftMaxForward<8, {{0}}, float, {{0}}, "
    f"{ATEN}(anonymous namespace)::LogSoftMaxForwardEpilogue>({{0}}*, {{0}} const*, int)"
)
LOG_SOFTMAX_BACKWARD = LOG_SOFTMAX.replace("Forward", "Backward")
NLL = f"void {ATEN}(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)"
SUM = f"void {ATEN}reduce_kernel<512, 1, {ATEN}ReduceOp<float, {ATEN}func_wrapper_t<float, {ATEN}sum_functor<float, float, float> >, unsigned int, float, 4> >(float*)"
DROPOUT = (
    f"void {ATEN}(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(unsigned int)"
)
BERNOULLI = f"void {ATEN}(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, {ATEN}templates::cuda::uniform_and_transform<float, float, 4ul> >(int)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

BACKWARD = "autograd::engine::evaluate_function: {0}/{0}/"


def kernel(operators: str, name: str, us: float, **more: object) -> TimedKernel:
    """Return a kernel of the forward pass."""
    return TimedKernel(operators, name, us, **more)  # type: ignore[arg-type]


def backward(node: str, operator: str, name: str, us: float) -> TimedKernel:
    """Return a kernel of the backward pass."""
    return TimedKernel(BACKWARD.format(node) + operator, name, us)


def linear(name: str, us: float) -> list[TimedKernel]:
    return [kernel("aten::linear/aten::addmm", name, us)]


def linear_backward(name: str, us: float) -> list[TimedKernel]:
    return [backward("AddmmBackward0", "aten::mm", name, us), backward("AddmmBackward0", "aten::mm", name, us)]


def transformer(
    product: str,
    *,
    attention: tuple[str, str] | None = None,
    written: str = "",
    layers: int = 6,
    us: float = 400.0,
    attention_us: float = 300.0,
    softmax_us: float = 300.0,
    element: str = "c10::BFloat16",
) -> list[TimedKernel]:
    """Return forward and backward of a decoder: fused attention of these names, or written out with a product."""
    forward, back = [], []
    for _ in range(layers):
        forward += [kernel("aten::layer_norm/aten::native_layer_norm", LAYER_NORM.format(element), 30)]
        forward += linear(product, 3 * us / 2)
        if attention:
            forward += [
                kernel(
                    "aten::scaled_dot_product_attention/aten::_scaled_dot_product_flash_attention",
                    attention[0],
                    attention_us,
                )
            ]
        elif written:
            forward += write_attention(written, element, softmax_us)
        forward += linear(product, us / 2)
        forward += [
            kernel("aten::add", ADD, 25),
            kernel("aten::layer_norm/aten::native_layer_norm", LAYER_NORM.format(element), 30),
        ]
        forward += (
            linear(product, 2 * us)
            + [kernel("aten::gelu", GELU, 60)]
            + linear(product, 2 * us)
            + [kernel("aten::add", ADD, 25)]
        )
        back += linear_backward(product, 2 * us) + [backward("GeluBackward0", "aten::gelu_backward", GELU_BACKWARD, 80)]
        back += linear_backward(product, 2 * us)
        back += [
            backward(
                "NativeLayerNormBackward0", "aten::native_layer_norm_backward", LAYER_NORM_BACKWARD.format(element), 60
            )
        ]
        back += linear_backward(product, us / 2)
        if attention:
            back += [
                backward(
                    "ScaledDotProductFlashAttentionBackward0",
                    "aten::_scaled_dot_product_flash_attention_backward",
                    attention[1],
                    2.5 * attention_us,
                )
            ]
        elif written:
            back += [
                backward("BmmBackward0", "aten::bmm", written, us / 2),
                backward(
                    "SoftmaxBackward0", "aten::_softmax_backward_data", SOFTMAX_BACKWARD.format(element), softmax_us
                ),
            ]
            back += [
                backward("DivBackward0", "aten::div", DIV, softmax_us / 2),
                backward("BmmBackward0", "aten::bmm", written, us / 2),
            ]
        back += linear_backward(product, 3 * us / 2)
    return forward + back


def write_attention(product: str, element: str, softmax_us: float, product_us: float = 100.0) -> list[TimedKernel]:
    """Return attention as products with a scaled and masked softmax between them."""
    return [
        kernel("aten::matmul/aten::bmm", product, product_us),
        kernel("aten::div", DIV, softmax_us / 2),
        kernel(
            "aten::masked_fill",
            VECTORIZED
            + "(anonymous namespace)::masked_fill_kernel(at::TensorIterator&)::{lambda()#1}, at::detail::Array<char*, 3> >(int)",
            softmax_us / 2,
        ),
        kernel("aten::softmax/aten::_softmax", SOFTMAX.format(element), softmax_us),
        kernel("aten::matmul/aten::bmm", product, product_us),
    ]


def loss(element: str = "c10::BFloat16", us: float = 200.0) -> list[TimedKernel]:
    return [
        kernel("aten::cross_entropy_loss/aten::log_softmax/aten::_log_softmax", LOG_SOFTMAX.format(element), us),
        kernel("aten::cross_entropy_loss/aten::nll_loss_nd/aten::nll_loss/aten::nll_loss_forward", NLL, 10),
        backward("LogSoftmaxBackward0", "aten::_log_softmax_backward_data", LOG_SOFTMAX_BACKWARD.format(element), us),
    ]


def fused_adam(us: float = 150.0, count: int = 10) -> list[TimedKernel]:
    return [kernel("Optimizer.step#AdamW.step/aten::_fused_adamw_", FUSED_ADAM, us)] * count


def convnet(
    convolution: str,
    *,
    norm: tuple[str, str],
    linear_name: str,
    layers: int = 20,
    us: float = 300.0,
    norm_us: float = 80.0,
    relu_us: float = 50.0,
    more: tuple[TimedKernel, ...] = (),
) -> list[TimedKernel]:
    """Return forward and backward of a residual network."""
    forward, back = [], []
    operator = "aten::conv2d/aten::convolution/aten::_convolution/aten::cudnn_convolution"
    for _ in range(layers):
        forward += [*more, kernel(operator, convolution, us)]
        forward += [
            kernel("aten::batch_norm/aten::_batch_norm_impl_index/aten::cudnn_batch_norm", norm[0], norm_us),
            kernel("aten::relu_/aten::clamp_min_", RELU, relu_us),
        ]
        back += [backward("ReluBackward0", "aten::threshold_backward", RELU, relu_us)]
        back += [backward("CudnnBatchNormBackward0", "aten::cudnn_batch_norm_backward", norm[1], norm_us * 1.5)]
        back += [*more, *[backward("ConvolutionBackward0", "aten::convolution_backward", convolution, us)] * 2]
    forward += [kernel("aten::add_", ADD, relu_us)] * (layers // 3)
    return (
        forward
        + linear(linear_name, 50)
        + back
        + [
            kernel(
                "Optimizer.step#SGD.step/aten::_foreach_add_",
                FOREACH.format(2, f"BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float"),
                60,
            )
        ]
        * 4
    )
