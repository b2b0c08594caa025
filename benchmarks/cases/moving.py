"""Jobs whose device moves memory more often than it needs to, by the names of their kernels, each with its twin."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.cases.case import HEALTHY, Case
from benchmarks.cases.working import ADD, HALF, MI300, SECTION, WorkingJob, multiply, name_call, write_work
from deepprof.simulation.kernels import DROPOUT, name_elementwise, name_foreach, name_reduce

__all__ = ["MOVING_CASES", "MOVING_RULES", "cases"]

MOVING_RULES = (
    *("elementwise-chains", "normalization-bound", "repeated-casts", "unfused-optimizer"),
    *("embedding-bound", "unfused-loss", "unfused-dropout", "layout-conversions"),
)
A = "at::native::"
TENSOR = "at::TensorIteratorBase&"
SQUARE = name_elementwise(
    f"{A}(anonymous namespace)::pow_tensor_scalar_kernel_impl<float, float>({TENSOR}, float)::{{lambda(float)#1}}",
    arrays=2,
)
MEAN, SUM = (name_reduce(f"{A}{each}<float, float, float, float>") for each in ("MeanOps", "SumOps"))
ROOT = name_elementwise(f"{A}rsqrt_kernel_cuda({TENSOR})::{{lambda(float)#1}}", arrays=2)
MULTIPLY = name_elementwise(f"{A}BinaryFunctor<float, float, float, {A}binary_internal::MulFunctor<float> >")
SILU = name_elementwise(f"{A}(anonymous namespace)::silu_kernel({TENSOR})::{{lambda(c10::BFloat16)#1}}", arrays=2)
CAST = name_elementwise(f"{A}bfloat16_copy_kernel_cuda({TENSOR})::{{lambda(float)#1}}", arrays=2)
BACK = name_elementwise(f"{A}bfloat16tofloat32_copy_kernel_cuda({TENSOR})::{{lambda(c10::BFloat16)#1}}", arrays=2)
RELU = name_elementwise(
    f"{A}(anonymous namespace)::launch_clamp_scalar({TENSOR}, c10::Scalar)::{{lambda()#1}}", arrays=2
)
DRAWN = (
    f"void {A}(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, {A}uniform_and_transform>"
)
LARGER = name_elementwise(f"{A}(anonymous namespace)::CompareFunctor<float>")
FUSED = "triton_red_fused__to_copy_mean_mul_pow_rsqrt_{}"
CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_kernel_cudnn"
NCHW = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct, float const*)"
NCHW_BACKWARD = "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float, float, cudnnTensorStruct)"
NHWC = "void cudnn::batchnorm_fwtr_nhwc_semiPersist<__half2, 256, 32, 1, 2, true>(cudnnTensorStruct, __half2 const*)"
NATIVE = f"void {A}batch_norm_transform_input_kernel<c10::BFloat16, c10::BFloat16, float, true, int>(c10::BFloat16*)"
GATHERED = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)"
ADDED = (
    f"void {A}(anonymous namespace)::indexing_backward_kernel<float, 4>(long const*, long const*, float const*, float*)"
)
LOOKUP = "split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, 5ul>(float const*)"
UPDATE = "split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<float, float, float, 5ul>()"
LOG_SOFTMAX, LOG_SOFTMAX_BACKWARD = (
    f"void {A}(anonymous namespace)::cunn_SoftMax{way}<4, float, float, float, "
    f"{A}(anonymous namespace)::LogSoftMax{way}Epilogue>(float*, float const*, int)"
    for way in ("Forward", "Backward")
)
IGEMM = "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8_ws1x1_wr1x2_ta1x16x1x1_1x2x4x32_tb1x8x1x1_1x4x1x64"
TURNED = "batched_transpose_32x32_half"
TO_LIST = f"{A}(anonymous namespace)::"
ADAM = tuple(  # one step over lists: operator, kernel, µs
    (f"aten::_foreach_{op}", name_foreach(f"{TO_LIST}{functor}", depth, f", {A}{word}"), length)
    for op, functor, depth, word, length in (
        ("lerp", "TernaryOpScalarFunctor<float, 2, 2, 0>", 2, "LerpFunctor<float>", 60.0),
        ("mul", "BinaryOpScalarFunctor<float, 1, 1, 0>", 1, "MulFunctor<float>", 40.0),
        ("addcmul", "PointwiseOpScalarFunctor<float, 3, 3, 0>", 3, "MulFunctor<float>", 60.0),
        ("sqrt", "UnaryOpFunctor<float, 2, 1, 1>", 2, "Sqrt<float>", 40.0),
        ("div", "BinaryOpScalarListFunctor<float, 1, 1, 0>", 1, "DivFunctor<float>", 40.0),
        ("add", "BinaryOpScalarFunctor<float, 1, 1, 0>", 1, "AddFunctor<float>", 40.0),
        ("addcdiv", "PointwiseOpScalarListFunctor<float, 3, 3, 0>", 3, "DivFunctor<float>", 80.0),
    )
)
FUSED_ADAM = name_foreach(f"{TO_LIST}FusedAdamMathFunctor<float, 4, ({A}ADAM_MODE)0, false>", 4, ", float const*")
NORM, STEP, EMBED, LOSS = "model.py(50): rms_norm", "optim.py(8): step", "model.py(10): embed", "loss.py(3): loss"
CONVOLVE, DROP, LINEAR = "model.py(30): convolve", "model.py(40): drop", "model.py(12): cast_linear"
PRODUCT = multiply(HALF, 600.0)
RMS_NORM = (
    *(("aten::to", BACK, 60.0), ("aten::pow", SQUARE, 90.0), ("aten::mean", MEAN, 45.0), ("aten::rsqrt", ROOT, 3.0)),
    *(("aten::mul", MULTIPLY, 96.0), ("aten::_to_copy", CAST, 60.0), ("aten::silu", SILU, 66.0)),
)
BLOCK = (("aten::conv2d", CONVOLUTION, 300.0), ("aten::relu", RELU, 60.0), ("aten::add", ADD, 60.0))

# The job, the rule that must speak, and its function. None: the rules may not speak.
MOVING_CASES: dict[str, tuple[WorkingJob, str, str]] = {
    "a norm in single operators": (
        WorkingJob([PRODUCT, name_call(NORM, *RMS_NORM)]),
        "elementwise-chains",
        NORM,
    ),
    "a norm in one kernel": (
        WorkingJob([PRODUCT, name_call(NORM, ("aten::rms_norm", FUSED.format(0), 150.0))]),
        "",
        "",
    ),
    "a compiler's kernels in a row": (
        WorkingJob([PRODUCT, name_call(NORM, *((f"aten::f{i}", FUSED.format(i), 60.0) for i in range(6)))]),
        "",
        "",
    ),
    "one operator between products": (
        WorkingJob([PRODUCT, name_call(NORM, ("aten::silu", SILU, 200.0)), multiply(HALF, 300.0)]),
        "",
        "",
    ),
    "batch norm in NCHW": (
        WorkingJob([name_call(CONVOLVE, BLOCK[0], ("aten::batch_norm", NCHW, 150.0), *BLOCK[1:])]),
        "normalization-bound",
        CONVOLVE,
    ),
    "batch norm in channels last": (
        WorkingJob([name_call(CONVOLVE, BLOCK[0], ("aten::batch_norm", NHWC, 60.0), ("aten::relu", RELU, 60.0))]),
        "",
        "",
    ),
    "weights that are cast every time": (
        WorkingJob([name_call(LINEAR, ("aten::_to_copy", CAST, 300.0), ("aten::linear", HALF, 280.0))]),
        "repeated-casts",
        LINEAR,
    ),
    "weights that are cast once": (
        WorkingJob([name_call(LINEAR, ("aten::_to_copy", CAST, 12.0), ("aten::linear", HALF, 280.0))]),
        "",
        "",
    ),
    "an optimizer over lists": (WorkingJob([PRODUCT, name_call(STEP, *ADAM)]), "unfused-optimizer", STEP),
    "an optimizer in one kernel": (
        WorkingJob([PRODUCT, name_call(STEP, ("aten::_fused_adam_", FUSED_ADAM, 140.0))]),
        "",
        "",
    ),
    "rows that are added by index": (
        WorkingJob([PRODUCT, name_call(EMBED, ("aten::index_put_", ADDED, 400.0))]),
        "embedding-bound",
        EMBED,
    ),
    "tables that take most of the time": (
        WorkingJob([PRODUCT, name_call(EMBED, ("fbgemm::lookup", LOOKUP, 300.0), ("fbgemm::update", UPDATE, 500.0))]),
        "embedding-bound",
        EMBED,
    ),
    "rows of a small table": (
        WorkingJob([PRODUCT, name_call(EMBED, ("aten::embedding", GATHERED, 40.0))]),
        "",
        "",
    ),
    "a loss in several kernels": (
        WorkingJob(
            [
                PRODUCT,
                name_call(LOSS, ("aten::log_softmax", LOG_SOFTMAX, 150.0), ("aten::grad", LOG_SOFTMAX_BACKWARD, 150.0)),
            ]
        ),
        "unfused-loss",
        LOSS,
    ),
    "a loss in one kernel": (
        WorkingJob([PRODUCT, name_call(LOSS, ("aten::loss", "triton_red_fused_cross_entropy_3", 120.0))]),
        "",
        "",
    ),
    "random numbers for masks": (
        WorkingJob(
            [
                PRODUCT,
                name_call(
                    *(DROP, ("aten::rand", DRAWN, 120.0), ("aten::ge", LARGER, 80.0), ("aten::mul", MULTIPLY, 90.0))
                ),
            ]
        ),
        "unfused-dropout",
        DROP,
    ),
    "dropout in one kernel": (
        WorkingJob([PRODUCT, name_call(DROP, ("aten::native_dropout", DROPOUT, 120.0))]),
        "",
        "",
    ),
    "transposes around a convolution": (
        WorkingJob(
            [
                name_call(
                    *(CONVOLVE, ("aten::turn", TURNED, 60.0), ("aten::conv2d", IGEMM, 400.0)),
                    ("aten::turn_back", TURNED, 60.0),
                )
            ],
            MI300,
        ),
        "layout-conversions",
        CONVOLVE,
    ),
    "a convolution without transposes": (
        WorkingJob([name_call(CONVOLVE, ("aten::conv2d", IGEMM, 400.0))], MI300),
        "",
        "",
    ),
}


def cases() -> Iterator[Case]:
    """Yield a case per job."""
    for name, (job, rule, function) in MOVING_CASES.items():
        never = tuple(each for each in MOVING_RULES if each != rule)
        finds = (rule, function) if rule else None
        yield Case(SECTION, name, rule or HEALTHY, partial(write_work, job), never=never, finds=finds)
