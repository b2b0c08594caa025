"""Which pattern of a table matches each of many names first, with few passes over the names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.kernels.pattern_tables import write_ascii

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MUCH_TEXT = 256 * 1024  # bytes of names: to search them lasts longer than to compile patterns

# Parts of a pattern: an escape or class, a count that allows none, what else is no literal text, a group.
_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]", re.DOTALL)
_COUNT = r"(?:[?*]|\{[\d, ]*\})\??"
_COUNTED_GROUP = re.compile(rf"\){_COUNT}")
_NOT_LITERAL = re.compile(rf"[^()|]{_COUNT}|[.^$]|\+\??", re.DOTALL)
_GROUP = re.compile(r"\((?:\?:|\?i:)?([^()]*)\)(\x01?)")
_UNREADABLE = re.compile(r"\(\?(?!:|i:)|\\[xuUpP]|\[[^]]*\[|&&|[\0\x01]")
_CASED = re.compile(r"\\[A-Z]|\w-\w|\(\?(?!:)")  # what the lower case of a pattern may change


def find_first(names: pl.Series, patterns: Sequence[str]) -> Int64s:
    """Return for every name the number of the first pattern that is found in it, -1 for none.

    Of much text, names without any of the patterns are left out first; of little, patterns none of whose words is in
    it, which most of the time would only be compiled.
    """
    found = np.full(len(names), -1, np.int64)
    rows, numbers = np.arange(len(names)), np.arange(len(patterns))
    if len(rows) and patterns and (names.str.len_bytes().sum() or 0) > MUCH_TEXT:
        rows = np.flatnonzero(search(names, patterns))
    else:
        text = "\n".join(names.drop_nulls()).casefold()
        numbers = np.array([number for number, each in enumerate(patterns) if _may_match(each, text)], np.int64)
    if len(rows) and len(numbers):
        hits = np.column_stack(search_each(names.gather(rows), [patterns[number] for number in numbers.tolist()]))
        found[rows] = np.where(hits.any(axis=1), numbers[hits.argmax(axis=1)], -1)
    return found


@cache
def find_words(pattern: str) -> tuple[str, ...]:
    """Return words of which any text that matches `pattern` contains one, casefolded; none where that is uncertain.

    Groups with alternatives are ignored, or are alternatives of the whole if the shortest word is longer then.
    """
    text = pattern.removeprefix("(?i)")
    if _UNREADABLE.search(text):
        return ()
    text = _NOT_LITERAL.sub("\0", _COUNTED_GROUP.sub(")\x01", _CLASS.sub("\0", text)))
    outer, every = _read_words(text, are_open=False), _read_words(text, are_open=True)
    return max(outer, every, key=lambda words: min(map(len, words), default=0))


def _read_words(text: str, *, are_open: bool) -> tuple[str, ...]:
    """Return the longest literal of every alternative, with inner alternatives among them if `are_open`."""
    groups = 1
    while groups:
        text, groups = _GROUP.subn(
            lambda group: "\0" if group[2] or (not are_open and "|" in group[1]) else group[1], text
        )
    words = tuple(max(part.split("\0"), key=len).casefold() for part in text.split("|"))
    return words if all(words) else ()


def _may_match(pattern: str, text: str) -> bool:
    words = find_words(pattern)
    return not words or any(word in text for word in words)


def search(names: pl.Series, patterns: Sequence[str]) -> Bools:
    """Return in which names any of the patterns is found."""
    if not len(names):
        return np.zeros(0, np.bool_)
    joined = "|".join(f"(?:{write_ascii(pattern)})" for pattern in patterns)
    try:
        return names.str.contains(joined).to_numpy()
    except pl.exceptions.ComputeError:  # too large as one expression
        if len(patterns) == 1:
            raise
        half = len(patterns) // 2
        either: Bools = search(names, patterns[:half]) | search(names, patterns[half:])
        return either


def search_each(names: pl.Series, patterns: Sequence[str]) -> list[Bools]:
    """Return for each of the patterns in which names it is found."""
    columns = pl.DataFrame({"name": names, "lower": names.str.to_lowercase()})
    found = columns.select(
        _find(pattern).fill_null(value=False).alias(str(number)) for number, pattern in enumerate(patterns)
    )
    return [column.to_numpy() for column in found]


def _find(pattern: str) -> pl.Expr:
    """Return in which names a pattern is found; one that ignores case compiles faster for names in lower case."""
    if pattern.startswith("(?i)") and not _CASED.search(pattern, 4):
        return pl.col("lower").str.contains(write_ascii(pattern[4:].lower()))
    return pl.col("name").str.contains(write_ascii(pattern))
