"""Join variants of one kernel into one symbol, in a stream as in the template found in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from deepprof.mining.loops import MinedLoop
from deepprof.mining.symbols import SymbolArray, as_symbols

UInt32s: TypeAlias = npt.NDArray[np.uint32]

NONE: UInt32s = np.empty(0, np.uint32)


@dataclass(frozen=True, slots=True, eq=False)
class JoinedVariants:
    """Maps each of `variants`, ascending, to its entry of `symbols`; all other symbols stay as they are.

    `table` is the same map for 16-bit symbols, None without variants.
    """

    variants: UInt32s = field(default_factory=lambda: NONE)
    symbols: UInt32s = field(default_factory=lambda: NONE)
    table: npt.NDArray[np.uint16] | None = None

    @classmethod
    def make(cls, variants: UInt32s, symbols: UInt32s) -> JoinedVariants:
        """Return the map from ascending variants to symbols, none of them larger than its variant."""
        if not len(variants):
            return cls()
        table = np.arange(1 << 16, dtype=np.uint16)
        short = variants < len(table)
        table[variants[short]] = symbols[short]
        return cls(variants, symbols, table)

    @classmethod
    def seen_in(cls, loop: MinedLoop, stream: SymbolArray) -> JoinedVariants:
        """Return the variants that the miner has joined, from iterations without edits that differ from the template.

        A variant never occurs in the template itself. An iteration with a variant that does was joined from parts, and
        is not used.
        """
        rows, period = loop.iterations, loop.period
        exact = (rows.edits == 0) & (rows.matched == period) & (rows.end - rows.first == period)
        segments = stream[rows.first[exact][:, None] + np.arange(period)]
        differs = segments != loop.template
        usable = ~(differs & np.isin(segments, loop.template)).any(axis=1)
        row, place = np.nonzero(differs & usable[:, None])
        variants, seen = np.unique(segments[row, place], return_index=True)
        symbols = loop.template[place[seen]]
        return cls.make(variants[symbols < variants].astype(np.uint32), symbols[symbols < variants].astype(np.uint32))

    def of(self, symbols: SymbolArray) -> SymbolArray:
        """Return the symbols with every variant replaced; O(n), O(n log variants) above 16 bits."""
        if self.table is None:
            return symbols
        if symbols.dtype == np.uint16:
            return self.table[symbols]
        place = np.minimum(np.searchsorted(self.variants, symbols), len(self.variants) - 1)
        return as_symbols(np.where(self.variants[place] == symbols, self.symbols[place], symbols))
