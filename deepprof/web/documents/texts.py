"""Texts of a document: each once, columns have their numbers."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from deepprof.render.json import readable
from deepprof.render.plain import shorten

MOST_CHARS = 1_000  # of a text: a template's name can have any length, and people read its ends
NO_TEXT = -1


class TextTable:
    """The distinct texts of a document, in the order in which they arrived."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def strings(self) -> list[str]:
        """All texts, by number."""
        return [*self._numbers]

    def number(self, text: str | None) -> int:
        """Return the number of a text, -1 for None."""
        return NO_TEXT if text is None else self._numbers.setdefault(tidy(text), len(self._numbers))

    def column(self, texts: pl.Series) -> list[int]:
        """Return the number of every text, -1 for null."""
        distinct = texts.cast(pl.String).unique(maintain_order=True)
        numbers = pl.DataFrame({"text": distinct, "number": self.numbers(distinct)})
        joined = (
            texts.cast(pl.String)
            .to_frame("text")
            .join(numbers, on="text", how="left", maintain_order="left", nulls_equal=True)
        )
        return joined["number"].to_list()

    def numbers(self, texts: Iterable[str | None]) -> list[int]:
        """Return the number of each of a few texts."""
        return [self.number(text) for text in texts]


def tidy(text: str) -> str:
    """Return a text that can be encoded, without the middle of one that is too long."""
    return shorten(readable(text), MOST_CHARS)
