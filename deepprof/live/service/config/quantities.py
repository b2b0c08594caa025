"""Sizes and times as people write them: `64 MiB` and `7d` to bytes and nanoseconds, and back."""

from __future__ import annotations

import re

SIZES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
TIMES = {"ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "d": 86_400 * 10**9}
SIZE = re.compile(r"(\d{1,15}) ?(B|KiB|MiB|GiB|TiB|)", re.ASCII)
TIME = re.compile(r"(\d{1,12}) ?(ms|s|min|h|d)", re.ASCII)


def parse_nbytes(text: str) -> int:
    """Return a size such as `64 MiB` or `4096` in bytes; `ValueError` for anything else."""
    found = SIZE.fullmatch(text)
    if found is None:
        raise ValueError("is not a size such as 67108864 or 64 MiB (B, KiB, MiB, GiB, TiB)")
    return int(found[1]) * SIZES[found[2]]


def parse_duration(text: str) -> int:
    """Return a time such as `30s` or `7d` in nanoseconds; `ValueError` for anything else, also without a unit."""
    found = TIME.fullmatch(text)
    if found is None:
        raise ValueError("is not a time with its unit such as 30s or 7d (ms, s, min, h, d)")
    return int(found[1]) * TIMES[found[2]]


def format_nbytes(nbytes: int) -> str:
    """Return `nbytes` in the largest unit that leaves a whole number, so that `parse_nbytes` gives it back."""
    unit, size = _largest(nbytes, {unit: size for unit, size in SIZES.items() if unit})
    return f"{nbytes // size} {unit}"


def format_duration(duration_ns: int) -> str:
    """Return `duration_ns`, cut to whole milliseconds, in the largest unit that leaves a whole number."""
    unit, size = _largest(duration_ns, TIMES)
    return f"{duration_ns // size}{unit}"


def _largest(value: int, units: dict[str, int]) -> tuple[str, int]:
    """Return the last of `units`, which ascend, that divides `value`; the first for 0."""
    fitting = [(unit, size) for unit, size in units.items() if value % size == 0 and value >= size]
    return fitting[-1] if fitting else next(iter(units.items()))
