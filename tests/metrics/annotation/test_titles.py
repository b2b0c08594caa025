"""Titles: the examples of Hotline's Fig. 14, their variants, and names of real recordings."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.importers import read
from deepprof.metrics.annotation.titles import LONGEST, shorten_host, shorten_kernels

HOST = {
    # Fig. 14
    "torch/utils/data/dataloader.py(1173): _get_data": "_get_data dataloader.py",
    "typing.py(306): inner": "inner typing.py",
    "<built-in method acquire of multiprocessing.SemLock object at 0x7f1c2a3b>": "acquire SemLock",
    "<built-in function print>": "print",
    "<string>(1): <lambda>": "lambda string",
    "torch/nn/parallel/comm.py(188): <listcomp>": "listcomp comm.py",
    # functions of Python
    r"C:\Users\A B\train (2).py(12): step": "step train (2).py",
    "/home/a user/my code/train.py(7): main": "main train.py",
    "train.py(3): fit.<locals>.inner": "fit.inner train.py",
    "train.py(3): fit.<locals>.<lambda>": "fit.lambda train.py",
    "train.py(62): <module>": "module train.py",
    "a/b(3).py(4): <listcomp>": "listcomp b(3).py",
    "train.py(3): ": "train.py",
    "code/(3): f": "f code",
    "/(3): f": "f",
    "<frozen importlib._bootstrap>(1053): _handle_fromlist": "_handle_fromlist importlib._bootstrap",
    "<eval_with_key>.8(4): forward": "forward eval_with_key.8",
    "<__array_function__ internals>(2): dot": "dot __array_function__ internals",
    "модель.py(1): шаг": "шаг модель.py",
    # of C
    "<built-in method conv2d of type object at 0x786ae8ae4940>": "conv2d",
    "<built-in method sleep of module object at 0x1>": "sleep",
    "<built-in method run_backward of torch._C._EngineBase object at 0xAB>": "run_backward _EngineBase",
    "<built-in method add_ of Tensor object>": "add_ Tensor",
    "<built-in method  of PyCapsule object at 0x7f0e7ab4a550>": "PyCapsule",
    "<method 'append' of 'list' objects>": "append list",
    "<slot wrapper '__init__' of 'object' objects>": "__init__ object",
    "<forward op>": "<forward op>",
    # of JAX
    "$train.py:12 step": "step train.py",
    "$my file.py:12 step": "step my file.py",
    "$util.py:197 <genexpr>": "genexpr util.py",
    "$builtins isinstance": "isinstance",
    "$jaxlib.utils safe_map": "safe_map jaxlib.utils",
    "$<frozen importlib._bootstrap>:1053 _handle_fromlist": "_handle_fromlist importlib._bootstrap",
    "$<unknown> astype": "astype",
    "$100 bill": "bill 100",
    # modules and operators
    "nn.Module: Conv2d_3": "Conv2d_3",
    "nn.Module: ": "nn.Module: ",
    "aten::conv2d": "conv2d",
    "prim::ListConstruct": "ListConstruct",
    "aten::": "aten::",
    "autograd::engine::evaluate_function: ConvolutionBackward0": "ConvolutionBackward0",
    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad": "AccumulateGrad",
    "torch::jit::(anonymous namespace)::DifferentiableGraphBackward": "DifferentiableGraphBackward",
    "torch.distributed.ddp.reducer::copy_bucket_to_grad": "copy_bucket_to_grad",
    "Optimizer.step#SGD.step": "SGD.step",
    "Optimizer.zero_grad#AdamW.zero_grad": "AdamW.zero_grad",
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": "DataLoader next",
    "enumerate(DataPipe)#MapperIterDataPipe": "MapperIterDataPipe next",
    # what is short, or states whose it is
    "c10d::allreduce_": "c10d::allreduce_",
    "vllm::unified_attention": "vllm::unified_attention",
    "cudaLaunchKernel": "cudaLaunchKernel",
    "ProfilerStep#12": "ProfilerStep#12",
    "step 3 (warm)": "step 3 (warm)",
    "$1": "$1",
    "": "",
}

KERNELS = {
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> "
    ">(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)": (
        "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, Array<char*, 3>>"
    ),
    "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int, float const*, long*)": (
        "max_pool_forward_nchw<float, float>"
    ),
    "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)2>>(T1)": (
        "multi_tensor_apply_kernel<TensorListMetadata<2>>"
    ),
    "void elementwise_kernel<(int)128, (bool)1, void at::native::gpu_kernel_impl<f(int)>, void const*>(int)": (
        "elementwise_kernel<128, 1, gpu_kernel_impl<f(int)>, void const*>"
    ),
    "void at::native::reduce<c10::BFloat16, at::cuda::detail::TensorInfo<c10::Half, int> >(f(int (*)(g(h))))": (
        "reduce<BFloat16, TensorInfo<Half, int>>"
    ),
    "std::enable_if<(((8)>(0)))&&_typeConvert<c10::Half>::exists, void>::type vllm::norm<c10::Half, 8>(c10::Half*)": (
        "vllm::norm<Half, 8>"
    ),
    "void cudnn::bn_fw_tr_1C11_singleread<float, 512>(cudnn::bn_fw_tr_1C11_args<float>)": (
        "cudnn::bn_fw_tr_1C11_singleread<float, 512>"
    ),
    "void cudnn::detail::dgrad_engine<float, 128>(int, int)": "cudnn::dgrad_engine<float, 128>",
    "void cudnn::winograd_nonfused::winogradForwardOutput4x4<float>(float)": (
        "cudnn::winograd_nonfused::winogradForwardOutput4x4<float>"
    ),
    "void cub::CUB_200200_700_NS::DeviceScanInitKernel<long>(long)": "cub::DeviceScanInitKernel<long>",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4>(cutlass_80_tensorop::Params)": (
        "cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4"
    ),
    "void ck::tensor_operation::device::(anonymous namespace)::kernel_gemm<ck::Tuple<> >(int)": (
        "ck::kernel_gemm<ck::Tuple<>>"
    ),
    "void at::native::run(f)::{lambda(int)#1}::operator()(int) const": "run(f)::{lambda(int)#1}::operator()",
    "void thrust::THRUST_200302_800_NS::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__4::detail::Agent>(int)": (
        "thrust::core::_kernel_agent<thrust::Agent>"
    ),
    "void Eigen::internal::EigenMetaKernel<_GLOBAL__N__7c8f_1_x_cu_2a::f, {anonymous}::g, (unsigned long)8>(int)": (
        "Eigen::EigenMetaKernel<f, g, 8>"
    ),
    "typename std::enable_if<true, void>::type f<-1>(int)": "f<-1>",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32>(P)": "cutlass_80_simt_sgemm_128x32",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": (
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    ),
    "ampere_sgemm_128x64_tn": "ampere_sgemm_128x64_tn",
    "triton_poi_fused_add_relu_0": "triton_poi_fused_add_relu_0",
    "Cijk_Ailk_Bljk_SB_MT64x64x8_SE": "Cijk_Ailk_Bljk_SB_MT64x64x8_SE",
    "rms_norm.kd": "rms_norm",
    "copy(float*) [clone .kd]": "copy",
    "_ZN2at6native4copyEPf": "copy",
    "Memcpy HtoD (Pinned -> Device)": "Memcpy HtoD (Pinned -> Device)",
    "input_reduce_fusion.6": "input_reduce_fusion.6",
    "cat::native::f": "cat::native::f",
    "void": "void",
    "void ": "void ",
    "at::native::": "at::native::",
    "(anonymous namespace)::": "(anonymous namespace)::",
    "(int)": "(int)",
    "f((((((((((1))))))))))": "f((((((((((1))))))))))",  # deeper than real ones
    "": "",
}


@pytest.mark.parametrize(("name", "title"), HOST.items())
def test_a_name_of_the_host_becomes_what_a_person_calls_it(name: str, title: str) -> None:
    assert shorten_host(pl.Series([name])).to_list() == [title]


@pytest.mark.parametrize(("name", "title"), KERNELS.items())
def test_a_kernel_loses_its_namespaces_and_keeps_its_template_arguments(name: str, title: str) -> None:
    assert shorten_kernels(pl.Series([name])).to_list() == [title]


@pytest.mark.parametrize("make", [shorten_host, shorten_kernels])
def test_titles_stand_in_the_order_of_their_names(make: type[pl.Series]) -> None:
    names = pl.Series("name", ["b", None, "a", "b", ""])
    titles = make(names)
    assert (titles.to_list(), titles.name, titles.dtype) == (["b", None, "a", "b", ""], "name", pl.String)
    assert make(names.cast(pl.Categorical)).to_list() == titles.to_list()
    assert make(names.clear()).to_list() == make(pl.Series([], dtype=pl.String)).to_list() == []


@pytest.mark.parametrize("make", [shorten_host, shorten_kernels])
def test_a_long_title_loses_its_middle(make: type[pl.Series]) -> None:
    names = ["x" * LONGEST, "é" * 60 + "m" * 100_000 + "ü" * 60, "(" * 100_000, "at::" * 30_000, "<" * 100_000]
    exact, cut, *hostile = make(pl.Series(names)).to_list()
    assert exact == names[0]
    assert cut == "é" * (LONGEST // 2 - 1) + "…" + "ü" * (LONGEST // 2)
    assert all(0 < len(title) <= LONGEST for title in hostile)


PIECES = (
    "at::",
    "void ",
    "<",
    ">",
    "(",
    ")",
    ", ",
    "::",
    "(anonymous namespace)",
    "<locals>",
    ".py(1): ",
    "$",
    "#",
    "/",
    "é",
)


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=20)).map("".join))
def test_whatever_has_a_name_has_a_title(name: str) -> None:
    for make in (shorten_host, shorten_kernels):
        title = make(pl.Series([name])).item()
        assert bool(title) == bool(name)
        assert len(title) <= min(LONGEST, len(name) + len(" next"))


@pytest.mark.traces
def test_real_names_get_shorter(traces: Path) -> None:
    (path,) = (traces / "tb-resnet50-nw0").glob("*.json.gz")
    trace = read(path)
    for table, make, least in (("host_events", shorten_host, 0.15), ("device_events", shorten_kernels, 0.4)):
        names = trace.names.gather(getattr(trace, table)["name_id"].unique())
        titles = make(names)
        lost = 1 - titles.str.len_chars().sum() / names.str.len_chars().sum()
        assert lost > least, f"{table}: {lost:.2f}"
        assert titles.null_count() == 0
        assert titles.n_unique() > 0.95 * names.n_unique()
