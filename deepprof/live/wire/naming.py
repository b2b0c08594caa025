"""The names of a trace as they are sent: each once, before or with its first use."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import polars as pl

from deepprof.live.wire.limits import WireLimits

NAME_NBYTES = 8  # most bytes that a name takes in a message in addition to its text
MARK_CHARS = 16


class NewNames:
    """The names not yet sent. A piece of them uses at most a quarter of a message, and has at most `batch_names`."""

    def __init__(self, names: pl.Series, limits: WireLimits) -> None:
        self.names = shorten_names(names, limits.name_nbytes)
        self.ends_nbytes = np.cumsum(self.names.str.len_bytes().fill_null(0).to_numpy().astype(np.int64) + NAME_NBYTES)
        self.piece_nbytes, self.most = limits.message_nbytes // 4, limits.batch_names
        self.sent = 0

    def take(self, until: int) -> Iterator[tuple[int, list[str]]]:
        """Yield the names up to the id `until` that were not sent yet, in pieces of a first id and its texts."""
        while self.sent < until:
            before = int(self.ends_nbytes[self.sent - 1]) if self.sent else 0
            fits = int(np.searchsorted(self.ends_nbytes, before + self.piece_nbytes, side="right"))
            first, self.sent = self.sent, min(until, max(fits, self.sent + 1), self.sent + self.most)
            yield first, self.names.slice(first, self.sent - first).to_list()


def shorten_names(names: pl.Series, nbytes: int) -> pl.Series:
    """Return the names; one of more than `nbytes` is cut and ends with a mark that keeps different names different."""
    if not len(names) or (names.str.len_bytes().max() or 0) <= nbytes:  # type: ignore[operator]
        return names
    texts = [text if len(text.encode()) <= nbytes else _shorten(text, nbytes) for text in names]
    return pl.Series(names.name, texts, dtype=pl.String)


def _shorten(text: str, nbytes: int) -> str:
    """Return the beginning of `text` and a mark, which is a hash of the whole text; together at most `nbytes`."""
    mark = "…" + hashlib.sha256(text.encode()).hexdigest()[:MARK_CHARS]
    return text.encode()[: nbytes - len(mark.encode())].decode("utf-8", "ignore") + mark
