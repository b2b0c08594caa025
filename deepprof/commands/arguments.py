"""Argument types that several commands share; argparse turns their errors into its own message."""

from __future__ import annotations

from argparse import ArgumentTypeError

from deepprof.render.plain import shorten

__all__ = ["parse_count", "parse_counts", "parse_seed", "parse_stream"]

COUNT_DIGITS, SEED_DIGITS = 9, 18
DEVICES, STREAMS = 1 << 16, 1 << 63  # what a trace's columns hold


def parse_count(text: str) -> int:
    """Return a whole number of one or more."""
    if not is_whole(text, COUNT_DIGITS) or int(text) < 1:
        raise ArgumentTypeError(f"{quote(text)} is not a whole number of at least 1 with {COUNT_DIGITS} digits at most")
    return int(text)


def parse_counts(text: str) -> tuple[int, ...]:
    """Return counts that commas separate."""
    return tuple(parse_count(part) for part in text.split(","))


def parse_seed(text: str) -> int:
    """Return a whole number."""
    if not is_whole(text, SEED_DIGITS):
        raise ArgumentTypeError(f"{quote(text)} is not a whole number with {SEED_DIGITS} digits at most")
    return int(text)


def parse_stream(text: str) -> tuple[int, int]:
    """Return `DEVICE:STREAM` as two numbers."""
    device, colon, stream = text.partition(":")
    if device.startswith("-"):
        raise ArgumentTypeError(f"{quote(text)}: a device is not negative; give DEVICE:STREAM, such as 0:7")
    digits = len(str(STREAMS))
    if not (colon and is_whole(device, digits) and is_whole(stream, digits)):
        raise ArgumentTypeError(f"{quote(text)} is not DEVICE:STREAM, such as 0:7")
    if int(device) >= DEVICES or int(stream) >= STREAMS:
        raise ArgumentTypeError(f"{quote(text)}: a device is below {DEVICES}, a stream below 2**63")
    return int(device), int(stream)


def is_whole(text: str, digits: int) -> bool:
    """Return whether `text` is a number of up to `digits` ASCII digits."""
    return len(text) <= digits and text.isascii() and text.isdecimal()


def quote(text: str) -> str:
    """Return `text` in quotes, as short as a message can bear."""
    return repr(shorten(text))
