"""What is around all views: the answer, the loops and their strips of iterations, and which views there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from deepprof.diagnosis.answer import find_mean
from deepprof.render.answer import describe_answer
from deepprof.render.json import list_notes
from deepprof.render.text import count_events, describe_run, name_paths
from deepprof.render.units import format_duration, format_ratio
from deepprof.render.wording import wording_of
from deepprof.results.comparison_result import Comparison
from deepprof.version import read_version
from deepprof.web.documents.places import name_loop
from deepprof.web.documents.schema import Figure
from deepprof.web.documents.strips import IterationStrip, draw_strip_of
from deepprof.web.documents.texts import tidy

if TYPE_CHECKING:
    from deepprof.analysis import Analysis
    from deepprof.web.documents.diff import DiffDocument


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
    """A document that a view can show; `loop`, `rank` and `iteration` state what it is about, null for all of the job.

    `loops` are those that a document of several shows.
    """

    key: str
    title: str
    loop: int | None = None
    rank: int | None = None
    iteration: int | None = None
    loops: list[int] = []


class ViewEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A view: its documents, or the `problem`: why there are none, and how to record what they need."""

    name: str
    title: str
    documents: list[DocumentEntry]
    problem: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer on top of all views: its lines, the first states how long an iteration needs."""

    lines: list[str]
    severity: Literal["", "info", "warning", "critical"]
    finding: int | None  # its number in the view of findings


class SessionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the page is about. `server`: documents can be requested, and regions cut; else all there is, is inlined.

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


def write_session(analysis: Analysis, views: Sequence[ViewEntry]) -> SessionDocument:
    """Return what is around the `views` of an analysis."""
    words, headline = wording_of(analysis), analysis.headline
    return SessionDocument(
        title=tidy(name_paths(analysis)),
        version=read_version(),
        facts=_list_facts(analysis),
        answer=Answer(
            lines=[tidy(line) for line in describe_answer(analysis)],
            severity="" if headline is None else headline.severity,
            finding=None if headline is None else analysis.findings.index(headline),
        ),
        ranks=[recording.rank or 0 for recording in analysis.recordings],
        loops=[
            LoopEntry(
                loop=number,
                **loop.place,
                title=name_loop(loop, words),
                period=loop.period,
                iterations=loop.iterations.height,
                confidence=loop.confidence,
                mean_ns=None if (mean := find_mean(loop)) is None else round(mean),
                typical=loop.typical,
                strip=draw_strip_of(loop),
            )
            for number, loop in enumerate(analysis.loops)
        ],
        views=[*views],
        notes=[tidy(note) for note in list_notes(analysis)],
    )


def _list_facts(analysis: Analysis) -> list[Figure]:
    """Return what was recorded, as the head of the report states it."""
    summary = analysis.summary
    busy = summary.busy_ratio
    return [
        Figure(name="run", title="recorded", value=None, text=tidy(" · ".join(describe_run(analysis)))),
        Figure(name="span_ns", title="span", value=summary.span_ns, text=format_duration(summary.span_ns)),
        Figure(name="busy_ratio", title="busy", value=busy, text=format_ratio(busy)),
        Figure(name="events", title="events", value=None, text=count_events(analysis)),
    ]


def write_comparison_session(
    comparison: Comparison, compared: DiffDocument, views: Sequence[ViewEntry]
) -> SessionDocument:
    """Return what is around the `views` of two compared runs."""
    facts = (("A", comparison.a_paths), ("B", comparison.b_paths))
    return SessionDocument(
        title=f"{compared.a_title} → {compared.b_title}",
        version=read_version(),
        facts=[Figure(name=side.lower(), title=side, value=None, text=tidy(", ".join(paths))) for side, paths in facts],
        answer=Answer(lines=[tidy(comparison.headline.sentence)], severity="", finding=None),
        ranks=[],
        loops=[],
        views=[*views],
        notes=[tidy(note) for note in comparison.missing],
    )
