"""The suffix tree of a sequence of symbols, kept as a suffix array, an LCP array and their intervals.

DeepProf (Gu et al., 2017, section IV-B) mines the training iteration on the suffix tree of the operations. The internal
nodes of that tree are exactly the LCP intervals of the suffix array (Abouelhoda, Kurtz and Ohlebusch, 2004), which use
8 bytes a symbol instead of some 900. The C library does the work where it was compiled, else `suffix_numpy`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from deepprof.mining import native, suffix_numpy
from deepprof.mining.symbols import SymbolArray, Symbols, as_symbols, renumber

if TYPE_CHECKING:
    import ctypes

Int32Array: TypeAlias = npt.NDArray[np.int32]

MAX_SYMBOLS = 2**31 - 1
"""The longest sequence: positions are int32."""


def suffix_array(symbols: Symbols) -> Int32Array:
    """Return the starts of all suffixes in lexicographic order, int32, one per symbol.

    The end of the sequence counts as smaller than every symbol. O(n) time in C (SA-IS: Nong, Zhang and Chan, 2009),
    O(n log² n) in numpy; O(n) memory.

    Raises:
        ValueError: for what `as_symbols` refuses, and for 2^31 symbols or more.
        MemoryError: when there is not enough memory.
    """
    return _suffix_array(_checked(symbols))


def lcp_array(symbols: Symbols, suffixes: npt.ArrayLike) -> Int32Array:
    """Return the common prefix lengths of neighbouring suffixes, int32, one per symbol.

    Entry i belongs to the suffixes i - 1 and i of the suffix array; entry 0 is 0. O(n) time in C (by the permuted LCP:
    Kärkkäinen, Manzini and Puglisi, 2009), O(n log l) in numpy, l being the longest repeat.

    Raises:
        ValueError: for what `suffix_array` refuses, and for suffixes that are not a permutation of the positions.
    """
    text = _checked(symbols)
    return _lcp_array(text, _permutation(suffixes, text.size))


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The internal nodes of a suffix tree, children before parents, the root last; int32, one entry per node.

    Attributes:
        depth: symbols on the path from the root: the length of the repeated substring.
        count: leaves below: how often it occurs, overlapping occurrences included.
        left: index into the suffix array of the first of these leaves; they are adjacent.
    """

    depth: Int32Array
    count: Int32Array
    left: Int32Array

    def __len__(self) -> int:
        return self.depth.size


@dataclass(frozen=True, slots=True)
class SuffixTree:
    """A suffix tree: n symbols, their suffix array and LCP array (int32, n entries each).

    `build` makes one from symbols. Beyond them it uses 12 bytes a symbol while it sorts and compares, 8 that stay, and
    12 more for `nodes`; with symbols far above their number, or hardly any repeat, it takes up to 8 more while it
    sorts.

    Raises:
        ValueError: for arrays that are not contiguous int32 with one entry per symbol.
    """

    symbols: SymbolArray
    suffixes: Int32Array
    lcp: Int32Array

    def __post_init__(self) -> None:
        # The C code reads their memory directly.
        for array in (self.suffixes, self.lcp):
            if array.dtype != np.int32 or array.shape != self.symbols.shape or not array.flags.c_contiguous:
                raise ValueError("suffixes and lcp must be contiguous int32 arrays of one entry per symbol")

    @classmethod
    def build(cls, symbols: Symbols) -> SuffixTree:
        """Return the suffix tree of the symbols; time, memory and errors are those of `suffix_array`."""
        text = _checked(symbols)
        suffixes = _suffix_array(text)
        return cls(text, suffixes, _lcp_array(text, suffixes))

    def __len__(self) -> int:
        return self.symbols.size

    def nodes(self) -> _Nodes:
        """Return all internal nodes, at most n of them, the root included; none for the empty sequence. O(n)."""
        if len(self) and int(self.lcp.min()) < 0:
            raise ValueError("no two suffixes share a negative number of symbols: lcp is no LCP array")
        found = native.library()
        return _Nodes(*(suffix_numpy.nodes(self.lcp) if found is None else _native_nodes(found, self.lcp)))

    def classes(self, k: int) -> Int32Array:
        """Return the class of the k symbols from every position on, int32, max(0, n - k + 1) entries.

        Equal numbers mean equal k-grams. The classes are the tree cut at depth k, numbered densely from 0 in
        lexicographic order. O(n).

        Raises:
            ValueError: for k below 1.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        last = len(self) - k
        if last < 0:
            return np.empty(0, np.int32)
        whole = self.suffixes <= last
        # A suffix shorter than k starts no class, and no longer suffix shares k symbols with it.
        numbers = np.cumsum((self.lcp < k) & whole, dtype=np.int32)
        classes = np.empty(last + 1, np.int32)
        classes[self.suffixes[whole]] = numbers[whole] - np.int32(1)
        return classes


def _checked(symbols: Symbols) -> SymbolArray:
    text = as_symbols(symbols)
    if text.size > MAX_SYMBOLS:
        raise ValueError(f"at most {MAX_SYMBOLS} symbols fit one suffix tree, not {text.size}; mine a window instead")
    return text


def _permutation(suffixes: npt.ArrayLike, length: int) -> Int32Array:
    # The C code uses these numbers as indices without checking them.
    array = np.asarray(suffixes)
    if array.shape != (length,) or (length and not _is_permutation(array)):
        raise ValueError(f"suffixes must be a permutation of the {length} positions")
    return np.require(array, np.int32, ["C", "A"])


def _is_permutation(array: npt.NDArray[Any]) -> bool:
    if array.dtype.kind not in "iu" or int(array.min()) < 0 or int(array.max()) >= array.size:
        return False
    seen = np.zeros(array.size, np.bool_)
    seen[array] = True
    return bool(seen.all())


def _suffix_array(text: SymbolArray) -> Int32Array:
    found = native.library()
    dense, alphabet = renumber(text)
    if found is None:
        return suffix_numpy.suffix_array(dense)
    array = np.empty(dense.size, np.int32)
    sort = found.dp_suffix_array_u16 if dense.dtype == np.uint16 else found.dp_suffix_array_u32
    if sort(native.address(dense), native.address(array), dense.size, alphabet) != 0:
        raise MemoryError(f"no memory to sort {dense.size} suffixes")
    return array


def _lcp_array(text: SymbolArray, suffixes: Int32Array) -> Int32Array:
    found = native.library()
    if found is None:
        return suffix_numpy.lcp_array(text, suffixes)
    scratch, lcp = np.empty(text.size, np.int32), np.empty(text.size, np.int32)
    compare = found.dp_lcp_array_u16 if text.dtype == np.uint16 else found.dp_lcp_array_u32
    compare(*(native.address(array) for array in (text, suffixes, scratch, lcp)), text.size)
    return lcp


def _native_nodes(found: ctypes.CDLL, lcp: Int32Array) -> list[Int32Array]:
    # Periodic sequences have nearly n nodes: then a view of the whole arrays is cheaper than copies.
    arrays = [np.empty(lcp.size, np.int32) for _ in range(3)]
    count = found.dp_nodes(native.address(lcp), lcp.size, *map(native.address, arrays))
    return [array[:count] if 2 * count > lcp.size else array[:count].copy() for array in arrays]
