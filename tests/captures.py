"""Simulated captures taken apart: events, spans and idle time, counted from the JSON alone."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

Span = tuple[int, int]
Event = dict[str, Any]
Found = list[tuple[Span, Event]]

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def load(path: Path) -> Any:
    """Return the document of a capture, compressed or not."""
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)


def absolute(document: Any, event: Event) -> Span:
    """Return begin and end on the trace's own clock."""
    start = document["baseTimeNanoseconds"] + round(event["ts"] * 1000)
    return start, start + round(event["dur"] * 1000)


def select(document: Any, *categories: str, name: str = "", stream: int | None = None) -> Found:
    """Return events of some categories in time order, those alone whose name contains `name`."""
    found = [
        (absolute(document, event), event)
        for event in document["traceEvents"]
        if event.get("cat") in categories
        and name in event["name"]
        and (stream is None or event["args"].get("stream") == stream)
    ]
    return sorted(found, key=lambda each: each[0])


def spans(found: Found) -> list[Span]:
    """Return the spans of events."""
    return [span for span, _ in found]


def merge(parts: list[Span]) -> list[Span]:
    """Return the union of spans."""
    merged: list[Span] = []
    for start, end in sorted(parts):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def total(parts: list[Span]) -> int:
    """Return the length of the union of spans."""
    return sum(end - start for start, end in merge(parts))


def gaps(parts: list[Span]) -> list[Span]:
    """Return what is between spans, but outside all of them."""
    union = merge(parts)
    return [(a[1], b[0]) for a, b in pairwise(union)]


def common(one: list[Span], other: list[Span]) -> int:
    """Return how long the unions of both run together."""
    return total(one) + total(other) - total([*one, *other])


def idle(document: Any) -> list[Span]:
    """Return when no stream of the device does anything."""
    return gaps(spans(select(document, *DEVICE)))


def extent(document: Any) -> int:
    """Return the time from the device's first event to its last."""
    union = merge(spans(select(document, *DEVICE)))
    return union[-1][1] - union[0][0]
