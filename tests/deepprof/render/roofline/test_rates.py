"""Rates as people read them."""

from __future__ import annotations

import pytest

from deepprof.render.roofline.rates import format_amount, format_flops_rate, format_intensity, format_nbytes_rate


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (989.4e12, "989 TFLOP/s"),
        (1.5e15, "1.5 PFLOP/s"),
        (999.96e9, "1 TFLOP/s"),
        (12.34e6, "12.3 MFLOP/s"),
        (3, "3 FLOP/s"),
        (0, "0 FLOP/s"),
        (1e21, "1,000,000 PFLOP/s"),
        (None, "-"),
    ],
)
def test_flops(value: float | None, text: str) -> None:
    assert format_flops_rate(value) == text


def test_others() -> None:
    assert format_nbytes_rate(3.352e12) == "3.35 TB/s"
    assert format_amount(8.207e9, "FLOP") == "8.21 GFLOP"
    assert [format_intensity(value) for value in (0.0123, 123.4, 12_345.0, 1e-9, None)] == [
        "0.0123",
        "123",
        "12,345",
        "1e-09",
        "-",
    ]
