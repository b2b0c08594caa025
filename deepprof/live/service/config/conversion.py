"""Conversion of one raw value, from a file or a text, to the value of its key; an error states what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deepprof.collectors.errors import escaped
from deepprof.live.service.config.keys import ConfigKey, Kind
from deepprof.live.service.config.quantities import format_duration, format_nbytes, parse_duration, parse_nbytes
from deepprof.render.plain import shorten

MAX_TEXT_CHARS, MAX_TEXTS = 4096, 64
TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def convert(key: ConfigKey, raw: object) -> Any:
    """Return the value of `key` for a raw value from a file or a text; `ValueError` states what is allowed."""
    return CONVERTERS[key.kind](key, raw)


def _to_number(key: ConfigKey, raw: object) -> int:
    """Return a number of the key's kind, within its range."""
    value = _read_number(key, raw)
    if not key.low <= value <= key.high:
        raise ValueError(f"{_quote(raw)} is not {allowed(key)}")
    return value


def _read_number(key: ConfigKey, raw: object) -> int:
    """Return the number that `raw` is or contains; a time is always a text with its unit, but 0 needs none."""
    if key.kind == "duration" and (bare := _bare_number(raw)) is not None:
        if bare == 0 and key.low == 0:
            return 0
        raise ValueError(f"{_quote(raw)} has no unit: write {bare}s, {bare}min, {bare}h or {bare}d, {allowed(key)}")
    if isinstance(raw, int) and not isinstance(raw, bool) and key.kind != "duration":
        return raw
    if not isinstance(raw, str):
        raise ValueError(f"{_quote(raw)} is not {allowed(key)}")
    try:
        return READERS[key.kind](raw)
    except ValueError as error:
        raise ValueError(f"{_quote(raw)} is not {allowed(key)}") from error


def _bare_number(raw: object) -> int | None:
    """Return the number that `raw` is without any unit, None for everything else."""
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw if 0 <= raw < 10**15 else None
    text = raw.strip() if isinstance(raw, str) else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 15 else None


def _parse_count(text: str) -> int:
    """Return a whole number; `ValueError` for anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 15):
        raise ValueError("is not a whole number")
    return int(text)


READERS: Mapping[str, Callable[[str], int]] = {
    "count": _parse_count,
    "nbytes": parse_nbytes,
    "duration": parse_duration,
}


def _to_truth(key: ConfigKey, raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if not isinstance(raw, str) or raw.lower() not in TRUTH:
        raise ValueError(f"{_quote(raw)} is not {allowed(key)}")
    return TRUTH[raw.lower()]


def _to_text(key: ConfigKey, raw: object) -> str:
    if not isinstance(raw, str) or not raw.isprintable() or len(raw) > MAX_TEXT_CHARS:
        raise ValueError(f"{_quote(raw)} is not {allowed(key)}")
    return raw


def _to_choice(key: ConfigKey, raw: object) -> str:
    if not isinstance(raw, str) or raw not in key.choices:
        raise ValueError(f"{_quote(raw)} is not {allowed(key)}")
    return raw


def _to_texts(key: ConfigKey, raw: object) -> tuple[str, ...]:
    """Return several texts: a list, or one text with commas between them."""
    parts = [part.strip() for part in raw.split(",") if part.strip()] if isinstance(raw, str) else raw
    if not isinstance(parts, list) or len(parts) > MAX_TEXTS:
        raise ValueError(f"{_quote(raw)} is not {allowed(key)}")
    one = _to_choice if key.choices else _to_text
    return tuple(dict.fromkeys(one(key, part) for part in parts))


def _to_table(key: ConfigKey, raw: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(raw, dict) or len(raw) > MAX_TEXT_CHARS:
        raise ValueError(f"{_quote(raw)} is not {allowed(key)}")
    return {_to_text(key, name): _to_texts(key, value) for name, value in raw.items()}


CONVERTERS: Mapping[Kind, Callable[[ConfigKey, object], Any]] = {
    "count": _to_number,
    "nbytes": _to_number,
    "duration": _to_number,
    "truth": _to_truth,
    "choice": _to_choice,
    "text": _to_text,
    "texts": _to_texts,
    "choices": _to_texts,
    "table": _to_table,
}


def _quote(raw: object) -> str:
    """Return a raw value shortened for a message, on one printable line."""
    if isinstance(raw, int) and raw.bit_length() > 64:  # Python refuses to print very long ones
        return f"a number of {raw.bit_length()} bits"
    return shorten(escaped(repr(raw)) if isinstance(raw, str | int | float) else f"a {type(raw).__name__}")


def allowed(key: ConfigKey) -> str:
    """Return the values that the key may have, in words."""
    return WORDS[key.kind](key)


def _say_sizes(key: ConfigKey) -> str:
    return f"a size from {format_nbytes(key.low)} to {format_nbytes(key.high)}"


def _say_times(key: ConfigKey) -> str:
    return f"a time with its unit, in quotes, from {format_duration(key.low)} to {format_duration(key.high)}"


WORDS: Mapping[Kind, Callable[[ConfigKey], str]] = {
    "count": lambda key: f"a whole number from {key.low:,} to {key.high:,}",
    "nbytes": _say_sizes,
    "duration": _say_times,
    "truth": lambda key: "true or false",
    "choice": lambda key: " or ".join((", ".join(key.choices[:-1]), key.choices[-1])),
    "text": lambda key: "text",
    "texts": lambda key: "a list of texts",
    "choices": lambda key: f"a list of {', '.join(key.choices)}",
    "table": lambda key: f"a table of names and lists of {', '.join(key.choices)}",
}
