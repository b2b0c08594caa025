"""The raw records of a rank that the journal still has, as the messages of `Query.ReadWindow`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from deepprof.v1 import query_pb2 as wire
from deepprof.v1 import records_pb2 as records

if TYPE_CHECKING:
    from deepprof.service.journal import Frame, Journal, Place
    from deepprof.service.rank import Rank

__all__ = ["is_whole", "latest", "window_messages"]

NAMES_NBYTES = 1 << 20  # of texts in one message


def latest(journal: Journal, rank: Rank, nbytes: int) -> list[Place]:
    """Return the places of a rank's latest messages, `nbytes` of them at most, oldest first."""
    places, size = journal.window(rank.number), 0
    for index in range(len(places) - 1, -1, -1):
        size += places[index].length
        if size > nbytes:
            return places[index + 1 :]
    return places


def is_whole(journal: Journal, rank: Rank, places: list[Place]) -> bool:
    """Return whether the places hold all that the rank has ever sent."""
    return bool(places) and len(places) == len(journal.window(rank.number)) and journal.read(places[0]).first == 0


def window_messages(journal: Journal, rank: Rank, places: list[Place]) -> Iterator[wire.ReadWindowResponse]:
    """Yield the rank's Hello and the messages at `places`; names that came before them are repeated."""
    number, names = rank.hello.rank, 0
    for index, place in enumerate(places):
        frame = journal.read(place)
        message = parse(number, frame)
        if not index:
            yield wire.ReadWindowResponse(rank=number, hello=rank.hello, skipped=frame.first)
        if message.HasField("batch"):
            yield from missing_names(rank, names, message.batch)
            names = max(names, message.batch.first_name + len(message.batch.names))
        yield message
    if not places:
        yield wire.ReadWindowResponse(rank=number, hello=rank.hello, skipped=rank.durable)


def parse(number: int, frame: Frame) -> wire.ReadWindowResponse:
    """Return the message that a frame holds."""
    message = wire.ReadWindowResponse(rank=number)
    if frame.kind in ("batch", "gap", "end"):
        getattr(message, frame.kind).MergeFromString(frame.payload)
        getattr(message, frame.kind).SetInParent()
    return message


def missing_names(rank: Rank, known: int, batch: records.Batch) -> Iterator[wire.ReadWindowResponse]:
    """Yield messages with the names from `known` to before those of `batch`, in pieces."""
    piece: list[str] = []
    size = 0
    for name in rank.session.names[known : batch.first_name]:
        piece.append(name)
        size += len(name)
        if size > NAMES_NBYTES:
            yield named(rank, batch.first, known, piece)
            known, piece, size = known + len(piece), [], 0
    if piece:
        yield named(rank, batch.first, known, piece)


def named(rank: Rank, first: int, first_name: int, names: list[str]) -> wire.ReadWindowResponse:
    """Return a batch that has nothing but names."""
    return wire.ReadWindowResponse(
        rank=rank.hello.rank, batch=records.Batch(first=first, first_name=first_name, names=names)
    )
