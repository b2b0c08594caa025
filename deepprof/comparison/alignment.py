"""Two sequences of kernels aligned: what is in both, and what was replaced, added or removed.

Exact names are matched first, then variants of one kernel (another tile or data type) in the remaining gaps; where
nearly all names differ (a run in another precision), variants are matched first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from deepprof.results.comparison_result import Kind

Ids = npt.NDArray[np.int64]

EXACT_CELLS = 4 * 10**8  # of the table of two sequences, a bit each: 50 MB
TOO_LONG = 25 * 10**9  # 100,000 kernels each use 4 s with the search for the rotation, and 25 MB
FEW_COMMON_NAMES = (
    0.5  # share of kernels with the same name; less means another precision or library, where variants match more
)


class KernelSymbols(Struct, frozen=True, eq=False):
    """A sequence of kernels: `exact` ids of names, and `coarse` ids that variants of a kernel share."""

    exact: Ids
    coarse: Ids

    def __len__(self) -> int:
        """Return the number of kernels."""
        return len(self.exact)

    def part(self, first: int, end: int) -> KernelSymbols:
        """Return the kernels from `first` to before `end`."""
        return KernelSymbols(self.exact[first:end], self.coarse[first:end])

    def rotate(self, by: int) -> KernelSymbols:
        """Return the same circle of kernels, beginning `by` kernels later."""
        return KernelSymbols(np.roll(self.exact, -by), np.roll(self.coarse, -by))


class AlignedSpan(Struct, frozen=True):
    """A[a_first:a_end] became B[b_first:b_end]. `alike`: kernel by kernel they are the same or variants."""

    kind: Kind
    a_first: int
    a_end: int
    b_first: int
    b_end: int
    alike: bool


Block = tuple[int, int, int]  # where in A, where in B, how long


def align(a: KernelSymbols, b: KernelSymbols) -> list[AlignedSpan]:
    """Return the spans that turn A into B, in order; together they cover both. O(n · m / 64) time."""
    blocks = match(a.exact, b.exact)
    if 2 * total(blocks) < FEW_COMMON_NAMES * (len(a) + len(b)):
        variants = match(a.coarse, b.coarse)
        blocks = variants if total(variants) > 2 * total(blocks) else blocks
    return [run for run in _walk(a, b, blocks) if run.a_end > run.a_first or run.b_end > run.b_first]


def _walk(a: KernelSymbols, b: KernelSymbols, blocks: Sequence[Block]) -> Iterator[AlignedSpan]:
    """Yield the spans of all blocks and of the gaps before, between and after them."""
    i = j = 0
    for at_a, at_b, length in (*blocks, (len(a), len(b), 0)):
        yield from _align_gap(a, b, (i, at_a), (j, at_b))
        yield from _split_block(a, b, (at_a, at_b, length))
        i, j = at_a + length, at_b + length


def _align_gap(
    a: KernelSymbols, b: KernelSymbols, of_a: tuple[int, int], of_b: tuple[int, int]
) -> Iterator[AlignedSpan]:
    """Yield the spans of a gap in which no exact name is shared: variants, and what is between them."""
    (i, a_end), (j, b_end) = of_a, of_b
    for at_a, at_b, length in match(a.coarse[i:a_end], b.coarse[j:b_end]):
        yield _unmatched(i, of_a[0] + at_a, j, of_b[0] + at_b)
        i, j = of_a[0] + at_a + length, of_b[0] + at_b + length
        yield from _split_block(a, b, (i - length, j - length, length))
    yield _unmatched(i, a_end, j, b_end)


def _unmatched(a_first: int, a_end: int, b_first: int, b_end: int) -> AlignedSpan:
    kind: Kind = "added" if a_first == a_end else "removed" if b_first == b_end else "replaced"
    return AlignedSpan(kind, a_first, a_end, b_first, b_end, alike=False)


def _split_block(a: KernelSymbols, b: KernelSymbols, block: Block) -> Iterator[AlignedSpan]:
    """Yield the spans of a block that matches kernel by kernel: kept, or replaced by a variant."""
    i, j, length = block
    same = a.exact[i : i + length] == b.exact[j : j + length]
    edges = [0, *(np.flatnonzero(same[1:] != same[:-1]) + 1).tolist(), length] if length else [0]
    for first, end in pairwise(edges):
        yield AlignedSpan("kept" if same[first] else "replaced", i + first, i + end, j + first, j + end, alike=True)


def match(a: Ids, b: Ids) -> list[Block]:
    """Return where A and B match, in order.

    This is the longest common subsequence where its table is small, otherwise what the cheapest edit of A into B keeps.
    """
    from rapidfuzz.distance import Indel, Levenshtein

    if not len(a) or not len(b):
        return []
    distance = Indel if len(a) * len(b) <= EXACT_CELLS else Levenshtein
    codes = distance.opcodes(a.tolist(), b.tolist())
    return [(c.src_start, c.dest_start, c.src_end - c.src_start) for c in codes if c.tag == "equal"]


def total(blocks: Sequence[Block]) -> int:
    """Return how many kernels of A match."""
    return sum(length for *_, length in blocks)


def count_kernels(runs: Sequence[AlignedSpan]) -> dict[Kind, int]:
    """Return how many kernels were kept, replaced and removed (of A) and added (of B)."""
    counts: dict[Kind, int] = {"kept": 0, "replaced": 0, "added": 0, "removed": 0}
    for run in runs:
        counts[run.kind] += run.b_end - run.b_first if run.kind == "added" else run.a_end - run.a_first
    return counts


def aligned_ratio(runs: Sequence[AlignedSpan], kernels: int) -> float:
    """Return the share of the kernels of both runs, `kernels` together, that match or are variants."""
    matched = sum(run.a_end - run.a_first for run in runs if run.alike)
    return 2 * matched / kernels if kernels else 1.0
