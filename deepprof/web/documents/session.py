"""What stands around all views: the answer, the loops and their strips of iterations, and which views there are."""

from __future__ import annotations

from typing import Literal

import msgspec

from deepprof.web.documents.marks import Mark
from deepprof.web.documents.schema import Figure


class IterationStrip(msgspec.Struct, frozen=True, kw_only=True):
    """The iterations of a loop as at most `MOST_BARS` bars, each of the iterations `first` to `last`.

    `longest_ns` is the time of the longest of them, `mark` its mark; `median_ns` that of the loop.
    """

    first: list[int]
    last: list[int]
    longest_ns: list[int]
    mark: list[Mark]
    median_ns: int | None


class LoopEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A loop; `typical` is the index of the iteration nearest to the median, null where there is none."""

    loop: int
    rank: int
    device: int
    stream: int
    title: str
    period: int
    iterations: int
    confidence: float
    mean_ns: int | None
    typical: int | None
    strip: IterationStrip


class DocumentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A document that a view can show; `loop` and `rank` say what it is about, null for all of the job."""

    key: str
    title: str
    loop: int | None = None
    rank: int | None = None


class ViewEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A view: its documents, or the `problem`: why there are none, and how to record what they need."""

    name: str
    title: str
    documents: list[DocumentEntry]
    problem: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer on top of all views: its lines, the first says how long an iteration takes."""

    lines: list[str]
    severity: Literal["", "info", "warning", "critical"]
    finding: int | None  # its number in the view of findings


class SessionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the page is about. `server`: documents can be asked for, and regions cut; else all there is, is inlined.

    `perfetto` is where Perfetto's own page is served, null: only its file can be downloaded.
    """

    schema: Literal["deepprof.view.session/1"] = "deepprof.view.session/1"
    title: str
    version: str
    facts: list[Figure]
    answer: Answer
    ranks: list[int]
    loops: list[LoopEntry]
    views: list[ViewEntry]
    notes: list[str]
    server: bool = False
    perfetto: str | None = None
