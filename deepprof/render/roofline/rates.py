"""Rates and intensities as people read them."""

from __future__ import annotations

from deepprof.render.units import ABSENT

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def format_flops_rate(per_s: float | None) -> str:
    """Return FLOP/s as in `12.3 TFLOP/s`."""
    return _scale(per_s, "FLOP/s")


def format_nbytes_rate(per_s: float | None) -> str:
    """Return bytes per second as in `1.23 TB/s`, in powers of ten as vendors state them."""
    return _scale(per_s, "B/s")


def format_amount(amount: float | None, unit: str) -> str:
    """Return an amount with a prefix as in `12.3 GFLOP`."""
    return _scale(amount, unit)


def format_intensity(intensity: float | None) -> str:
    """Return FLOP per byte as in `12.3`, in three digits."""
    return ABSENT if intensity is None else _format_digits(intensity)


def _format_digits(value: float) -> str:
    """Return three significant digits without an exponent: `0.0123`, `1.23`, `123`, `12,300`."""
    if value == 0:
        return "0"
    if abs(value) < 1e-4 or abs(value) >= 1e9:
        return f"{value:.2g}"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def _scale(value: float | None, unit: str) -> str:
    """Return a value with the largest prefix in which it reads as one or more."""
    if value is None:
        return ABSENT
    size, prefix = next(((s, p) for s, p in PREFIXES if abs(value) >= s * 0.9995), PREFIXES[-1])
    return f"{_format_digits(value / size)} {prefix}{unit}"
