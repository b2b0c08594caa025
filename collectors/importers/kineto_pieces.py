"""The events of a Kineto document, decoded a piece of its text at a time.

A list of all events, even undecoded, would take 80 bytes for each, and `{},` is three bytes of text: memory must
follow the text and not the number of events. The document has been checked to be JSON as a whole, so that a piece
that ends behind an event, and only such a piece, is a list by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Raw

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.kineto_schema import POSITION, UNDECODABLE, BareEvent, DetailedEvent, Event

__all__ = ["EventDecoder", "decode_pieces"]

PIECE_NBYTES = 2 * 1024**2
GUESSES = 4
SHORTEST_NBYTES = 48  # of an event, on average; torch.profiler writes 220 to 600
MANY = 1_000_000  # events: an average of fewer says nothing, and they fit anywhere
BETWEEN = re.compile(rb"\}[ \t\r\n]*(,)[ \t\r\n]*\{")
TAIL_NBYTES = 64 * 1024  # of a piece: nearly always there is a place to cut it
ADVICE = "give a file written by torch.profiler"


class EventDecoder:
    """Decodes lists of events; `read` counts all, `undecodable` those that are no event at all."""

    def __init__(self, path: Path, *, details: bool) -> None:
        one: type[Event] = DetailedEvent if details else Event
        self.path = path
        self.all: msgspec.json.Decoder[list[Event]] = msgspec.json.Decoder(list[one])  # type: ignore[valid-type]
        self.raw: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])
        self.full: msgspec.json.Decoder[Event] = msgspec.json.Decoder(one)
        self.bare: msgspec.json.Decoder[Event] = msgspec.json.Decoder(BareEvent)
        self.nbytes = self.read = self.undecodable = 0

    def decode(self, text: bytes) -> list[Event]:
        """Return the events between the brackets of a list; at one go when all are as expected.

        Raises msgspec's errors when `text` is no list without its brackets, and `TraceError` when there are more
        events than a trace can hold.
        """
        text = b"[%b]" % text
        try:
            events = self.all.decode(text)
        except UNDECODABLE:
            return self.decode_each(self.raw.decode(text), len(text))
        self.count(len(events), len(text))
        return events

    def decode_each(self, raws: list[Raw], nbytes: int) -> list[Event]:
        """Return the events in `raws`, which take `nbytes`, without those that are none."""
        self.count(len(raws), nbytes)
        events = [event for raw in raws if (event := self.decode_one(raw)) is not None]
        self.undecodable += len(raws) - len(events)
        return events

    def decode_one(self, raw: Raw) -> Event | None:
        """Return the event in `raw`, without its `args` where those are at fault, or None."""
        for decoder in (self.full, self.bare):
            try:
                return decoder.decode(raw)
            except UNDECODABLE:
                continue
        return None

    def count(self, events: int, nbytes: int) -> None:
        """Count `events` of `nbytes` in all; raises `TraceError` when they are too short to be events."""
        self.read, self.nbytes = self.read + events, self.nbytes + nbytes
        if self.read > MANY and self.nbytes < SHORTEST_NBYTES * self.read:
            problem = f"is no Kineto trace: its first {self.read} events take {self.nbytes} bytes, which is too little"
            raise TraceError(self.path, problem, ADVICE)


def decode_pieces(events: Raw, decoder: EventDecoder) -> Iterator[list[Event]]:
    """Yield what the list `events` holds, in order."""
    rest = memoryview(events)[1:-1]
    while len(rest) > PIECE_NBYTES:
        found, used = decode_first(rest, decoder)
        yield found
        rest = rest[used:]
    yield decoder.decode(bytes(rest))


def decode_first(rest: memoryview, decoder: EventDecoder) -> tuple[list[Event], int]:
    """Return the first events of `rest`, about a piece of them, and how many bytes of it they took."""
    piece = bytes(rest[:PIECE_NBYTES])
    for cut in likely_cuts(piece):
        with suppress(*UNDECODABLE):  # the comma may be in a text, or in a list of an event's own
            return decoder.decode(piece[:cut]), cut + 1
    cut = find_cut(rest)
    return decoder.decode(bytes(rest[:cut])), cut + 1


def likely_cuts(piece: bytes) -> list[int]:
    """Return the last commas between objects in `piece`, the last one first."""
    commas = [found.start(1) for found in BETWEEN.finditer(piece, max(0, len(piece) - TAIL_NBYTES))]
    return commas[: -GUESSES - 1 : -1]


def find_cut(rest: memoryview) -> int:
    """Return where the events end that fill the first piece of `rest`: surely, but one event after the other."""
    end = -1
    while end + 1 < min(PIECE_NBYTES, len(rest)):
        end += 1 + first_nbytes(rest[end + 1 :])
    return end


def first_nbytes(rest: memoryview) -> int:
    """Return how many bytes lie before the comma behind the first value of `rest`, or all where none follows."""
    try:
        msgspec.json.decode(rest, type=Raw)
    except msgspec.DecodeError as error:
        if "trailing" in str(error) and (found := POSITION.search(str(error))):
            return int(found[1]) - 1  # it counts the comma
        raise
    return len(rest)
