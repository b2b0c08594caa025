"""A rank's names: every text has one id for as long as the rank lives, and is sent once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.live.wire.limits import LIMITS, WireLimits
from deepprof.live.wire.naming import NewNames, shorten_names

OTHERS = "(names beyond the limit)"


class RankNameTable:
    """Gives ids from 0 on. Beyond a daemon's limits for a rank, new texts share one id."""

    def __init__(self, known: Sequence[str] = (), limits: WireLimits = LIMITS) -> None:
        self.limits = limits
        self.texts = list(known)
        self.ids = {text: number for number, text in enumerate(self.texts)}
        self.nbytes = sum(len(text.encode()) for text in self.texts)
        self.sent = len(self.texts)

    def find(self, texts: Sequence[str]) -> npt.NDArray[np.uint32]:
        """Return the ids of `texts`; new texts get new ids."""
        return np.fromiter((self.one(text) for text in texts), np.uint32, len(texts))

    def one(self, text: str) -> int:
        """Return the id of one text."""
        number = self.ids.get(text)
        return self._add(text) if number is None else number

    def _add(self, text: str) -> int:
        fits = len(text.encode()) <= self.limits.name_nbytes
        fitted = text if fits else str(shorten_names(pl.Series([text]), self.limits.name_nbytes)[0])
        nbytes = self.nbytes + len(fitted.encode()) + len(OTHERS)  # space is kept for the name that all others share
        room = len(self.texts) < self.limits.names - 1 and nbytes <= self.limits.names_nbytes
        if not room and text != OTHERS:
            return self.one(OTHERS)
        number = self.ids.setdefault(fitted, len(self.texts))
        if number == len(self.texts):
            self.texts.append(fitted)
            self.nbytes += len(fitted.encode())
        if room:
            self.ids[text] = number
        return number

    def take(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the names not yet sent, in pieces of a first id and its texts that fit into a message."""
        if self.sent == len(self.texts):
            return
        fresh, first = pl.Series(self.texts[self.sent :], dtype=pl.String), self.sent
        self.sent = len(self.texts)
        for at, texts in NewNames(fresh, self.limits).take(len(fresh)):
            yield first + at, texts
