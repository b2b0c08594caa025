"""The texts of a rank's name ids, and marks that classify the records with every name."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import polars as pl

from deepprof.live.service.session.columns import Array, Marks
from deepprof.metrics.evidence import LOOPS, order, trust_in
from deepprof.metrics.host import GRAPH_LAUNCHES, OPTIMIZER, WAITS, family, is_inner
from deepprof.metrics.streams import COLLECTIVE
from deepprof.mining.evidence import Trust

OPTIMIZER_MARK, COLLECTIVE_MARK, WAIT_MARK, GRAPH_MARK = 1, 2, 4, 8
MARKS = {OPTIMIZER_MARK: OPTIMIZER, COLLECTIVE_MARK: COLLECTIVE, WAIT_MARK: WAITS, GRAPH_MARK: GRAPH_LAUNCHES}
MOST_BLOCKS = 64


@dataclass(slots=True, eq=False)
class SessionNames:
    """Texts by id, and their marks. `blocks` are the texts packed so far: names are only added, and saved often."""

    texts: list[str] = field(default_factory=list)
    _marks: Array = field(default_factory=lambda: np.zeros(1024, np.uint8))
    blocks: list[bytes] = field(default_factory=list)
    packed: int = 0

    def add(self, texts: Sequence[str], first: int) -> None:
        """Take texts for the ids from `first` on; ids known already are skipped. `ValueError` for missing names."""
        known = len(self.texts)
        if first > known:
            raise ValueError(f"names from id {first} on, but only {known} are known")
        new = texts[known - first :]
        if new:
            self.texts.extend(new)
            self._note(known, _mark(new))

    def _note(self, at: int, marks: Array) -> None:
        room = len(self._marks)
        while room < at + len(marks):
            room *= 2
        if room > len(self._marks):
            self._marks = np.append(self._marks, np.zeros(room - len(self._marks), np.uint8))
        self._marks[at : at + len(marks)] = marks

    @property
    def marks(self) -> Array:
        """The marks of every id."""
        return self._marks[: len(self.texts)]

    @property
    def optimizer(self) -> Marks:
        """Which ids have the name of an optimizer."""
        return np.asarray((self.marks & OPTIMIZER_MARK) != 0)

    def pack(self) -> list[bytes]:
        """Return all texts as bytes; in most calls only the texts new since the last call are packed."""
        if self.packed < len(self.texts):
            if len(self.blocks) >= MOST_BLOCKS:
                self.blocks, self.packed = [], 0
            self.blocks.append(zlib.compress(msgspec.msgpack.encode(self.texts[self.packed :]), 1))
            self.packed = len(self.texts)
        return self.blocks

    @classmethod
    def unpack(cls, blocks: list[bytes]) -> SessionNames:
        """Return the names from the bytes that `pack` made. `ValueError` for other bytes."""
        names = cls()
        try:
            for block in blocks:
                names.add(msgspec.msgpack.decode(zlib.decompress(block), type=list[str]), len(names.texts))
        except (zlib.error, msgspec.DecodeError) as error:
            raise ValueError(f"the names are damaged: {error}") from error
        names.blocks, names.packed = list(blocks), len(names.texts)
        return names


def _mark(texts: Sequence[str]) -> Array:
    column = pl.Series(texts, dtype=pl.String)
    marks = np.zeros(len(texts), np.uint8)
    for bit, pattern in MARKS.items():
        marks |= bit * column.str.contains(pattern).to_numpy().astype(np.uint8)
    return marks


@dataclass(slots=True)
class FamilyName:
    """Ranges of one name without its numbers: `trust` is their origin, `telling` ranks their ends (0: begins count)."""

    text: str
    trust: Trust
    telling: float


UNSEEN, LEFT_OUT = -2, -1
RESERVED = 4  # one in this many places for families is only for step markers and the framework's loop ranges


@dataclass(slots=True, eq=False)
class RangeFamilies:
    """The families of ranges that are followed, at most `most`; `_of` is a name id's family, found at its first use."""

    most: int
    known: list[FamilyName] = field(default_factory=list)
    _of: Array = field(default_factory=lambda: np.full(1024, UNSEEN, np.int32))

    def find(self, ids: Array, framework: Marks, texts: Sequence[str]) -> Array:
        """Return the family of every range by its name id, -1 where it is not followed."""
        if len(self._of) < len(texts):
            self._of = np.append(self._of, np.full(2 * len(texts) - len(self._of), UNSEEN, np.int32))
        new, first = np.unique(ids, return_index=True)
        unseen = self._of[new] == UNSEEN
        places = np.sort(first[unseen])  # in the order of arrival
        if len(places):
            self._learn(ids[places], framework[places], texts)
        return np.asarray(self._of[ids])

    def _learn(self, ids: Array, framework: Marks, texts: Sequence[str]) -> None:
        named = pl.DataFrame({"name": [texts[i] for i in ids.tolist()]}, schema={"name": pl.String})
        found = named.select(family=pl.when(is_inner()).then(None).otherwise(family()))["family"].to_list()
        for number, text, frameworks in zip(ids.tolist(), found, framework.tolist(), strict=True):
            self._of[number] = LEFT_OUT if text is None else self._place(text, framework=frameworks)

    def _place(self, text: str, *, framework: bool) -> int:
        for place, one in enumerate(self.known):
            if one.text == text:
                return place
        trust = trust_in(text, framework=framework)
        room = self.most if trust in ("step", "loop") else self.most - self.most // RESERVED
        if len(self.known) >= room:
            return LEFT_OUT
        telling = next((rank for prefix, rank in LOOPS.items() if text.startswith(prefix)), 0.0)
        self.known.append(FamilyName(text, trust, telling))
        return len(self.known) - 1

    def end_tells(self) -> Marks:
        """Return for which families the end of a range counts, not its begin."""
        return np.array([order(one.text) < len(LOOPS) for one in self.known], np.bool_)
