"""All documents of an analysis: written when they are requested, or all that a page without a server needs."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec

from deepprof.analysis import Analysis
from deepprof.comparison.pairing import find_sides
from deepprof.results.comparison_result import Comparison
from deepprof.web.documents.diff import write_diff
from deepprof.web.documents.flame import write_flame_of_both
from deepprof.web.documents.session import (
    DocumentEntry,
    SessionDocument,
    ViewEntry,
    write_comparison_session,
    write_session,
)
from deepprof.web.region import cut_region
from deepprof.web.sources import SourceFiles
from deepprof.web.views import VIEWS, NoDocumentError, ViewSource, Write, choose_loops

SESSION = "session"
REGION = "region"
MOST_REGION = 400_000  # bytes of a region within a page: it is packed already
MOST_KEY = 64  # characters
TOO_LARGE = "Its documents are too large to be kept; `deepprof report` on a recording has no such limit."

encode = msgspec.json.encode


class _InlineRegion(msgspec.Struct, frozen=True, kw_only=True):
    """A region within a page: the name of the file to save, and the file."""

    name: str
    gzip_base64: str


class PageDocuments:
    """The documents of an analysis by key: `session`, and those that it lists; and regions for Perfetto.

    With `server` the page requests more than the session lists: any iteration's timeline and region.
    """

    def __init__(self, analysis: Analysis, *, server: bool = False, perfetto: str | None = None) -> None:
        self.analysis, self._server, self._perfetto = analysis, server, perfetto
        self._files = SourceFiles(analysis)
        self._sources = {name: (view, write) for view in VIEWS for name, write in _writers_of(view).items()}

    @cached_property
    def session(self) -> SessionDocument:
        """What is around all views."""
        views = [view.describe(self.analysis) for view in VIEWS]
        written = write_session(self.analysis, views)
        return msgspec.structs.replace(written, server=self._server, perfetto=self._perfetto)

    def find(self, key: str) -> bytes | None:
        """Return a document as JSON, None where there is none of that key."""
        if key == SESSION:
            return encode(self.session)
        name, *parts = key.split("/") if len(key) <= MOST_KEY else [""]
        view, write = self._sources.get(name, (None, None))
        if view is None or write is None or view.find_problem(self.analysis) is not None:
            return None
        try:
            return encode(write(self.analysis, parts))
        except NoDocumentError:
            return None

    def cut(self, loop: int, iteration: int, from_ns: int | None = None, to_ns: int | None = None) -> bytes | None:
        """Return a region as a gzipped trace: an iteration, or a section in ns since its start; None for none."""
        if not 0 <= loop < len(self.analysis.loops):
            return None
        within = None if from_ns is None or to_ns is None else (from_ns, to_ns)
        return cut_region(self.analysis, self.analysis.loops[loop], iteration, within)

    def read_source(self, file: str, line: int) -> bytes | None:
        """Return the lines around a line of code, None for a file that the trace does not name."""
        found = self._files.read(file, line)
        return None if found is None else encode(found)

    def list_all(self) -> Iterator[tuple[str, bytes]]:
        """Yield all documents that the session lists, the session first."""
        yield SESSION, encode(self.session)
        for key in (
            key for view, shown in zip(VIEWS, self.session.views, strict=True) for key in view.list_keys(shown)
        ):
            found = self.find(key)
            if found is not None:
                yield key, found

    def list_regions(self) -> Iterator[tuple[str, bytes]]:
        """Yield the region of the slowest rank's typical iteration, if it is small enough to be part of a page."""
        for number in choose_loops(self.analysis)[:1]:
            loop = self.analysis.loops[number]
            iteration = loop.typical
            packed = None if iteration is None else self.cut(number, iteration)
            if packed is not None and len(packed) <= MOST_REGION:
                name = f"iteration-{iteration}.trace.json.gz"
                text = base64.b64encode(packed).decode()
                yield f"{REGION}/{number}/{iteration}", encode(_InlineRegion(name=name, gzip_base64=text))


def _writers_of(view: ViewSource) -> dict[str, Write]:
    """Return what writes the documents of a view, by the first part of their keys."""
    return {view.name: view.write, **view.beside}


def write_comparison(comparison: Comparison, a: Analysis, b: Analysis) -> Iterator[tuple[str, bytes]]:
    """Yield the documents of two compared runs by key, the session first; the comparison is theirs, and has a pair."""
    compared, pair = write_diff(comparison), comparison.pairs[0]
    flame = write_flame_of_both(*find_sides(a, b, pair))
    views = [ViewEntry(name="diff", title="A and B", documents=[DocumentEntry(key="diff", title="both runs")])]
    problem = None if flame is not None else "A run has no function, operator or range of the host."
    shown = [DocumentEntry(key="flame/both", title="both runs")] if flame is not None else []
    views.append(ViewEntry(name="flame", title="Flame", documents=shown, problem=problem))
    yield SESSION, encode(write_comparison_session(comparison, compared, views))
    yield "diff", encode(compared)
    if flame is not None:
        yield "flame/both", encode(flame)


def write_documents(analysis: Analysis, *, most_nbytes: int | None = None) -> Mapping[str, bytes]:
    """Return the documents of an analysis by key, the session first; what would exceed `most_nbytes` is left out."""
    page, kept = PageDocuments(analysis), dict[str, bytes]()
    (_, session), *others = page.list_all()
    room = None if most_nbytes is None else most_nbytes - len(session) - len(TOO_LARGE) * len(VIEWS)
    if room is not None and room < 0:
        return {}
    for key, document in others:
        if room is None or len(document) <= room:
            kept[key] = document
            room = None if room is None else room - len(document)
    return {SESSION: encode(_without_missing(page.session, kept)), **kept}


def _without_missing(session: SessionDocument, kept: Mapping[str, bytes]) -> SessionDocument:
    """Return a session that lists only the documents that are kept, and reports it in a view that has none left."""
    views = []
    for view in session.views:
        there = [entry for entry in view.documents if entry.key in kept]
        problem = TOO_LARGE if view.documents and not there else view.problem
        views.append(msgspec.structs.replace(view, documents=there, problem=problem))
    return msgspec.structs.replace(session, views=views)
