"""What a device does over time: every nanosecond of a window is one part."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.unseen.played import DeviceRow, HostRow
from benchmarks.unseen.vocabulary import COMMUNICATING, COMPUTING, COPYING, PARTS, WAITING

__all__ = ["Windows", "divide", "divide_host", "to_shares"]

Windows = Sequence[tuple[int, int]]
ORDER = (COMPUTING, COMMUNICATING, COPYING)  # where several happen at once, the first one counts


def divide(rows: Sequence[DeviceRow], windows: Windows) -> dict[str, int]:
    """Return the nanoseconds of every part in the windows, which do not overlap; they add up to the windows."""
    found: dict[str, int] = {}
    seen: list[tuple[int, int]] = []
    covered = 0
    for part in ORDER:
        seen += [(row.start, row.end) for row in rows if row.part == part]
        now = measure(seen, windows)
        found[part], covered = now - covered, now
    found[WAITING] = sum(end - begin for begin, end in windows) - covered
    return {part: found[part] for part in PARTS}


def divide_host(rows: Sequence[HostRow], windows: Windows) -> dict[str, int]:
    """Return the same of a recording without a device, whose operators compute."""
    computing = measure([(row.start, row.end) for row in rows if row.category == "op"], windows)
    whole = sum(end - begin for begin, end in windows)
    return {COMPUTING: computing, COPYING: 0, COMMUNICATING: 0, WAITING: whole - computing}


def measure(spans: Iterable[tuple[int, int]], windows: Windows) -> int:
    """Return how much of the windows the spans cover."""
    merged = merge(spans)
    ends = [end for _, end in merged]
    return sum(cover(merged, bisect_right(ends, first), first, last) for first, last in windows)


def cover(merged: Sequence[tuple[int, int]], place: int, first: int, last: int) -> int:
    """Return how much of one window the spans from a place on cover."""
    covered = 0
    while place < len(merged) and merged[place][0] < last:
        begin, end = merged[place]
        covered += min(end, last) - max(begin, first)
        place += 1
    return covered


def merge(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of the spans."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def to_shares(amounts: Mapping[str, int]) -> dict[str, float]:
    """Return amounts as shares of their sum."""
    whole = sum(amounts.values())
    return {name: amount / whole if whole else 0.0 for name, amount in amounts.items()}
