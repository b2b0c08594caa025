"""What the online miner returns: iterations, the loop that they belong to, and events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from deepprof.mining.iterations import Iterations
from deepprof.mining.matching import match
from deepprof.mining.online.joining import JoinedVariants
from deepprof.mining.phase import Source
from deepprof.mining.symbols import SymbolArray

Int64s: TypeAlias = npt.NDArray[np.int64]
State: TypeAlias = Literal["learning", "locked", "lost"]
Kind: TypeAlias = Literal["lock", "review", "drift", "lost", "gap"]

NO_LOOP = -1


@dataclass(frozen=True, slots=True, eq=False)
class IterationBatch:
    """Iterations, arrays of one row each: symbols [first, end) of the stream, `matched` of them as in the template.

    `edits` is an upper bound of the insertions, deletions and substitutions that turn it into the template followed at
    that time; `complete` is false for an iteration that the stream's start or end or lost records cut. `loop` numbers
    the loops from 0 on: it changes when another repetition is called the iteration, with another model or another
    level.
    """

    first: Int64s
    end: Int64s
    matched: Int64s
    edits: Int64s
    complete: npt.NDArray[np.bool_]
    loop: Int64s

    def __len__(self) -> int:
        return self.first.size

    @classmethod
    def of(cls, rows: Iterations, loop: int) -> IterationBatch:
        """Return the iterations of one loop."""
        return cls(rows.first, rows.end, rows.matched, rows.edits, rows.complete, np.full(len(rows.first), loop))

    @classmethod
    def join(cls, parts: Iterable[IterationBatch]) -> IterationBatch:
        """Return the iterations of several batches as those of one."""
        listed = list(parts)
        if len(listed) <= 1:
            return listed[0] if listed else NO_BATCH
        integers = ("first", "end", "matched", "edits", "loop")
        columns = {name: np.concatenate([getattr(part, name) for part in listed]) for name in integers}
        return cls(**columns, complete=np.concatenate([part.complete for part in listed]))


NO_BATCH = IterationBatch(*(np.empty(0, np.int64),) * 4, np.empty(0, np.bool_), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class LockedLoop:
    """A loop that is followed, or was: its number, and the template of its latest iterations from their first symbol.

    `confidence` (0..1) is the confidence that period and first symbol are right, `evidence` states why, `source` what
    determined the first symbol. `joined` maps variants of kernels to one symbol. `mined` is the template as it was
    found; `template` is newer when the iterations have changed since. `reviewed` is set when no larger window will be
    mined.
    """

    number: int
    template: SymbolArray
    mined: SymbolArray
    confidence: float
    evidence: str
    source: Source
    joined: JoinedVariants
    reviewed: bool = False

    @property
    def period(self) -> int:
        """Symbols per iteration."""
        return len(self.template)

    @property
    def has_drifted(self) -> bool:
        """Whether the template is no longer the one that was mined."""
        return self.template is not self.mined

    def is_mined_like(self, other: LockedLoop) -> bool:
        """Return whether both were mined with the same template and the same variants."""
        same = np.array_equal(self.mined, other.mined) and np.array_equal(self.joined.variants, other.joined.variants)
        return same and np.array_equal(self.joined.symbols, other.joined.symbols)

    def explains(self, symbols: SymbolArray) -> int:
        """Return how many of the symbols the template matches."""
        return int(match(self.joined.of(symbols), self.template).matched.sum())


@dataclass(frozen=True, slots=True)
class MinerEvent:
    """What the miner decided at a position of the stream: about which loop (-1 for none), and why.

    `lock`: a loop is followed from here on; `review`: a larger window was mined; `drift`: the iterations have changed,
    and their template with them; `lost`: the loop is no longer there; `gap`: records were lost here.
    """

    position: int
    kind: Kind
    loop: int
    period: int
    confidence: float
    why: str


@dataclass(slots=True)
class MinerCounts:
    """Sums over the whole stream.

    `given` is the end of the last iteration emitted, `foreign` counts the symbols before it that are in no iteration,
    `lost_records` the records known to be missing at the `gaps`.
    """

    iterations: int = 0
    foreign: int = 0
    given: int = 0
    gaps: int = 0
    lost_records: int = 0
