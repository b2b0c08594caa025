"""The arguments of Kineto events that are kept as JSON text: operands, grids, call stacks.

They repeat in every iteration, so a row has only the number of its text, and each distinct text is decoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers = npt.NDArray[np.uint32]

NONE, LEFT_OUT, FIRST = range(3)  # numbers: of no text, of one beyond the limit, of the first text; as in scan.c
LIMIT_NBYTES = 256 * 1024**2  # of distinct texts, with what each needs next to its bytes
BESIDE_NBYTES = 100


class JsonTexts:
    """Distinct JSON texts, numbered in order of first use; `null` is none.

    At most `LIMIT_NBYTES` of them are kept. Of a hostile file, or one whose operands never repeat, the others have the
    number `LEFT_OUT`.
    """

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {b"null": NONE}
        self.nbytes = 0
        self.of_reader: Numbers = np.array([NONE, LEFT_OUT], np.uint32)  # by the numbers of a reader of events

    def number(self, text: bytes) -> int:
        """Return the number of `text`, a new one if it has none yet."""
        found = self.numbers.get(text)
        if found is not None:
            return found
        used = self.nbytes + len(text) + BESIDE_NBYTES
        if used > LIMIT_NBYTES:
            return LEFT_OUT
        self.nbytes = used
        self.numbers[text] = len(self.numbers) + FIRST - 1
        return self.numbers[text]

    def learn(self, texts: Sequence[bytes]) -> None:
        """Number the texts that a reader has found since the last call; `texts` are all of them."""
        known = len(self.of_reader) - FIRST
        if len(texts) > known:
            more = np.array([self.number(text) for text in texts[known:]], np.uint32)
            self.of_reader = np.concatenate([self.of_reader, more])

    def table(self) -> pl.Series:
        """Return the texts as String by number, null for those of no text."""
        texts = [text.decode(errors="replace") for text in self.numbers if text != b"null"]
        return pl.Series([None] * FIRST + texts, dtype=pl.String)

    def convert(self, numbers: Numbers, convert: Callable[[bytes], Any], dtype: pl.DataType) -> pl.Series:
        """Return what `convert` makes of every row's text, null for none; each distinct text is converted once."""
        used = np.zeros(len(self.numbers) + FIRST - 1, np.bool_)
        used[numbers] = True
        known = (None, None, *(text for text in self.numbers if text != b"null"))
        values = [convert(text) if text and used[at] else None for at, text in enumerate(known)]
        return pl.Series(values, dtype=dtype).gather(pl.Series(numbers))


def read_string(text: bytes) -> str | None:
    """Return the string in the JSON `text`, None if it is anything else."""
    try:
        return msgspec.json.decode(text, type=str)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
