"""Parameters that only widen what a test examines: `make test` leaves them out, `make test-all` does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

__all__ = ["first_of_each", "slow_unless"]


def slow_unless(is_quick: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """Return the values as parameters of a test; `is_quick` chooses those that are not marked `slow`."""
    return [value if is_quick(plain(value)) else marked(value) for value in values]


def first_of_each(key: str, rows: Iterable[Any]) -> list[Any]:
    """Return rows of a manifest as parameters; only the first with every value of column `key` is not marked `slow`."""
    seen: set[str] = set()

    def is_first(row: dict[str, str]) -> bool:
        first = row.get(key, "") not in seen
        seen.add(row.get(key, ""))
        return first

    return slow_unless(is_first, rows)


def plain(value: Any) -> Any:
    """Return the value of a parameter that may have marks already."""
    return value.values[0] if isinstance(value, type(pytest.param())) else value


def marked(value: Any) -> Any:
    """Return a value as a parameter that is marked `slow`."""
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.slow], id=value.id)
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.slow)
