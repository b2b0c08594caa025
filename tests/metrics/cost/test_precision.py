"""Which type a kernel multiplies in, by the names that libraries give kernels."""

from __future__ import annotations

import polars as pl
import pytest

from deepprof.metrics.cost.loop_roofline import find_product_dtypes

PLAIN = (
    "ampere_sgemm_128x64_tn",
    "volta_sgemm_32x128_nn",
    "void gemmSN_NN_kernel<float, 256, 4, 2, 8, 4, 4, false>",
    "Cijk_Ailk_Bljk_SB_MT64x64x16_MI16x16x4x1_SN",
    "triton_tem_fused_mm_0",
    "",
)
AS_TF32 = (
    "cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4",
    "void cutlass_tensorop_s1688fprop_optimized_tf32_128x128_nhwc",
    "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1",
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel",
    "Cijk_Alik_Bljk_S_XF32_MT128x128x32",
)


def find_product_dtype(dtype: str | None, name: str) -> str | None:
    return find_product_dtypes(pl.Series([dtype], dtype=pl.String), pl.Series([name]))[0]


@pytest.mark.parametrize("name", PLAIN)
def test_float32_is_not_tf32_without_a_sign(name: str) -> None:
    assert find_product_dtype("float32", name) == "float32"


@pytest.mark.parametrize("name", AS_TF32)
def test_tf32_is_read_off_the_kernel(name: str) -> None:
    assert find_product_dtype("float32", name) == "tf32"


def test_only_float32_is_rounded() -> None:
    assert find_product_dtype("float16", "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn") == "float16"
    assert find_product_dtype("float64", "cutlass_80_tensorop_d884gemm_64x32") == "float64"
    assert find_product_dtype(None, "cutlass_80_tensorop_s1688gemm_128x256") is None


def test_operands_rounded_to_16_bits() -> None:
    assert find_product_dtype("float32", "cutlass_80_tensorop_s16816bf16gemm_128x64") == "bfloat16"
    assert find_product_dtype("float32", "cutlass_80_tensorop_s1688f16gemm_128x64") == "float16"


def test_an_emulated_float32_is_float32() -> None:
    assert find_product_dtype("float32", "cutlass_80_tensorop_s1688fast_f32gemm_128x64_tf32") == "float32"
    assert find_product_dtype("float32", "sm100_gemm_bf16x9_f32") == "float32"
