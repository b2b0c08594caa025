"""Numbers as people read them: three significant digits and a unit; `-` where there is no value."""

from __future__ import annotations

ABSENT = "-"
Scale = tuple[tuple[int, str], ...]  # largest unit first
TIMES: Scale = (
    (3_600_000_000_000, "h"),
    (60_000_000_000, "min"),
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "µs"),
    (1, "ns"),
)
SIZES: Scale = ((1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def format_duration(ns: float | None) -> str:
    """Return nanoseconds as in `12.3 ms`."""
    return _format_scaled(ns, TIMES)


def format_difference(ns: float) -> str:
    """Return nanoseconds with their sign as in `+12.3 ms`, 0 without."""
    return ("+" if ns > 0 else "") + format_duration(ns)


def format_bytes(nbytes: float | None) -> str:
    """Return a size as in `1.25 GiB`."""
    return _format_scaled(nbytes, SIZES)


def format_ratio(ratio: float | None) -> str:
    """Return a share as in `12.3 %`; only an exact 0 or 1 reads as 0 % or 100 %."""
    if ratio is None:
        return ABSENT
    if ratio in {0, 1}:
        return f"{ratio:.0%}".replace("%", " %")
    if 0 < ratio < 0.0005:
        return "<0.1 %"
    if 0.9995 <= ratio < 1:
        return ">99.9 %"
    return f"{ratio * 100:.1f} %"


def format_confidence(confidence: float) -> str:
    """Return a confidence as in `0.95`; only certainty reads as 1.00."""
    return f"{confidence if confidence >= 1 else min(confidence, 0.99):.2f}"


def _format_scaled(value: float | None, scale: Scale) -> str:
    """Return `value` in the largest unit of `scale` in which it reads as one or more."""
    if value is None:
        return ABSENT
    size, unit = next(((s, u) for s, u in scale if _round_up(abs(value), s)), scale[-1])
    scaled = value / size
    digits = 0 if size == 1 or abs(scaled) >= 99.95 else 1 if abs(scaled) >= 9.995 else 2
    return f"{scaled:.{digits}f} {unit}"


def _round_up(value: float, size: int) -> bool:
    """Return whether `value` shows as at least one of `size` once it is rounded: 999.9 µs is 1.00 ms."""
    return value >= size * 0.9995
