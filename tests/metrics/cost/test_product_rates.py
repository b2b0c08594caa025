"""How much faster devices multiply in other types: by their names, their compute capability, and names of kernels."""

from __future__ import annotations

import re

import pytest

from deepprof.metrics.cost.product_rates import find_product_rates, list_families
from deepprof.metrics.cost.roofs import DevicePeaks, find_peaks, list_devices, normalise_name


@pytest.mark.parametrize(
    ("name", "times", "double"),
    [  # of the vendors' white papers: dense products on matrix units over float32 on ordinary units
        ("NVIDIA A100-SXM4-80GB", {"tf32": 156 / 19.5, "bfloat16": 312 / 19.5}, 9.7 / 19.5),
        ("NVIDIA A100-PG509-200", {"tf32": 8, "bfloat16": 16}, 0.5),  # a board that no data sheet has
        ("Tesla V100-SXM2-16GB", {"float16": 125 / 15.7, "tf32": None, "bfloat16": None}, 7.8 / 15.7),
        ("Tesla T4", {"float16": 65 / 8.1, "tf32": None}, 1 / 32),
        ("NVIDIA GeForce RTX 3070 Ti", {"tf32": 1, "bfloat16": 2}, 1 / 64),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", {"tf32": 1, "bfloat16": 2}, 1 / 64),
        ("Quadro RTX 5000", {"float16": 8, "tf32": None}, 1 / 32),
        ("NVIDIA RTX 5000 Ada Generation", {"tf32": 2, "bfloat16": 4}, 1 / 64),
        ("NVIDIA RTX A5000", {"tf32": 2, "bfloat16": 4}, 1 / 64),
        ("NVIDIA GeForce RTX 2070 SUPER", {"float16": 4, "tf32": None}, 1 / 32),
        ("NVIDIA GeForce GTX 1660 Ti", {"float16": None}, 1 / 32),
        ("Tesla P100-SXM2-16GB", {"float16": None}, 0.5),
        ("NVIDIA TITAN X (Pascal)", {"float16": None}, 1 / 32),
        ("NVIDIA Tegra X1", {"float16": None}, 1 / 32),
        ("AMD Instinct MI210", {"float32": 45.3 / 22.6, "bfloat16": 181 / 22.6}, 1),
    ],
)
def test_a_name_states_the_rates(name: str, times: dict[str, float | None], double: float) -> None:
    found = find_product_rates(name, find_peaks(name))
    assert found is not None
    assert (found.device, found.is_recorded) == (name, True)
    for dtype, ratio in times.items():
        expected = None if ratio is None else pytest.approx(ratio, rel=0.01)
        assert dict(found.times).get(dtype) == expected  # type: ignore[call-overload]
    assert found.double_times == pytest.approx(double, rel=0.01)


@pytest.mark.parametrize(
    ("properties", "family"),
    [
        ('{"computeMajor": 8, "computeMinor": 0}', "NVIDIA A100, A800"),
        ('{"computeCapabilityMajor": 7, "computeCapabilityMinor": 0}', "NVIDIA V100, TITAN V, GV100"),
        ('{"compute_cap_major": 9, "compute_cap_minor": 4, "device_vendor": "AMD"}', "AMD Instinct MI300"),
        ('{"computeMajor": 9, "computeMinor": 0, "warpSize": 64}', None),  # MI100 and MI200 have the same
        ('{"computeMajor": "8"}', None),
        ("{" * 100_000, None),
        ("[8, 0]", None),
        (None, None),
    ],
)
def test_a_compute_capability_states_the_family(properties: str | None, family: str | None) -> None:
    found = find_product_rates(None, None, properties)
    assert (None if found is None else found.device) == (family and f"a device like {family}")


@pytest.mark.parametrize(
    ("kernels", "device", "recorded"),
    [
        (["volta_sgemm_64x64_nt", "maxwell_scudnn_128x64_relu"], "Volta", False),
        (["sm80_xmma_gemm_f32f32_f32f32_f32_tn_n"], "Ampere", False),
        (["void cutlass::Kernel2<cutlass_75_wmma_tensorop_f16>"], "Turing", False),
        (["Cijk_Ailk_Bljk_SB_MT64x64x16_MI32x32x2x1_ISA90a_IU1"], "AMD Instinct MI200", True),
        (["maxwell_sgemm_128x64_nn"], None, None),
        (["my_sm80ish_kernel", "kernel"], None, None),
        ([], None, None),
    ],
)
def test_names_of_kernels_state_the_least_that_a_device_is(
    kernels: list[str], device: str | None, recorded: bool | None
) -> None:
    found = find_product_rates("Agent 1", None, None, kernels)
    assert (None if found is None else found.device, None if found is None else found.is_recorded) == (device, recorded)


def test_peaks_without_float32_have_the_familys_rates() -> None:
    peaks = DevicePeaks(name="x", source="x", matrix_flops_per_s={"tf32": 5.0})
    assert find_product_rates("some card", peaks) is None
    found = find_product_rates("NVIDIA A100", peaks)
    assert found is not None
    assert found.times["tf32"] == 8


def test_each_known_device_is_of_one_family_that_agrees_with_its_peaks() -> None:
    for peaks in list_devices():
        words = normalise_name(peaks.name)
        matching = [each for each in list_families() if re.search(each.match, words)]
        assert matching, peaks.name
        single = peaks.vector_flops_per_s["float32"]
        for dtype, times in matching[0].times.items():
            if dtype in peaks.matrix_flops_per_s:
                ratio = peaks.matrix_flops_per_s[dtype] / single
                assert 0.45 < ratio / times < 2.1, (peaks.name, dtype)
