"""Made-up boxes within boxes, and pages that show them: as a timeline, or as a flame graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from deepprof.web.documents.flame import FlameDocument, FlameMeasureEntry
from deepprof.web.documents.session import Answer, DocumentEntry, SessionDocument, ViewEntry
from deepprof.web.documents.timeline import KINDS, TimelineDocument, TimelineTrack
from deepprof.web.html import write_report

Int64s = npt.NDArray[np.int64]

SEED = 21
SPAN_NS = 1_000_000_000
WIDEST = 24  # boxes within one
FILLED = 0.95  # of a box's time, by those within it
NAMES = [f"model.layers.{layer}.{part}" for layer in range(40) for part in ("attention", "norm", "projection", "gelu")]
WORD = "attention"  # in a quarter of the names


@dataclass(frozen=True)
class NestedBoxes:
    """Columns of boxes, those around others first; `parent` is -1 for the first one, times are since its start."""

    parent: Int64s
    start_ns: Int64s
    duration_ns: Int64s
    name: Int64s  # a number of `NAMES`

    @property
    def count(self) -> int:
        return len(self.parent)


def nest_boxes(count: int, seed: int = SEED) -> NestedBoxes:
    """Return this many boxes, two to `WIDEST` in every until there are enough, of very different lengths."""
    random = np.random.default_rng(seed)
    parent, start, duration = np.full(count, -1), np.zeros(count), np.zeros(count)
    duration[0], made = SPAN_NS, 1
    for row in range(count):
        within = min(int(random.integers(2, WIDEST + 1)), count - made)
        if within == 0:
            break
        share = random.lognormal(size=within)
        share *= FILLED / share.sum()
        rows = slice(made, made + within)
        parent[rows], duration[rows] = row, duration[row] * share
        start[rows] = start[row] + duration[row] * (np.cumsum(share) - share)
        made += within
    names = random.integers(0, len(NAMES), count)
    first = start.astype(np.int64)
    return NestedBoxes(parent.astype(np.int64), first, (start + duration).astype(np.int64) - first, names)


def write_timeline_page(path: Path, count: int) -> None:
    """Write a page with a timeline of this many boxes, half of them of the host, half of the device."""
    sides = [nest_boxes(count // 2, SEED), nest_boxes(count - count // 2, SEED + 1)]
    first = [0, sides[0].count]
    tracks = [
        TimelineTrack(
            title=title,
            side=title,
            loop=0,
            rank=0,
            device=0,
            iteration=0,
            start_ns=0,
            first=at,
            count=side.count,
        )
        for title, side, at in zip(("host", "device"), sides, first, strict=True)
    ]
    none = [-1] * count
    document = TimelineDocument(
        strings=NAMES,
        kinds=list(KINDS),
        parts=[],
        tracks=tracks,
        parent=[
            -1 if up < 0 else up + at for side, at in zip(sides, first, strict=True) for up in side.parent.tolist()
        ],
        kind=[0] * count,
        title=np.concatenate([side.name for side in sides]).tolist(),
        full=none,
        start_ns=np.concatenate([side.start_ns for side in sides]).tolist(),
        duration_ns=(duration := np.concatenate([side.duration_ns for side in sides]).tolist()),
        busy_ns=duration,
        events=[1] * count,
        part=none,
        twin=none,
        finding=none,
        source=none,
    )
    _write(path, "timeline", document)


def write_flame_page(path: Path, boxes: NestedBoxes) -> None:
    """Write a page with boxes as frames."""
    none = [-1] * boxes.count
    document = FlameDocument(
        direction="down",
        rank=0,
        measures=[FlameMeasureEntry(name="device", title="device time", unit="ns")],
        strings=[*NAMES, "function"],
        parent=boxes.parent.tolist(),
        name=boxes.name.tolist(),
        kind=[len(NAMES)] * boxes.count,
        file=none,
        line=none,
        finding=none,
        value=[boxes.duration_ns.tolist()],
    )
    _write(path, "flame", document)


def _write(path: Path, view: str, document: TimelineDocument | FlameDocument) -> None:
    """Write a page with one view."""
    session = SessionDocument(
        title="made-up boxes",
        version="0",
        facts=[],
        answer=Answer(lines=["Made-up boxes."], severity="", finding=None),
        ranks=[0],
        loops=[],
        views=[ViewEntry(name=view, title=view, documents=[DocumentEntry(key=view, title=view, rank=0)])],
        notes=[],
    )
    documents = [("session", msgspec.json.encode(session)), (view, msgspec.json.encode(document))]
    path.write_bytes(write_report("made-up boxes", documents))
