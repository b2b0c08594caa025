"""The function that general kernels apply, from names as recorders write them."""

from __future__ import annotations

import pytest

from deepprof.collectors.names.functors import MOST_CHARS, find_function, shorten_with_function
from deepprof.collectors.names.short import shorten

AT = "at::native::"


EACH, LISTS = "void at::native::vectorized_elementwise_kernel", "void at::native::multi_tensor_apply_kernel<M<2>, "
STRIDED, REDUCE = "void at::native::elementwise_kernel<128, 2, ", "void at::native::reduce_kernel<512, 1, "


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (f"{EACH}<4, {AT}CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)", "add"),
        (f"{EACH}<4, {AT}BinaryFunctor<float, float, float, {AT}MulFunctor<float> > >()", "mul"),
        (f"{EACH}<4, {AT}GeluCUDAKernelImpl({AT}TensorIteratorBase&)::{{lambda()#1}}>()", "gelu"),
        (f"{EACH}<8, {AT}(anonymous namespace)::silu_kernel(T&)::{{lambda()#1}}>()", "silu"),
        (f"{EACH}<4, {AT}addcdiv_cuda_kernel(T&, c10::Scalar const&)::{{lambda()#2}}>()", "addcdiv"),
        (f"{STRIDED}{AT}gpu_kernel_impl<{AT}direct_copy_kernel_cuda(T&)::{{lambda()#2}}>(T&)>()", "direct_copy"),
        (
            f"{STRIDED}{AT}gpu_kernel_impl_nocast<{AT}<unnamed>::where_kernel_impl(T &)::[lambda() (instance 1)]>>",
            "where",
        ),
        (f"{REDUCE}{AT}ReduceOp<float, {AT}MeanOps<float, float>, unsigned int, float, 4> >()", "mean"),
        (f"{REDUCE}{AT}func_wrapper_t<float, {AT}sum_functor<float>::operator()(T&)::{{lambda()#1}}> >()", "sum"),
        (f"{LISTS}{AT}UnaryOpFunctor<float, 2, 1, 1>, {AT}Sqrt<float> >()", "sqrt"),
        (f"{LISTS}{AT}PointwiseOpFunctor<float, 3, 3, 0>, std::multiplies<float> >()", "pointwise_op multiplies"),
        ("void unary_gated_op_kernel<&(op_silu(float)), float>(float const*)", "silu"),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)", "adam"),
        ("ampere_sgemm_128x64_tn", ""),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)", ""),
        ("void layer_norm<float>(float*, (anonymous namespace)::Params)", ""),
        ("void add_kernel<AddFunctor<float> >()", ""),  # its name has the word already
        ("", ""),
    ],
)
def test_the_function_is_the_argument_that_computes(name: str, function: str) -> None:
    assert find_function(name, shorten(name)) == function
    assert shorten_with_function(name) == (f"{shorten(name)} ({function})" if function else shorten(name))


def test_forward_and_backward_of_one_entry_point_have_their_own_names() -> None:
    forward, backward = (
        f"void ck_tile::kentry<256, 2, ck_tile::Fmha{way}<ck_tile::Tile> >()" for way in ("Fwd", "Bwd")
    )
    assert (shorten(forward), shorten(backward)) == ("kentry<FmhaFwd>", "kentry<FmhaBwd>")
    assert shorten("void kernel<(int)4, true>()") == "kernel<4>"


@pytest.mark.parametrize("part", ["<", "(", "a(", "Functor<", "::lambda", "OpFunctor<"])
def test_only_the_beginning_of_a_long_name_is_searched(part: str) -> None:
    name = "void k<" + part * 20_000
    assert find_function(name, shorten(name)) == find_function(name[:MOST_CHARS], shorten(name[:MOST_CHARS]))
