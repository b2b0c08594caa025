"""The raw records of a rank that the journal still has, as the messages of `Query.ReadWindow`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from deepprof.live.service.journal import Journal, JournalError, JournalFrame, JournalPlace
from deepprof.v1 import query_pb2 as wire
from deepprof.v1 import records_pb2 as records

if TYPE_CHECKING:
    from deepprof.live.service.daemon_rank import DaemonRank

Found = tuple["JournalFrame", bool]  # a frame, and whether one right before it could not be read
DAMAGED = "damaged"  # reason of a gap where the journal's frames cannot be read
NAMES_NBYTES, BATCH_NAMES = 1 << 20, 1 << 15  # most bytes and number of names in one message


def latest(journal: Journal, rank: DaemonRank, nbytes: int) -> list[JournalPlace]:
    """Return the places of a rank's latest messages, oldest first; together they have at most `nbytes` bytes."""
    places, size = journal.window(rank.number), 0
    for index in range(len(places) - 1, -1, -1):
        size += places[index].length
        if size > nbytes:
            return places[index + 1 :]
    return places


def is_whole(journal: Journal, rank: DaemonRank, places: list[JournalPlace]) -> bool:
    """Return whether `places` hold all messages that the rank has ever sent."""
    return len(places) == len(journal.window(rank.number)) == rank.durable_items


def later_messages(journal: Journal, rank: DaemonRank, known: wire.ReadPosition) -> Iterator[wire.ReadWindowResponse]:
    """Yield the rank's Hello and the messages that are still kept of those after a reader's position.

    What has no records and is right at the position (an End, a gap of unknown size) is repeated; of the names only
    new ones are.
    """
    durable = rank.durable  # before the places: what is durable by now and has no place is no longer kept
    places = _places_after(journal, journal.window(rank.number), known.next)
    frames = (found for found in _read_frames(journal, places, whole=False) if _is_new(found[0], known))
    opening = next(frames, None)
    expected = max(durable, known.next)
    if opening is not None:
        expected = known.next if opening[1] else opening[0].first
    yield wire.ReadWindowResponse(rank=rank.hello.rank, hello=rank.hello, skipped=expected)
    yield from _described(rank, expected, known.names)
    yield from _messages(rank, expected, opening, frames)


def _places_after(journal: Journal, places: list[JournalPlace], number: int) -> list[JournalPlace]:
    """Return the places from the first one on whose frame ends at the record `number` or later.

    A reader is mostly near the end: looking from there, few frames are read to find it.
    """
    back = 1
    try:
        while back < len(places) and _end(journal.read(places[-back])) >= number:
            back *= 2
        latest_places = places[-back:]
        return latest_places[bisect_left(latest_places, number, key=lambda place: _end(journal.read(place))) :]
    except JournalError:  # one of these frames is damaged: all are read in turn
        return places


def _end(frame: JournalFrame) -> int:
    """Return the number after the last record of a frame."""
    return frame.first + frame.count


def _is_new(frame: JournalFrame, known: wire.ReadPosition) -> bool:
    """Return whether a frame has something after a reader's position."""
    return _end(frame) > known.next or (not frame.count and frame.first == known.next)


def window_messages(
    journal: Journal, rank: DaemonRank, places: list[JournalPlace], *, whole: bool = False
) -> Iterator[wire.ReadWindowResponse]:
    """Yield the rank's Hello and the messages at `places`; devices and names sent before them are repeated.

    A message that cannot be read any more becomes a gap, or with `whole` raises `JournalError`.
    """
    number, complete = rank.hello.rank, is_whole(journal, rank, places)
    frames = _read_frames(journal, places, whole=whole)
    opening = next(frames, None)
    expected = 0 if complete else opening[0].first if opening else rank.durable
    yield wire.ReadWindowResponse(rank=number, hello=rank.hello, skipped=expected)
    if not complete:
        yield from _described(rank, expected)
    yield from _messages(rank, expected, opening, frames)


def _messages(
    rank: DaemonRank, expected: int, opening: Found | None, rest: Iterator[Found]
) -> Iterator[wire.ReadWindowResponse]:
    """Yield the messages in frames from the record `expected` on, and gaps where frames were damaged."""
    for frame, damaged in () if opening is None else chain([opening], rest):
        if damaged:
            yield from _missing(rank, expected, frame.first)
        yield _parse(rank.hello.rank, frame)
        expected = _end(frame)


def _read_frames(journal: Journal, places: list[JournalPlace], *, whole: bool) -> Iterator[Found]:
    """Yield each readable frame, and whether one right before it was not; that raises `JournalError` with `whole`."""
    damaged = False
    for place in places:
        try:
            frame = journal.read(place)
        except JournalError:
            if whole:
                raise
            damaged = True
            continue
        yield frame, damaged
        damaged = False


def _missing(rank: DaemonRank, expected: int, first: int) -> Iterator[wire.ReadWindowResponse]:
    """Yield a gap up to the record `first`, and the devices and names that may have been sent in it."""
    if first > expected:
        gap = records.Gap(first=expected, lost=first - expected, reason=DAMAGED)
        yield wire.ReadWindowResponse(rank=rank.hello.rank, gap=gap)
    yield from _described(rank, first)


def _parse(number: int, frame: JournalFrame) -> wire.ReadWindowResponse:
    message = wire.ReadWindowResponse(rank=number)
    if frame.kind in ("batch", "gap", "end"):
        getattr(message, frame.kind).MergeFromString(frame.payload)
        getattr(message, frame.kind).SetInParent()
    return message


def _described(rank: DaemonRank, first: int, known_names: int = 0) -> Iterator[wire.ReadWindowResponse]:
    """Yield batches without records that repeat the devices, and names that are unknown, of earlier messages."""
    if rank.devices:
        devices = records.Table(kind=records.TABLE_KIND_DEVICES, arrow=rank.devices)
        yield wire.ReadWindowResponse(rank=rank.hello.rank, batch=records.Batch(first=first, tables=[devices]))
    names, begin = rank.session.names, known_names
    while begin < len(names):
        end = _piece_end(names, begin)
        batch = records.Batch(first=first, first_name=begin, names=names[begin:end])
        yield wire.ReadWindowResponse(rank=rank.hello.rank, batch=batch)
        begin = end


def _piece_end(names: Sequence[str], begin: int) -> int:
    """Return the end of the names that fit into one message from `begin` on."""
    size = 0
    for end in range(begin, min(len(names), begin + BATCH_NAMES)):
        size += len(names[end].encode())
        if size > NAMES_NBYTES and end > begin:
            return end
    return min(len(names), begin + BATCH_NAMES)
