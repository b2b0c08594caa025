"""Argument types that several commands share; argparse turns their errors into its own message."""

from __future__ import annotations

import re
from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace
from typing import Any, NamedTuple

from deepprof.render.plain import shorten

COUNT_DIGITS, SEED_DIGITS = 9, 18
JOBS = 64
UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}
TIME = re.compile(r"(\d{1,12})(?:\.(\d{1,12}))?(ns|us|ms|s|min)", re.ASCII)
SPEED = re.compile(r"\d{1,7}(\.\d{1,6})?", re.ASCII)
CONTEXT_MEASURES = ("device", "host", "idle", "launches", "bytes")  # of deepprof.render.flame
SHAPE = re.compile(r"\d{1,15}(x\d{1,15}){0,31}", re.ASCII)
SLOWEST, FASTEST = 0.001, 1_000_000
SHORTEST_S, LONGEST_S = 0.1, 3600
DEVICES, STREAMS = 1 << 16, 1 << 63  # limits of a trace's columns


def add_columns(parser: ArgumentParser) -> None:
    """Add `--columns`, which commands pass to `read_job` unchanged."""
    text = "which column of a CSV or Parquet table is what: start=COLUMN,end=COLUMN,name=COLUMN,unit=us, or a TOML file"
    parser.add_argument("--columns", metavar="MAPPING", help=text)


def parse_count(text: str) -> int:
    """Return a whole number of one or more."""
    if not _is_whole(text, COUNT_DIGITS) or int(text) < 1:
        raise ArgumentTypeError(f"{quote(text)} is not a whole number of at least 1 with {COUNT_DIGITS} digits at most")
    return int(text)


def parse_counts(text: str) -> tuple[int, ...]:
    """Return counts that commas separate."""
    return tuple(parse_count(part) for part in text.split(","))


class NumberRange(NamedTuple):
    """Numbers `first` ≤ n < `last`; None: open."""

    first: int | None
    last: int | None


def parse_numbers(text: str) -> NumberRange:
    """Return `FIRST:LAST`, one of which may be empty."""
    first, colon, last = text.partition(":")
    if not colon or text == ":" or not all(_is_whole(part, COUNT_DIGITS) or not part for part in (first, last)):
        raise ArgumentTypeError(f"{quote(text)} is not FIRST:LAST, such as 10:20, 10: or :20")
    if last and int(last) <= int(first or 0):
        raise ArgumentTypeError(
            f"{quote(text)} holds nothing: the last number is left out, and must be above the first"
        )
    return NumberRange(int(first) if first else None, int(last) if last else None)


def parse_iterations(text: str) -> NumberRange | tuple[int, ...]:
    """Return which iterations `FIRST:LAST` names, or how many there are, as `parse_counts` does."""
    return parse_numbers(text) if ":" in text else parse_counts(text)


class StoreIterations(Action):
    """Keeps counts of iterations as `iterations`, and which of them are examined as `chosen`."""

    def __call__(self, _: ArgumentParser, args: Namespace, values: Any, __: str | None = None) -> None:
        """Keep what `parse_iterations` returned."""
        setattr(args, "chosen" if isinstance(values, NumberRange) else "iterations", values)


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the name of a model's input and its shape."""
    name, _, shape = text.rpartition("=")
    if not name or not SHAPE.fullmatch(shape):
        raise ArgumentTypeError(f"{quote(text)} is not NAME=SHAPE, such as tokens=8x128")
    return name, tuple(int(each) for each in shape.split("x"))


def parse_seed(text: str) -> int:
    """Return a whole number."""
    if not _is_whole(text, SEED_DIGITS):
        raise ArgumentTypeError(f"{quote(text)} is not a whole number with {SEED_DIGITS} digits at most")
    return int(text)


def parse_speed(text: str) -> float | None:
    """Return a factor such as `1` or `0.5`, None for `max`."""
    if text == "max":
        return None
    if not SPEED.fullmatch(text) or not SLOWEST <= float(text) <= FASTEST:
        raise ArgumentTypeError(f"{quote(text)} is no speed from {SLOWEST} to {FASTEST:,} nor max")
    return float(text)


def parse_interval(text: str) -> float:
    """Return a number of seconds."""
    if not SPEED.fullmatch(text) or not SHORTEST_S <= float(text) <= LONGEST_S:
        raise ArgumentTypeError(f"{quote(text)} is no number of seconds from {SHORTEST_S} to {LONGEST_S:,}")
    return float(text)


def parse_stream(text: str) -> tuple[int, int]:
    """Return `DEVICE:STREAM` as two numbers."""
    device, colon, stream = text.partition(":")
    if device.startswith("-"):
        raise ArgumentTypeError(f"{quote(text)}: a device is not negative; give DEVICE:STREAM, such as 0:7")
    digits = len(str(STREAMS))
    if not (colon and _is_whole(device, digits) and _is_whole(stream, digits)):
        raise ArgumentTypeError(f"{quote(text)} is not DEVICE:STREAM, such as 0:7")
    if int(device) >= DEVICES or int(stream) >= STREAMS:
        raise ArgumentTypeError(f"{quote(text)}: a device is below {DEVICES}, a stream below 2**63")
    return int(device), int(stream)


def parse_jobs(text: str) -> int:
    """Return a number of processes."""
    if not _is_whole(text, COUNT_DIGITS) or not 1 <= int(text) <= JOBS:
        raise ArgumentTypeError(f"{quote(text)} is not a number of processes from 1 to {JOBS}")
    return int(text)


def parse_time(text: str) -> int:
    """Return a time with its unit, such as `2.5s` or `300ms`, as whole nanoseconds, rounded down."""
    found = TIME.fullmatch(text)
    if found is None:
        raise ArgumentTypeError(f"{quote(text)} is not a time with its unit (ns, us, ms, s, min), such as 2.5s")
    whole, fraction, unit = found[1], found[2] or "", UNITS_NS[found[3]]
    return int(whole + fraction) * unit // int("1" + "0" * len(fraction))


def _is_whole(text: str, digits: int) -> bool:
    """Return whether `text` is a number of up to `digits` ASCII digits."""
    return len(text) <= digits and text.isascii() and text.isdecimal()


def quote(text: str) -> str:
    """Return `text` in quotes, shortened for a message."""
    return repr(shorten(text))
