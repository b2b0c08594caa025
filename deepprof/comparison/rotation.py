"""Where in B's period A's iteration begins: a mined boundary may be anywhere in the period.

Short sequences of kernels that are rare in both periods vote for the rotation; the likely ones are tried, and the
kernels around the seam, where B's end meets its beginning, decide the last few kernels.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from deepprof.comparison.alignment import KernelSymbols, match

Ids = npt.NDArray[np.int64]

LENGTHS = (8, 64, 4, 2)  # kernels in a row that vote: longer where everything repeats, shorter where little is shared
RARE = 4  # most occurrences in both periods together: a repeated layer does not show its position
CANDIDATES = 4  # rotations that are tried: an edit in the middle splits the votes
SURE = 4  # matching kernels in a row that are no coincidence
ENDS = 4096  # kernels at either end that are searched for matches
SEAM = 64  # most unmatched kernels at either end among which the seam is searched for


def find_rotation(a: KernelSymbols, b: KernelSymbols) -> int:
    """Return by how many kernels B must be rotated to the left to begin where A begins; 0 without evidence."""
    votes = _vote(a.exact, b.exact)
    if len(votes):
        return _settle(a.exact, b.exact, votes)
    return _settle(a.coarse, b.coarse, _vote(a.coarse, b.coarse))  # another precision: only variants are shared


def _vote(a: Ids, b: Ids) -> Ids:
    """Return the offsets of B against A for which rare sequences vote, those with the most votes first."""
    for length in LENGTHS:
        offsets = _offsets_of_rare(*_number_grams(a, b, length))
        if len(offsets):
            values, counts = np.unique(offsets, return_counts=True)
            return np.asarray(values[np.lexsort((values, -counts))][:CANDIDATES])
    return _offsets_of_first(*_number_grams(a, b, LENGTHS[0]))


def _offsets_of_first(a: Ids, b: Ids) -> Ids:
    """Return the first few places in B of A's first kernel: in a circle that only repeats, all are good."""
    return np.flatnonzero(b == a[0])[:CANDIDATES] if len(a) else np.zeros(0, np.int64)


def _number_grams(a: Ids, b: Ids, length: int) -> tuple[Ids, Ids]:
    """Return a number for the `length` kernels (a power of two) from every position on, around the circle."""
    done = 1
    while done < length:
        following = np.concatenate([np.roll(a, -done), np.roll(b, -done)])
        both = np.concatenate([a, b])
        joint = np.unique(both * (following.max(initial=0) + 1) + following, return_inverse=True)[1]
        a, b, done = joint[: len(a)], joint[len(a) :], 2 * done
    return a, b


def _offsets_of_rare(a: Ids, b: Ids) -> Ids:
    """Return B's position minus A's, around the circle, for every two equal numbers that are rare in both."""
    size = int(max(a.max(initial=0), b.max(initial=0))) + 1
    in_a, in_b = np.bincount(a, minlength=size), np.bincount(b, minlength=size)
    rare = (in_a > 0) & (in_b > 0) & (in_a + in_b <= RARE)
    at_a, at_b = np.flatnonzero(rare[a]), np.flatnonzero(rare[b])
    at_b = at_b[np.argsort(b[at_b], kind="stable")]
    left = np.searchsorted(b[at_b], a[at_a])
    times = in_b[a[at_a]]
    which = np.repeat(left, times) + np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    return np.asarray((at_b[which] - np.repeat(at_a, times)) % max(1, len(b)))


def _settle(a: Ids, b: Ids, candidates: Ids) -> int:
    """Return the candidate that leaves the fewest edits, with its seam mended; 0 where that is as good."""
    if not len(candidates):
        return 0
    best = _cheapest(a, b, [0, *candidates.tolist()])
    mended = _mend_seam(a, np.roll(b, -best), best) % len(b)
    return _cheapest(a, b, [0, best, mended])


def _cheapest(a: Ids, b: Ids, rotations: Iterable[int]) -> int:
    """Return the rotation with the smallest distance, the first of equal ones."""
    from rapidfuzz.distance import Indel

    first, circle = a.tolist(), b.tolist()
    return min(dict.fromkeys(rotations), key=lambda by: Indel.distance(first, circle[by:] + circle[:by]))


def _mend_seam(a: Ids, b: Ids, by: int) -> int:
    """Return the rotation that best divides the unmatched kernels between both ends; `b` is rotated by `by`.

    An edit just before A's beginning looks like one just after it until both ends are compared together.
    """
    from rapidfuzz.distance import Indel

    first = [block for block in match(a[:ENDS], b[:ENDS]) if block[2] >= SURE]
    last = [block for block in match(a[-ENDS:], b[-ENDS:]) if block[2] >= SURE]
    if not first or not last:
        return by
    end_a, end_b = (at + last[-1][2] for at in last[-1][:2])
    after, before = a[-ENDS:][end_a:].tolist(), a[: first[0][0]].tolist()
    tail, head = b[-ENDS:][end_b:].tolist(), b[: first[0][1]].tolist()
    if max(len(tail), len(head)) > SEAM or not tail + head:
        return by
    seam = tail + head
    costs = [Indel.distance(after, seam[:at]) + Indel.distance(before, seam[at:]) for at in range(len(seam) + 1)]
    return by + int(np.argmin(costs)) - len(tail)
