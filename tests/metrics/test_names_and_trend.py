from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from deepprof.metrics.names import coarse_ids
from deepprof.metrics.series.trend import find_trend


def test_variants_of_one_kernel_share_an_id() -> None:
    names = pl.Series(
        [
            "void gemm<float, tile<128, 64> >(float*, int)",
            "void gemm<half, tile<64, 64> >(half*, int)",
            "ampere_sgemm_128x64_tn",
            "ampere_sgemm_64x64_tn",
            "softmax",
            "",
        ]
    )
    assert coarse_ids(names).to_list() == [0, 0, 2, 2, 4, 5]


def test_kernels_of_an_unnamed_namespace_keep_their_names_apart() -> None:
    names = [
        "void at::native::(anonymous namespace)::layer_norm<float>(int, float)",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<(anonymous namespace)::Adam<float> >(int)",
        "void at::native::(anonymous namespace)::layer_norm<double>(int, double)",
    ]
    assert coarse_ids(pl.Series(names)).to_list() == [0, 1, 0]


def test_a_straight_line_has_its_slope() -> None:
    trend = find_trend([10 + 2 * i for i in range(20)])
    assert trend is not None
    assert trend.slope == pytest.approx(2)
    assert trend.tau == pytest.approx(1)
    assert trend.p_value < 1e-6
    assert trend.growth == pytest.approx(2 * 19 / 29)


def test_one_outlier_makes_no_trend() -> None:
    trend = find_trend([10.0] * 19 + [1000.0])
    assert trend is not None
    assert trend.slope == 0


def test_noise_is_seldom_significant() -> None:
    rng = np.random.default_rng(5)
    found = [find_trend(rng.normal(10, 1, 30)) for _ in range(400)]
    assert sum(t is not None and t.p_value < 0.01 for t in found) <= 12  # 4 expected


def test_a_long_series_is_thinned_and_keeps_its_slope() -> None:
    trend = find_trend(np.arange(100_000) * 3.0)
    assert trend is not None
    assert trend.slope == pytest.approx(3)


@pytest.mark.parametrize("values", [[], [1], [1, 2, 3, 4]])
def test_few_values_prove_nothing(values: list[float]) -> None:
    assert find_trend(values) is None
