"""A sequence of tokens found again and again in a longer one, between others and with some left out or put in.

A section of the longer one is taken from where several tokens in a row are those of the sequence as far as it goes;
behind a difference the nearest place where both agree again is sought (greedy resynchronisation). What is between two
places and short is matched by its longest common subsequence. Nothing is matched by force.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

GRAM = 4  # tokens in a row that state where one is
SURE = 8  # tokens in a row from which on a pass may begin in its middle, and fewest of a pass
REACH = 64  # tokens behind a difference within which a pass goes on
LOOK = 128  # tokens on which the choice behind a difference depends
BLOCK = 64
ODD = 0x9E3779B97F4A7C15  # of the hashes
OTHERS = 64  # places that are compared where a pass may begin


class _Run(Struct, frozen=True):
    """`length` tokens from `begin` on are those of the sequence from `place` on; runs of one pass have its number."""

    begin: int
    place: int
    length: int
    number: int


class SequenceFinder:
    """Finds a sequence of tokens, whole numbers from 0 on."""

    def __init__(self, sequence: Int64s) -> None:
        self.sequence = sequence
        self.size = len(sequence)
        self.gram = min(GRAM, self.size)
        self.sure = min(SURE, self.size)
        codes = _hash_grams(sequence, self.gram)
        self.places = np.argsort(codes, kind="stable")
        self.codes = codes[self.places]
        padded = np.concatenate([sequence, np.full(LOOK, -1, np.int64)])
        self.windows = np.lib.stride_tricks.sliding_window_view(padded, LOOK)
        self.gaps: dict[tuple[bytes, int, int], Int64s] = {}

    def find(self, tokens: Int64s, near: int | None = None) -> Int64s:
        """Return for each of `tokens` its place in the sequence, -1 where it is none of it.

        Of equal parts of the sequence that one is taken which a pass begins with, or which has the place `near`.
        """
        found = np.full(len(tokens), -1, np.int64)
        if self.size == 0 or len(tokens) < self.gram:
            return found
        runs = _Search(self, tokens, near).list_runs()
        for run in runs:
            found[run.begin : run.begin + run.length] = np.arange(run.place, run.place + run.length)
        for begin, end, place, stop, open_ended in _list_gaps(runs, len(tokens), self.size):
            self._fill(found, tokens, (begin, end), (place, stop), open_ended=open_ended)
        return _drop_short(found, runs, self.sure if near is None else self.gram)

    def _fill(
        self, found: Int64s, tokens: Int64s, within: tuple[int, int], places: tuple[int, int], *, open_ended: bool
    ) -> None:
        """Match what is between two runs; where one end is open, half of the sequence there must be found."""
        part = tokens[within[0] : within[1]]
        key = (part.tobytes(), *places)
        if key not in self.gaps:
            self.gaps[key] = _match_longest(part, self.sequence[places[0] : places[1]])
        matched = self.gaps[key]
        if open_ended and 2 * (matched >= 0).sum() < places[1] - places[0]:
            return
        free = (matched >= 0) & (found[within[0] : within[1]] < 0)
        found[within[0] : within[1]][free] = matched[free] + places[0]


class _Search:
    """One search for a sequence in `tokens`, of which `near` is one."""

    def __init__(self, finder: SequenceFinder, tokens: Int64s, near: int | None = None) -> None:
        self.finder, self.tokens, self.near = finder, tokens, near
        codes = _hash_grams(tokens, finder.gram)
        self.first = np.searchsorted(finder.codes, codes)
        self.last = np.searchsorted(finder.codes, codes, side="right")
        self.known = np.flatnonzero(self.last > self.first)
        self.begins = np.flatnonzero(codes == _hash_grams(finder.sequence[: finder.gram], finder.gram)[0])
        self.windows = _Windows(tokens)
        self.choices: dict[tuple[int, int], tuple[int, int] | None] = {}
        self.longest: dict[int, tuple[int, Int64s]] = {}

    def list_runs(self) -> list[_Run]:
        """Return the runs in the order of the tokens."""
        runs: list[_Run] = []
        at, place, number = 0, self.finder.size, -1
        while (choice := self._choose(at, place)) is not None:
            begin, found = choice
            length = self._measure(begin, found)
            number += int(not runs or found < place)
            runs.append(_Run(begin, found, length, number))
            at, place = begin + length, found + length
        return runs

    def _choose(self, at: int, place: int) -> tuple[int, int] | None:
        """Return where the next run begins, from `at` on, and its place; the pass before has come to `place`."""
        key = (self.windows.key(at), place)
        if key in self.choices:
            known = self.choices[key]
            return None if known is None else (at + known[0], known[1])
        choice = self._go_on(at, place) if place < self.finder.size else None
        near = choice is not None
        choice = choice or self._begin(at, place)
        if near or (choice is not None and choice[0] - at < LOOK // 2):
            self.choices[key] = None if choice is None else (choice[0] - at, choice[1])
        return choice

    def _go_on(self, at: int, place: int) -> tuple[int, int] | None:
        """Return the nearest place where the pass goes on, or a new one begins that goes further; None: neither."""
        best: tuple[int, int] | None = None
        least = 2 * REACH
        for begin in self._list_known(at, at + REACH):
            if begin - at >= least:
                break
            places = self._places(begin)
            behind = int(np.searchsorted(places, place))
            if behind < len(places) and begin - at + places[behind] - place < least:
                best, least = (begin, int(places[behind])), int(begin - at + places[behind] - place)
        if best is None:
            return None
        return self._prefer_new(at, best)

    def _prefer_new(self, at: int, best: tuple[int, int]) -> tuple[int, int]:
        """Return where a pass goes on, or a place that goes much further."""
        length = self._measure(*best)
        new = self.begins[np.searchsorted(self.begins, at) :][:1]
        if len(new) and new[0] <= best[0] and self._measure(int(new[0]), 0) + new[0] > length + best[0]:
            return int(new[0]), 0
        if length >= REACH:
            return best
        place, other = self._find_longest(best[0])
        return (best[0], place) if other > 2 * length + self.finder.gram else best

    def _begin(self, at: int, place: int) -> tuple[int, int] | None:
        """Return where a pass begins, at its start or in its middle, or an interrupted one goes on; None: nowhere."""
        for begin in self._list_known(at, len(self.tokens)):
            from_start = self._measure(begin, 0)
            if from_start == self.finder.size:
                return begin, 0
            found, length = self._find_longest(begin)
            if place < self.finder.size and self._measure(begin, place) == length >= self.finder.sure:
                return begin, place
            if from_start == length >= self.finder.gram and self.near is None:
                return begin, 0
            if length >= (self.finder.sure if self.near is None else self.finder.gram):
                return begin, found
        return None

    def _list_known(self, at: int, end: int) -> Iterator[int]:
        """Yield where tokens from `at` to `end` are somewhere in the sequence."""
        first = int(np.searchsorted(self.known, at))
        while first < len(self.known) and self.known[first] < end:
            yield int(self.known[first])
            first += 1

    def _places(self, begin: int) -> Int64s:
        """Return the places of the tokens from `begin` on, ascending."""
        return self.finder.places[self.first[begin] : self.last[begin]]

    def _find_longest(self, begin: int) -> tuple[int, int]:
        """Return the place from which on most tokens agree, the first of several, and their number."""
        key = self.windows.key(begin)
        if key not in self.longest:
            places = self._places(begin)
            if self.near is not None:
                return self._find_nearest(begin, places)
            if len(places) > OTHERS:  # the first, the last, and what is between them
                places = places[np.linspace(0, len(places) - 1, OTHERS).astype(np.int64)]
            self.longest[key] = _keep_longest(places, self._compare(begin, places))
        length, places = self.longest[key]
        if length < LOOK:
            return int(places[0]), length
        length, place = max((self._measure(begin, int(place)), -int(place)) for place in places)
        return -place, length

    def _find_nearest(self, begin: int, places: Int64s) -> tuple[int, int]:
        """Return the same, of several such places the one nearest to `near`."""
        lengths = np.array([self._measure(begin, int(place)) for place in places])
        best = places[lengths == lengths.max()]
        away = np.maximum(best - int(self.near or 0), int(self.near or 0) - best - lengths.max() + 1)
        return int(best[np.argmin(np.maximum(away, 0))]), int(lengths.max())

    def _compare(self, begin: int, places: Int64s) -> Int64s:
        """Return how many of `LOOK` tokens from `begin` on are those of the sequence from each of `places` on."""
        window = self.tokens[begin : begin + LOOK]
        differ = self.finder.windows[places, : len(window)] != window
        whole = ~differ.any(axis=1)
        lengths: Int64s = np.where(whole, len(window), differ.argmax(axis=1))
        return lengths

    def _measure(self, begin: int, place: int) -> int:
        """Return how many tokens from `begin` on are those of the sequence from `place` on."""
        end = min(len(self.tokens) - begin, self.finder.size - place)
        done, size = 0, BLOCK
        while done < end:
            stop = min(done + size, end)
            differ = self.tokens[begin + done : begin + stop] != self.finder.sequence[place + done : place + stop]
            at = int(differ.argmax())
            if differ[at]:
                return done + at
            done, size = stop, size * 4
        return end


class _Windows:
    """Keys of the `LOOK` tokens from a place on: equal ones have equal keys."""

    def __init__(self, tokens: Int64s) -> None:
        with np.errstate(over="ignore"):
            powers = np.cumprod(np.full(len(tokens) + 1, ODD, np.uint64))
            values = (tokens.astype(np.uint64) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
            self.sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values * powers[:-1])])
        self.powers = [int(power) for power in powers[: LOOK + 1]]
        self.inverse = pow(ODD, -1, 2**64)
        self.size = len(tokens)

    def key(self, begin: int) -> int:
        """Return the key of a window; the end of the tokens is part of it."""
        end = min(begin + LOOK, self.size)
        whole = int(self.sums[end]) - int(self.sums[begin])
        return (whole * pow(self.inverse, begin, 2**64)) % 2**64 * (LOOK + 1) + end - begin


def _keep_longest(places: Int64s, lengths: Int64s) -> tuple[int, Int64s]:
    """Return the greatest length and the places that have it; of those below `LOOK` the first is enough."""
    longest = int(lengths.max())
    found = places[lengths == longest]
    return longest, found if longest == LOOK else found[:1].copy()


def _hash_grams(tokens: Int64s, gram: int) -> UInt64s:
    """Return a code for every `gram` tokens in a row."""
    codes = np.zeros(max(len(tokens) - gram + 1, 0), np.uint64)
    with np.errstate(over="ignore"):
        for shift in range(gram):
            codes = codes * np.uint64(ODD) + tokens[shift : shift + len(codes)].astype(np.uint64) + np.uint64(1)
    return codes


def _list_gaps(runs: Sequence[_Run], tokens: int, size: int) -> Iterator[tuple[int, int, int, int, bool]]:
    """Yield what is to be filled: tokens from and to, places from and to, and whether one end is open."""
    ends = [*(run.begin for run in runs[1:]), tokens]
    for before, after, end in zip([None, *runs], [*runs, None], [*(run.begin for run in runs[:1]), *ends], strict=True):
        begin = 0 if before is None else before.begin + before.length
        reached = size if before is None else before.place + before.length
        if before is not None and after is not None and before.number == after.number:
            if end - begin <= REACH and after.place - reached <= REACH:
                yield begin, end, reached, after.place, False
            continue
        if 0 < size - reached <= REACH:
            yield begin, min(end, begin + size - reached + GRAM), reached, size, True
        if after is not None and 0 < after.place <= REACH:
            yield max(begin, end - after.place - GRAM), end, 0, after.place, True


def _match_longest(tokens: Int64s, sequence: Int64s) -> Int64s:
    """Return for every token its place in the longest common subsequence, -1 for none."""
    wide = np.zeros((len(tokens) + 1, len(sequence) + 1), np.int64)
    equal = tokens[:, None] == sequence[None, :]
    for row in range(len(tokens) - 1, -1, -1):
        best = np.maximum(wide[row + 1, :-1], np.where(equal[row], wide[row + 1, 1:] + 1, 0))
        wide[row, :-1] = np.maximum.accumulate(best[::-1])[::-1]
    found, row, column = np.full(len(tokens), -1, np.int64), 0, 0
    while row < len(tokens) and column < len(sequence) and wide[row, column]:
        if equal[row, column] and wide[row, column] == wide[row + 1, column + 1] + 1:
            found[row] = column
            row, column = row + 1, column + 1
        elif wide[row + 1, column] >= wide[row, column + 1]:
            row += 1
        else:
            column += 1
    return found


def _drop_short(found: Int64s, runs: Sequence[_Run], sure: int) -> Int64s:
    """Return the places without those of passes of which little was found: chance finds a few tokens anywhere."""
    lengths = np.bincount([run.number for run in runs], [run.length for run in runs]) if runs else np.zeros(0)
    for run in runs:
        if lengths[run.number] < sure:
            found[run.begin : run.begin + run.length] = -1
    return found
