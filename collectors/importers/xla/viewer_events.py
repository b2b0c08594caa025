"""The events of the trace viewer's document, decoded a piece of its text at a time.

Decoded events use several times the memory of their text, of which `{},` is only three bytes. The document is first
checked to be JSON as a whole, so that a piece is a list by itself if and only if it ends after an event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.xla.events import STATS

PIECE_NBYTES = 2 * 1024**2
GUESSES = 4
SHORTEST_NBYTES = 48  # of an event, on average; the profiler writes 80 to 300
MANY_VIEWER_EVENTS = 1_000_000  # events: an average of fewer means nothing, and they fit anywhere
BETWEEN = re.compile(rb"\}[ \t\r\n]*(,)[ \t\r\n]*\{")
TAIL_NBYTES = 64 * 1024  # of a piece: they nearly always contain a place to cut it
POSITION = re.compile(r"\(byte (\d+)\)")
# UnicodeDecodeError is a ValueError; msgspec's own errors are ValueErrors only in later releases.
UNDECODABLE = (msgspec.DecodeError, ValueError, RecursionError)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ADVICE = "give a file written by the profiler of JAX or TensorFlow"
AGAIN = "copy or export the trace again"

ARGS: Any = msgspec.defstruct("Args", [(key, Any, None) for key in (*STATS, "name")], gc=False, frozen=True)


class _ViewerDocument(Struct, gc=False):
    """The top level; the list of events is a view of the text."""

    events: Raw = field(name="traceEvents")


class _ViewerEvent(Struct, gc=False):
    """One element of `traceEvents`, with the stats that are read. `ts` and `dur` are microseconds."""

    ph: str = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Any = None
    dur: Any = None
    args: ARGS = ARGS()


class _BareViewerEvent(_ViewerEvent, gc=False):
    """An event whose `args` cannot be read."""

    args: ARGS = field(default=ARGS(), name="")


class ViewerDecoder:
    """Decodes lists of events; `read` counts all items, `undecodable` those that are no event at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all = msgspec.json.Decoder(list[_ViewerEvent])
        self.raw = msgspec.json.Decoder(list[Raw])
        self.one = (msgspec.json.Decoder(_ViewerEvent), msgspec.json.Decoder(_BareViewerEvent))
        self.nbytes = self.read = self.undecodable = 0

    def decode(self, text: bytes) -> list[_ViewerEvent]:
        """Return the events in `text`, a list without its brackets; decoded all at once if all are valid.

        Raises msgspec's errors when `text` is no list without its brackets, and `TraceError` when there are more
        events than a trace can hold.
        """
        text = b"[%b]" % text
        try:
            events = self.all.decode(text)
        except UNDECODABLE:
            raws = self.raw.decode(text)
            events = [event for raw in raws if (event := self.decode_one(raw)) is not None]
            self.undecodable += len(raws) - len(events)
            self.count(len(raws), len(text))
        else:
            self.count(len(events), len(text))
        return events

    def decode_one(self, raw: Raw) -> _ViewerEvent | None:
        """Return the event in `raw`, without its `args` if they are invalid, or None."""
        for decoder in self.one:
            with suppress(*UNDECODABLE):
                return decoder.decode(raw)
        return None

    def count(self, events: int, nbytes: int) -> None:
        """Count `events` of `nbytes` in all; raises `TraceError` when they are too short to be events."""
        self.read, self.nbytes = self.read + events, self.nbytes + nbytes
        if self.read > MANY_VIEWER_EVENTS and self.nbytes < SHORTEST_NBYTES * self.read:
            problem = (
                f"is no profile of XLA: its first {self.read} events take {self.nbytes} bytes, which is too little"
            )
            raise TraceError(self.path, problem, ADVICE)


def decode_document(content: bytearray, path: Path) -> memoryview:
    """Return the text between the brackets of `traceEvents`, or of a document that is a bare list.

    Raises `TraceError` when `content` is no JSON, truncated, or something else.
    """
    start = len(BYTE_ORDER_MARK) if content.startswith(BYTE_ORDER_MARK) else 0
    view = memoryview(content)[start:]
    try:
        bare = content[start : start + 64].lstrip().startswith(b"[")
        events = msgspec.json.decode(view, type=Raw) if bare else msgspec.json.decode(view, type=_ViewerDocument).events
        if memoryview(events)[0] != ord("["):
            raise msgspec.ValidationError("Expected `array` - at `$.traceEvents`")
    except UNDECODABLE as error:
        raise _explain(error, path, len(content)) from error
    return memoryview(events)[1:-1]


def _explain(error: Exception, path: Path, nbytes: int) -> TraceError:
    """Return the `TraceError` that explains msgspec's `error` about `nbytes` of JSON to the user."""
    if isinstance(error, msgspec.ValidationError):
        return TraceError(path, f"is no profile of XLA: {error}", ADVICE)
    if "truncated" in str(error):
        return TraceError(path, f"is truncated: its JSON breaks off at byte {nbytes}", AGAIN)
    if found := POSITION.search(str(error)):
        return TraceError(path, f"is damaged: its JSON breaks near byte {found[1]}", AGAIN)
    return TraceError(path, f"is damaged: its JSON cannot be read ({error})", AGAIN)


def decode_pieces(rest: memoryview, decoder: ViewerDecoder) -> Iterator[list[_ViewerEvent]]:
    """Yield the events in `rest`, in order; raises `TraceError` when there are too many."""
    nbytes = len(rest)
    try:
        while len(rest) > PIECE_NBYTES:
            found, used = _decode_first(rest, decoder)
            yield found
            rest = rest[used:]
        yield decoder.decode(bytes(rest))
    except UNDECODABLE as error:  # nested as deeply as Python allows: the document was valid JSON before
        raise _explain(error, decoder.path, nbytes) from error


def _decode_first(rest: memoryview, decoder: ViewerDecoder) -> tuple[list[_ViewerEvent], int]:
    """Return the first events of `rest`, about one piece, and the number of bytes that they need."""
    piece = bytes(rest[:PIECE_NBYTES])
    commas = [found.start(1) for found in BETWEEN.finditer(piece, max(0, len(piece) - TAIL_NBYTES))]
    for cut in commas[: -GUESSES - 1 : -1]:
        with suppress(*UNDECODABLE):  # the comma may be in a text, or in a list inside an event
            return decoder.decode(piece[:cut]), cut + 1
    cut = _find_cut(rest)
    return decoder.decode(bytes(rest[:cut])), cut + 1


def _find_cut(rest: memoryview) -> int:
    """Return where the events that fill the first piece of `rest` end, found reliably, one event after the other."""
    end = -1
    while end + 1 < min(PIECE_NBYTES, len(rest)):
        end += 1 + _first_nbytes(rest[end + 1 :])
    return end


def _first_nbytes(rest: memoryview) -> int:
    """Return the number of bytes before the comma after the first value of `rest`, or of all if none follows."""
    try:
        msgspec.json.decode(rest, type=Raw)
    except msgspec.DecodeError as error:
        if "trailing" in str(error) and (found := POSITION.search(str(error))):
            return int(found[1]) - 1  # it counts the comma
        raise
    return len(rest)
