"""Argument types that several commands share; argparse turns their errors into its own message."""

from __future__ import annotations

from argparse import ArgumentTypeError

__all__ = ["parse_count", "parse_counts", "parse_seed", "parse_stream"]


def parse_count(text: str) -> int:
    """Return a whole number of one or more."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def parse_counts(text: str) -> tuple[int, ...]:
    """Return counts that commas separate."""
    return tuple(parse_count(part) for part in text.split(","))


def parse_seed(text: str) -> int:
    """Return a whole number."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def parse_stream(text: str) -> tuple[int, int]:
    """Return `DEVICE:STREAM` as two numbers."""
    device, colon, stream = text.partition(":")
    if not (colon and device.isdecimal() and stream.isdecimal()):
        raise ArgumentTypeError(f"{text!r} is not DEVICE:STREAM, such as 0:7")
    return int(device), int(stream)
