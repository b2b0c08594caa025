"""The events in a piece of a Kineto document's text, as a batch; in Python only, for any text.

`native` reads the same in C and leaves unusual events to `EventDecoder`. Both stop where the text ends, so that a
document of any length is read a piece at a time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
from msgspec import Struct

from deepprof.collectors.importers.kineto.kineto_schema import (
    UNDECODABLE,
    BareKinetoEvent,
    DetailedKinetoEvent,
    KinetoEvent,
    find_fault,
    repair,
)

if TYPE_CHECKING:
    import numpy.typing as npt

MORE, CLOSED, FULL, DAMAGED = range(4)  # why a batch ended: text used up, list closed, rows full, no JSON
# Where the integers of an event come from, in the order in which scan.c writes them.
INTEGERS = (
    *("pid", "tid", "args.external_id", "args.old_external_id", "args.correlation", "args.device", "args.stream"),
    *("args.context", "args.nbytes", "args.graph_node", "args.sequence", "args.forward_thread", "args.flops"),
    *("args.span_id", "args.parent_id", "args.module_id", "args.device_type", "args.device_id", "args.changed"),
    *("args.address", "args.allocated", "args.reserved", "args.registers", "args.shared_nbytes"),
)
# The arguments that are kept as JSON text, in the order in which scan.c numbers them.
JSON_TEXTS = (
    *("args.dims", "args.old_dims", "args.dtypes", "args.values", "args.strides", "args.grid", "args.block"),
    "args.stack",
)
MISSING = -(2**63) + 1_618_033  # means null among the integers: a number that no recorder writes
ROW = np.dtype(
    [
        *(("ts", "f8"), ("dur", "f8"), ("integers", "i8", len(INTEGERS))),
        *(("key", "u4"), ("name", "u4"), ("start", "u4"), ("length", "u4"), ("json", "u4", len(JSON_TEXTS))),
    ]
)

GUESSES = 4
BETWEEN = re.compile(rb"\}[ \t\r\n]*(,)[ \t\r\n]*\{")
TAIL_NBYTES = 64 * 1024  # of a piece: they nearly always contain a place to cut it
SPACE = re.compile(rb"[ \t\r\n]*+")
# A quoted text, which the end of the piece may cut off, or a bracket, or a comma.
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+("?)|[{}\[\],]', re.DOTALL)


class EventBatch(Struct, frozen=True, eq=False):
    """Events in the order of the document. `consumed` counts the bytes used, `status` is why the batch ended there.

    Either `rows` (of dtype `ROW`) contains all events, except that those of the rows `odd` are in `events`; or `rows`
    is None and `events` contains all. An event is None if it is JSON but no event."""

    consumed: int
    status: int
    events: Sequence[KinetoEvent | None]
    rows: npt.NDArray[Any] | None = None
    odd: npt.NDArray[np.intp] | None = None

    @property
    def count(self) -> int:
        """The number of events."""
        return len(self.events) if self.rows is None else len(self.rows)


class NotJsonError(ValueError):
    """The text of an event is no JSON; `at` is where it starts."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class EventReader(Protocol):
    """A reader of the elements of a list of events; the rows of its batches index `keys`, `names` and `json`."""

    @property
    def keys(self) -> Sequence[bytes]:
        """The texts "ph\\0cat" by a row's `key`."""
        ...

    @property
    def names(self) -> Sequence[bytes]:
        """The names by a row's `name`."""
        ...

    @property
    def json(self) -> Sequence[bytes]:
        """The JSON texts by the numbers in a row's `json`, less `FIRST_JSON`."""
        ...

    def read(self, text: bytes, at: int) -> EventBatch:
        """Return the next events of `text` from `at`, which is where the last batch ended.

        Raises `NotJsonError`.
        """
        ...


class EventDecoder:
    """Decodes single events and lists of them, with the arguments that are kept as JSON text if `texts` are wanted."""

    def __init__(self, *, texts: bool) -> None:
        one: type[KinetoEvent] = DetailedKinetoEvent if texts else KinetoEvent
        self.all: msgspec.json.Decoder[list[KinetoEvent]] = msgspec.json.Decoder(list[one])  # type: ignore[valid-type]
        self.full: msgspec.json.Decoder[KinetoEvent] = msgspec.json.Decoder(one)
        self.bare: msgspec.json.Decoder[KinetoEvent] = msgspec.json.Decoder(BareKinetoEvent)

    def decode(self, text: bytes, start: int, end: int) -> KinetoEvent | None:
        """Return the event in `text[start:end]`, without its `args` if they are invalid; None if it is no event.

        Raises `NotJsonError` when it is no JSON, not even after `repair`.
        """
        content = text[start:end]
        event = self.decode_as_it_is(content)
        if event is None and find_fault(content) is not None:
            content = repair(content)
            event = self.decode_as_it_is(content)
            fault = find_fault(content) if event is None else None
            if fault is not None:
                raise NotJsonError(start + fault)
        return event

    def decode_as_it_is(self, content: bytes) -> KinetoEvent | None:
        """Return the event in `content`, or None."""
        for decoder in (self.full, self.bare):
            with suppress(*UNDECODABLE):
                return decoder.decode(content)
        return None


class PlainReader:
    """Reads with msgspec: many events at once where possible, else one event after the other."""

    keys = names = json = ()

    def __init__(self, *, texts: bool) -> None:
        self.decoder = EventDecoder(texts=texts)
        self.after_event = self.any = False

    def read(self, text: bytes, at: int) -> EventBatch:
        """Return the next events of `text` from `at`."""
        for cut in _likely_cuts(text, at) if not self.after_event else []:
            with suppress(*UNDECODABLE):  # the comma may be in a text, or in a list inside an event
                events = self.decoder.all.decode(b"[%b]" % text[at:cut])
                self.any = True
                return EventBatch(cut + 1 - at, FULL, events)
        return self.read_each(text, at)

    def read_each(self, content: bytes, begin: int) -> EventBatch:
        """Return the next events of `content`, one after the other, by the same rules as scan.c."""
        events: list[KinetoEvent | None] = []
        at = begin
        while True:
            at = _skip_space(content, at)
            if at >= len(content):
                return EventBatch(at - begin, MORE, events)
            if content[at] == ord("]") and (self.after_event or not self.any):
                return EventBatch(at + 1 - begin, CLOSED, events)
            if self.after_event:
                if content[at] != ord(","):
                    return EventBatch(at - begin, DAMAGED, events)
                at, self.after_event = at + 1, False
                continue
            end = _find_end(content, at)
            if end is None or end == at:
                return EventBatch(at - begin, MORE if end is None else DAMAGED, events)
            events.append(self.decoder.decode(content, at, end))
            at, self.after_event, self.any = end, True, True


def _skip_space(content: bytes, at: int) -> int:
    """Return where the white space at `at` ends."""
    return SPACE.match(content, at).end()  # type: ignore[union-attr]


def _likely_cuts(text: bytes, at: int) -> list[int]:
    """Return the last commas between objects in `text` from `at`, the last one first."""
    commas = [found.start(1) for found in BETWEEN.finditer(text, max(at, len(text) - TAIL_NBYTES))]
    return commas[: -GUESSES - 1 : -1]


def _find_end(content: bytes, start: int) -> int | None:
    """Return where the value at `start` ends, by its quotes and brackets only; None if the text ends inside it."""
    depth = 0
    for token in TOKEN.finditer(content, start):
        match content[token.start()]:
            case 0x22:  # a quote
                if not token[1]:
                    return None
            case 0x7B | 0x5B:  # an opening bracket
                depth += 1
            case byte:
                if not depth:
                    return token.start()
                depth -= byte != 0x2C  # a comma
                if not depth and content[start] in b"{[":
                    return token.end()
    return None
