"""Turn passes into iterations: join halves, drop passes that match too little, add tails to the iteration before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from deepprof.mining.matching import Matches
from deepprof.mining.symbols import SymbolArray, Symbols, as_symbols

Int64Array: TypeAlias = npt.NDArray[np.int64]

_OUTSIDE = 2**40
"""Cost of a cell outside the band: more than any number of edits, far from overflow."""

Int64s = npt.NDArray[np.int64]

EXACT_SYMBOLS = 30_000  # symbols of edited iterations whose edits are counted exactly, in about a quarter of a second
TAIL = 0.1  # of the period: longer foreign sections (evaluation) stay between iterations
LATE, FOREIGN = 0.1, 0.5  # of the period: the longest end that may come late, and the longest gap before the next one
WHOLE = 0.99  # of the period: the last iteration may lack the kernels that prepare the next


@dataclass(frozen=True, slots=True, eq=False)
class Iterations:
    """Arrays of one row per iteration: symbols [first, end), `matched` of them as in the template.

    `edits` is how many insertions, deletions and substitutions turn it into the template, or an upper bound. `complete`
    is false for an iteration that the capture's start or end cuts.
    """

    first: Int64s
    end: Int64s
    matched: Int64s
    edits: Int64s
    complete: npt.NDArray[np.bool_]

    def select(self, which: slice | npt.NDArray[np.bool_]) -> Iterations:
        """Return some of the iterations."""
        rows = (self.first, self.end, self.matched, self.edits, self.complete)
        return Iterations(*(array[which] for array in rows))  # type: ignore[arg-type]


def to_iterations(matches: Matches, period: int) -> Iterations:
    """Return the passes that match half of the template, and shorter ones at both ends as incomplete iterations."""
    matches = join_halves(matches, period)
    complete = (matches.matched + matches.edits >= WHOLE * period) & (2 * matches.matched >= period)
    keep = 2 * matches.matched >= period
    sizeable = matches.matched >= max(1, 0.02 * period)
    keep[:1] |= sizeable[:1]
    keep[-1:] |= sizeable[-1:]
    rows = Iterations(
        matches.first[keep], matches.end[keep], matches.matched[keep], matches.edits[keep], complete[keep]
    )
    return absorb_tails(rows, period)


def join_halves(matches: Matches, period: int) -> Matches:
    """Join two parts of one pass that a long section of foreign symbols (autotuning, a report) separates.

    The second part begins about where the first ended in the template, at most a period later in the stream.
    """
    m = matches
    if len(m) < 2:
        return m
    both = m.matched[:-1] + m.matched[1:]
    fits = (2 * both >= period) & (both <= 1.02 * period) & (m.matched[1:] + m.edits[1:] >= WHOLE * period)
    resumes = (np.abs(m.edits[1:] - m.matched[:-1]) <= 0.1 * period) & (m.edits[:-1] <= 0.1 * period)
    near = m.first[1:] - m.end[:-1] <= period
    broken = np.maximum(m.matched[:-1], m.matched[1:]) < WHOLE * period
    halves = np.flatnonzero(fits & resumes & near & broken & (m.edits[1:] > 0))
    halves = halves[np.append(True, np.diff(halves) > 1)[: len(halves)]]
    return _joined(m, halves, period) if len(halves) else m


def _joined(m: Matches, halves: Int64s, period: int) -> Matches:
    """Return the passes with each of `halves` and the pass after it joined into one."""
    first, end, matched, edits = m.first.copy(), m.end.copy(), m.matched.copy(), m.edits.copy()
    first[halves + 1] = first[halves]
    matched[halves + 1] += matched[halves]
    missing = np.maximum(period - matched[halves + 1], 0)
    edits[halves + 1] = np.maximum(end[halves + 1] - first[halves + 1] - matched[halves + 1], missing)
    kept = np.ones(len(first), bool)
    kept[halves] = False
    return Matches(first[kept], end[kept], matched[kept], edits[kept], m.foreign)


def absorb_tails(rows: Iterations, period: int) -> Iterations:
    """Return the iterations with short foreign tails (statistics, logging) added to the one they follow, as edits."""
    following = np.append(rows.first[1:], rows.end[-1:])
    tail = following - rows.end
    tail = np.where(tail <= max(8, TAIL * period), tail, 0)
    return replace(rows, end=rows.end + tail, edits=rows.edits + tail)


def rejoin_tails(rows: Iterations, symbols: SymbolArray, template: SymbolArray) -> Iterations:
    """Return the iterations, completed where the end came late: right before the next one, after foreign symbols.

    The optimizer of a first iteration sets up its state, with kernels for every parameter, before its last kernels run.
    """
    end, matched, edits, complete = rows.end.copy(), rows.matched.copy(), rows.edits.copy(), rows.complete.copy()
    period = len(template)
    missing = period - rows.matched
    following = np.append(rows.first[1:], 0)[: len(rows.first)]
    late = ~rows.complete & (missing <= LATE * period) & (rows.edits <= 0)
    late &= (following - rows.end > missing) & (following - rows.end <= FOREIGN * period)
    for row in np.flatnonzero(late).tolist():
        tail = int(missing[row])
        if np.array_equal(symbols[following[row] - tail : following[row]], template[period - tail :]):
            edits[row] = following[row] - rows.end[row] - tail
            end[row], matched[row], complete[row] = following[row], period, True
    return Iterations(rows.first, end, matched, edits, complete)


def count_edits(rows: Iterations, symbols: SymbolArray, template: SymbolArray) -> Iterations:
    """Return the iterations with the edits of complete ones counted exactly; the matcher gives an upper bound.

    This takes a numpy step per symbol; when there are too many edited iterations, the later ones keep the upper bound.
    """
    edited = np.flatnonzero(rows.complete & (rows.edits > 0))[: EXACT_SYMBOLS // max(1, len(template))]
    edits = rows.edits.copy()
    for row in edited.tolist():
        segment = symbols[rows.first[row] : rows.end[row]]
        edits[row] = min(edits[row], edit_distance(segment, template, int(edits[row])))
    return replace(rows, edits=edits)


def cut_ends(rows: Iterations, length: int, period: int, begins: bool, ends: bool) -> Iterations:
    """Return the iterations of a section; at an end with symbols missing, only a wholly seen one is complete."""
    complete = rows.complete.copy()
    if begins:
        complete[:1] &= rows.matched[:1] >= period
    if ends and len(rows.end) and rows.end[-1] == length:
        complete[-1:] &= rows.matched[-1:] >= period
    return replace(rows, complete=complete)


def shifted(rows: Iterations, by: int) -> Iterations:
    """Return the iterations moved along the sequence."""
    return replace(rows, first=rows.first + by, end=rows.end + by)


def join_parts(parts: Sequence[Iterations]) -> Iterations:
    """Return the iterations of several sections, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Iterations(*(np.concatenate([getattr(part, name) for part in parts]) for name in Iterations.__slots__))


def split_at(rows: Iterations, breaks: Int64s) -> Iterations:
    """Return the iterations; each that spans a break is cut there into incomplete ones."""
    inside = [breaks[(breaks > a) & (breaks < b)] for a, b in zip(rows.first, rows.end, strict=True)]
    pieces = np.array([len(cuts) + 1 for cuts in inside], np.int64)
    if not (pieces > 1).any():
        return rows
    first = np.concatenate([np.append(a, cuts) for a, cuts in zip(rows.first, inside, strict=True)])
    end = np.concatenate([np.append(cuts, b) for b, cuts in zip(rows.end, inside, strict=True)])
    matched = np.minimum(np.repeat(rows.matched, pieces), end - first)
    complete = np.repeat(rows.complete & (pieces == 1), pieces)
    return Iterations(first, end, matched, np.repeat(rows.edits, pieces), complete)


def edit_distance(a: Symbols, b: Symbols, band: int) -> int:
    """Return the fewest insertions, deletions and substitutions that turn `a` into `b` (Levenshtein distance).

    Only alignments within `band` symbols of the two ends' diagonals are examined (Ukkonen, 1985): the result is exact
    whenever it is at most `band`, else an upper bound. Common ends are stripped first; the rest, m symbols, takes m
    numpy steps of O(band + difference of the lengths) each, and as much memory.

    Raises:
        ValueError: for a negative band, and for symbols that `as_symbols` refuses.
    """
    if band < 0:
        raise ValueError(f"band must not be negative, not {band}")
    left, right = _strip_common_ends(as_symbols(a), as_symbols(b))
    if not left.size or not right.size:
        return max(left.size, right.size)
    return _banded(left, right, band)


def _strip_common_ends(left: SymbolArray, right: SymbolArray) -> tuple[SymbolArray, SymbolArray]:
    head = _common_head(left, right)
    left, right = left[head:], right[head:]
    tail = _common_head(left[::-1], right[::-1])
    return left[: left.size - tail], right[: right.size - tail]


def _common_head(left: SymbolArray, right: SymbolArray) -> int:
    size = min(left.size, right.size)
    differs = np.flatnonzero(left[:size] != right[:size])
    return int(differs[0]) if differs.size else size


def _banded(left: SymbolArray, right: SymbolArray, band: int) -> int:
    """Return the distance, one row per symbol of `left`; cell d of row i is column i + low + d of the classic table."""
    slope = right.size - left.size
    low, width = min(0, slope) - band, abs(slope) + 2 * band + 1
    offsets = np.arange(width)
    # `right` is padded at both ends with a symbol that equals no other; those cells never lead back into the table.
    padded = np.full(left.size + width + right.size, -1, np.int64)
    shift = -low
    padded[shift : shift + right.size] = right
    columns = low + offsets
    row = np.where((columns >= 0) & (columns <= right.size), columns, _OUTSIDE)
    for i, symbol in enumerate(left.tolist()):
        row = _next_row(row, padded[i : i + width] != symbol, offsets)
        first_valid = -(low + i + 1)
        row[: max(0, first_valid)] = _OUTSIDE
    return int(row[right.size - left.size - low])


def _next_row(row: Int64Array, differs: npt.NDArray[np.bool_], offsets: Int64Array) -> Int64Array:
    best = row + differs
    np.minimum(best[:-1], row[1:] + 1, out=best[:-1])
    # A cell may be reached from any cell to its left, at one edit per column: a running minimum of cost minus column.
    return np.minimum.accumulate(best - offsets) + offsets
