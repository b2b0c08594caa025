"""Which late launches are due to a stall of the host: those that it could have made while it was held up.

A host that waits, loads data, allocates or is blocked gives up its lead. Afterwards the device waits for launches until
the host has filled the queue again, at most as long as the device was busy during the stall: without the stall the host
would be ahead by that, and any idle time that the host causes would be shorter. What comes later, or before the first
stall, is the host's own slowness. A kernel that is launched while the host already waits for it begins a little later
on an idle device, which is due to the wait, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from deepprof.metrics.spans import Spans, covered, elapsed

Int64s = npt.NDArray[np.int64]

FILLED_NS = 2_000_000  # a queue is filled when what is launched begins so much later: a short lead is soon lost again
NEVER = np.int64(1 << 61)


class Due(NamedTuple):
    """Spans [start, end) in which late launches are due to the stalls of these numbers, in order of time."""

    starts: Int64s
    ends: Int64s
    stalls: Int64s


def find_due(idle: Spans, starts: Int64s, ends: Int64s, busy: Spans, filled: Int64s) -> Due:
    """Return which idle time is due to which stall [start, end), that within it among it.

    Stalls are sorted and disjoint. `idle` is when the device waits for the host, `busy` when it works: what of a stall
    lies in it is lead that the host gives up. `filled` is when launches are made that find the queue filled, sorted.
    """
    filled_at = np.append(filled, NEVER)[np.searchsorted(filled, ends)]
    following = np.append(starts[1:], NEVER)
    limit = np.minimum(filled_at, following)
    given, inside, wanted = covered(busy, starts, ends), covered(idle, starts, ends), covered(idle, ends, limit)
    used = _spend(given, inside, wanted, filled_at >= following)
    after, stalls, begins, lengths = np.array(used, np.int64).reshape(-1, 4).T
    since = elapsed(idle, ends)[after] + begins
    numbers = np.arange(len(starts))
    found = (
        np.append(starts, _when_elapsed(idle, since, "right")),
        np.append(ends, _when_elapsed(idle, since + lengths, "left")),
        np.append(numbers, stalls),
    )
    order = np.argsort(found[0], kind="stable")
    return Due(*(each[order] for each in found))


def _spend(
    given: Int64s, inside: Int64s, wanted: Int64s, kept: npt.NDArray[np.bool_]
) -> list[tuple[int, int, int, int]]:
    """Return what lead is used after each stall: after which, from which stall it is, from when on, and how much.

    Times are in idle time since the stall. The oldest lead is used first, also by the idle time `inside` later stalls,
    which are to blame for it themselves. Lead that is not used is still lost later, but no longer once the queue is
    filled again (not `kept`).
    """
    used, leads = list[tuple[int, int, int, int]](), deque[tuple[int, int]]()
    rows = zip(given.tolist(), inside.tolist(), wanted.tolist(), kept.tolist(), strict=True)
    for at, (more, own, want, keeps) in enumerate(rows):
        for _ in _take(leads, own):
            pass
        leads.append((at, more))
        spent = 0
        for stall, amount in _take(leads, want):
            used.append((at, stall, spent, amount))
            spent += amount
        if not keeps:
            leads.clear()
    return used


def _take(leads: deque[tuple[int, int]], wanted: int) -> Iterator[tuple[int, int]]:
    """Take that much of the leads, the oldest first, as far as there is any; yield from which stall how much is."""
    while leads and wanted > 0:
        stall, left = leads.popleft()
        amount = min(left, wanted)
        if amount < left:
            leads.appendleft((stall, left - amount))
        wanted -= amount
        if amount:
            yield stall, amount


def find_filled(launches: Int64s, starts: Int64s) -> Int64s:
    """Return when launches are made that find the queue filled, sorted; `starts` is when what is launched begins."""
    return np.sort(launches[starts - launches > FILLED_NS])


def _when_elapsed(spans: Spans, amounts: Int64s, side: Literal["left", "right"]) -> Int64s:
    """Return when that much of the spans has passed, of amounts that do pass; at a span's end, or the next one's start.

    `side` is "left" for the end, and "right" for the start.
    """
    passed = np.append(0, np.cumsum(spans.ends - spans.starts))
    at = np.clip(np.searchsorted(passed, amounts, side=side) - 1, 0, max(0, len(spans.starts) - 1))
    return np.asarray(spans.starts[at] + amounts - passed[at]) if len(spans.starts) else amounts
