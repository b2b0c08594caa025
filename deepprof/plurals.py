"""Counts in words: one kernel, several kernels."""

from __future__ import annotations


def counted(number: float, noun: str, plural: str | None = None) -> str:
    """Return `1 kernel`, `12,345 kernels`; a number that is not whole is rounded.

    >>> counted(1, "copy", "copies"), counted(0.2, "kernel"), counted(2**53 + 1, "kernel")
    ('1 copy', '0 kernels', '9,007,199,254,740,993 kernels')
    """
    whole = round(number)  # an integer stays exact, however large
    return f"{whole:,} {noun if whole == 1 else plural or noun + 's'}"


def verb(number: float, one: str = "is", several: str = "are") -> str:
    """Return the verb that agrees with `number`."""
    return one if round(number) == 1 else several
