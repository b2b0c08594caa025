"""Which late launches are due to a wait of the host: those that it could have made while it waited.

A host that waits gives up its lead. Afterwards the device waits for launches until the host has filled the queue again,
at most as long as the host waited for a busy device: without the wait it would be ahead by that, and any idle time that
the host causes would be shorter. What comes later, or before the first wait, is the host's own slowness. A kernel that
is launched while the host already waits for it begins a little later on an idle device, which is due to the wait, too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from deepprof.metrics.spans import Spans, covered, elapsed, union

Int64s = npt.NDArray[np.int64]

FILLED_NS = 2_000_000  # a queue is filled when what is launched begins so much later: a short lead is soon lost again
NEVER = np.int64(1 << 61)


def find_due(idle: Spans, starts: Int64s, ends: Int64s, busy: Spans, filled: Int64s) -> Spans:
    """Return the idle time that is due to waits [start, end), that within them among it; waits are sorted, disjoint.

    `idle` is when the device waits for the host, `busy` when it works: what of a wait lies in it is lead that the host
    gives up. `filled` is when launches are made that find the queue filled, sorted.
    """
    if not idle.total_ns:
        return Spans(starts, ends)
    filled_at = np.append(filled, NEVER)[np.searchsorted(filled, ends)]
    following = np.append(starts[1:], NEVER)
    limit = np.minimum(filled_at, following)
    lead = _carry(covered(busy, starts, ends), covered(idle, ends, limit), filled_at >= following)
    used = _when_elapsed(idle, elapsed(idle, ends) + lead)
    return union(starts, np.maximum(np.minimum(used, limit), ends))


def _carry(given: Int64s, wanted: Int64s, kept: npt.NDArray[np.bool_]) -> Int64s:
    """Return the lead that can be used after each wait: what it gave up, and what is left where `kept` from the last.

    Lead that is not used until the next wait is still lost then; once the queue is filled again it no longer is.
    """
    leads, left = np.zeros(len(given), np.int64), 0
    for at, (more, use, keeps) in enumerate(zip(given.tolist(), wanted.tolist(), kept.tolist(), strict=True)):
        leads[at] = left + more
        left = max(0, left + more - use) if keeps else 0
    return leads


def find_filled(launches: Int64s, starts: Int64s) -> Int64s:
    """Return when launches are made that find the queue filled, sorted; `starts` is when what is launched begins."""
    return np.sort(launches[starts - launches > FILLED_NS])


def _when_elapsed(spans: Spans, amounts: Int64s) -> Int64s:
    """Return when that much of the spans has passed, `NEVER` where they are shorter."""
    passed = np.append(0, np.cumsum(spans.ends - spans.starts))
    at = np.searchsorted(passed, amounts, side="left")
    inside = np.clip(at, 1, len(spans.starts)) - 1
    return np.where(at >= len(passed), NEVER, spans.starts[inside] + amounts - passed[inside])
