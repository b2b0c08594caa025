"""What holds for every document's columns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

TREES = {"parent"}


def check_columns(document: msgspec.Struct, names: list[str], many: int) -> None:
    """Check that columns have one length, and that texts are numbers of `strings`."""
    for name in names:
        column: list[Any] = getattr(document, name)
        assert len(column) == many, name


def check_tree(parent: list[int]) -> None:
    """Check that parents come before their children."""
    for row, around in enumerate(parent):
        assert -1 <= around < row


def check_texts(document: Any, *columns: list[int]) -> None:
    """Check that columns have numbers of texts, or -1."""
    for column in columns:
        assert all(-1 <= number < len(document.strings) for number in column)


def again(document: msgspec.Struct) -> Any:
    """Return the document after JSON, as the page reads it."""
    return msgspec.json.decode(msgspec.json.encode(document), type=type(document))


def adds_up(parent: list[int], value: list[int], slack: float = 0.0) -> None:
    """Check that what is directly in a node uses no more than the node."""
    inner = [0] * len(parent)
    for row, around in enumerate(parent):
        if around >= 0:
            inner[around] += value[row]
    for whole, part in zip(value, inner, strict=True):
        assert part <= whole + slack or part == pytest.approx(whole)
