"""A Kineto document read from start to end, a piece at a time: its events go to `EventColumns`, the rest is kept.

Memory depends on the columns and not on the text, of which it contains a piece, the event cut off at its end, and the
header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import read_pieces
from deepprof.collectors.importers.kineto.batches import CLOSED, DAMAGED, MORE, NotJsonError
from deepprof.collectors.importers.kineto.kineto_schema import KinetoDocument, decode_document, find_fault, repair
from deepprof.collectors.importers.kineto.native import open_reader
from deepprof.collectors.importers.kineto.rows import EventColumns

if TYPE_CHECKING:
    from pathlib import Path

PIECE_NBYTES = 4 * 1024**2
LIMIT_NBYTES = 64 * 1024**2  # of one event, or of the header
CANDIDATES = 16  # places tried as the start of the events: a text in the header may look like it
OPENING = re.compile(rb'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
BARE = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*\[")
SHORTEST_NBYTES = 48  # of an event, on average; torch.profiler writes 220 to 600
MANY_EVENTS = 1_000_000  # events: an average of fewer means nothing, and they fit anywhere
ADVICE = "give a file written by torch.profiler"
AGAIN = "copy or export the trace again"


class TextWindow:
    """The part of a document's text that is in memory: `text`, read up to `at`; `start` bytes precede it."""

    def __init__(self, path: Path, pieces: Iterator[bytes]) -> None:
        self.path, self.pieces = path, pieces
        self.text, self.at, self.start = b"", 0, 0

    @property
    def position(self) -> int:
        """The byte of the document up to which the window has been read."""
        return self.start + self.at

    def more(self) -> bool:
        """Drop the part that has been read and add the next piece; return False at the end of the document.

        Raises `TraceError` when the unread part already has more than `LIMIT_NBYTES`.
        """
        if len(self.text) - self.at > LIMIT_NBYTES:
            problem = f"is no Kineto trace: one event or its header takes more than {LIMIT_NBYTES} bytes"
            raise TraceError(self.path, problem, ADVICE)
        piece = next(self.pieces, b"")
        self.text, self.start, self.at = self.text[self.at :] + piece, self.position, 0
        return bool(piece)


def read_events(path: Path, *, details: bool, shapes: bool) -> tuple[KinetoDocument, EventColumns]:
    """Return the document in `path` without its events, and the events as columns; raises `TraceError`."""
    window = TextWindow(path, read_pieces(path, PIECE_NBYTES))
    columns = EventColumns(details=details, shapes=shapes)
    opening = _find_opening(window)
    if opening is None:  # there is no list of events, or its key is spelt unusually
        document = decode_document(window.text, path)
        scan(TextWindow(path, iter([bytes(document.events)[1:]])), columns)
        return document, columns
    first = window.position
    scan(window, columns)
    hole = window.position - first - 1
    while window.more():
        pass
    document = decode_document(opening + b"]" + window.text, path, (len(opening), hole))
    if bytes(document.events) != b"[]":
        raise TraceError(path, "is no Kineto trace: it has two lists of traceEvents", ADVICE)
    return document, columns


def _find_opening(window: TextWindow) -> bytes | None:
    """Return the text up to the bracket that opens the events, and move the window behind it.

    Returns None if the document has no such place: then the window contains the whole document.
    """
    searched = tried = 0
    while window.more():
        if bare := BARE.match(window.text):
            window.at = bare.end()
            return bare[0]
        for found in islice(OPENING.finditer(window.text, searched), CANDIDATES - tried):
            tried += 1
            if _is_header(window.text[: found.start()]):
                window.at = found.end()
                return window.text[: found.end()]
            searched = found.end()
        searched = max(searched, len(window.text) - PIECE_NBYTES)
    return None


def _is_header(text: bytes) -> bool:
    """Return whether a key may follow `text` in the outermost object of a document."""
    whole = text.removeprefix(b"\xef\xbb\xbf") + b'"traceEvents":[]}'
    return find_fault(whole) is None or find_fault(repair(whole)) is None


def scan(window: TextWindow, columns: EventColumns) -> None:
    """Read the events up to the bracket that closes them into `columns`."""
    reader = open_reader(columns.wanted)
    first, status = window.position, MORE
    while status != CLOSED:
        try:
            batch = reader.read(window.text, window.at)
        except NotJsonError as error:
            raise _damaged(window, window.start + error.at) from error
        columns.add(batch, reader)
        window.at += batch.consumed
        _check_length(window.path, columns.read, window.position - first)
        status = batch.status
        if status == DAMAGED:
            raise _damaged(window, window.position)
        if status == MORE and not window.more():
            nbytes = window.start + len(window.text)
            raise TraceError(window.path, f"is truncated: its JSON breaks off at byte {nbytes}", AGAIN)


def _damaged(window: TextWindow, at: int) -> TraceError:
    """Return the error for a document that stops being JSON at byte `at`."""
    return TraceError(window.path, f"is damaged: its JSON breaks near byte {at}", AGAIN)


def _check_length(path: Path, events: int, nbytes: int) -> None:
    """Raise `TraceError` when `nbytes` are too few for this many `events`."""
    if events > MANY_EVENTS and nbytes < SHORTEST_NBYTES * events:
        problem = f"is no Kineto trace: its first {events} events take {nbytes} bytes, which is too little"
        raise TraceError(path, problem, ADVICE)
