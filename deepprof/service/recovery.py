"""After a start: every rank as it was last saved, and what the journal has beyond that mined again."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deepprof.service.ingest import find_devices
from deepprof.service.rank import Item, Rank
from deepprof.service.session import RankSession
from deepprof.v1 import records_pb2 as pb
from deepprof.wire.checking import check_batch
from deepprof.wire.errors import WireError

if TYPE_CHECKING:
    from deepprof.service.engine import Engine
    from deepprof.service.history import Stored
    from deepprof.service.journal import Frame, Place

__all__ = ["Recovered", "recover"]

log = logging.getLogger(__name__)

PIECE = 16  # items mined at a time


@dataclass(slots=True)
class Recovered:
    """What a start found: ranks, messages and records mined again, and messages that could not be read."""

    ranks: int = 0
    messages: int = 0
    records: int = 0
    damaged: int = 0


def recover(engine: Engine) -> Recovered:
    """Bring back the ranks of the history, and mine what the journal has of them since. Before the threads start."""
    found = Recovered()
    open_ones = [stored for stored in engine.history.restore() if not stored.closed]
    ranks = {stored.session: rank for stored in open_ones if (rank := bring_back(engine, stored))}
    for rank in ranks.values():
        engine.roster.put(rank)
    found.ranks = len(ranks)
    for place, frame in engine.journal.replay(first_needed(engine, list(ranks.values()))):
        rank = ranks.get(frame.session)
        if rank is not None and (rank.saved is None or place > rank.saved):
            take_again(engine, rank, place, frame, found)
    for rank in ranks.values():
        catch_up(engine, rank)
    engine.worker.save(ranks.values())
    return found


def bring_back(engine: Engine, stored: Stored) -> Rank | None:
    """Return a rank as it was last saved; one whose state cannot be read begins anew, and the log says so."""
    hello = pb.Hello.FromString(stored.hello)
    if stored.state:
        try:
            rank = Rank.restore(stored.session, hello, stored.state)
        except ValueError as error:
            log.error("state-damaged", extra={"job": stored.job, "rank": stored.rank, "problem": str(error)[:200]})
            return None
        rank.position = rank.saved = rank.latest = stored.position
        return rank
    return Rank(stored.session, hello, RankSession(), first_seen_unix_ns=engine.clock.unix_ns())


def first_needed(engine: Engine, ranks: list[Rank]) -> Place | None:
    """Return behind which place the journal has to be read; None: from its beginning on."""
    saved = [rank.saved for rank in ranks]
    return None if not saved or None in saved else min(place for place in saved if place is not None)


def take_again(engine: Engine, rank: Rank, place: Place, frame: Frame, found: Recovered) -> None:
    """Queue a message that was durable; where it cannot be read, the rank has a gap."""
    item = read_item(engine, rank, frame)
    if item is None:
        found.damaged += 1
        item = Item("gap", b"", rank.next, max(0, frame.first + frame.count - rank.next), lost=frame.count or None)
    elif frame.first > rank.next:  # what was between was damaged
        lost = frame.first - rank.next
        add(engine, rank, place, Item("gap", b"", rank.next, lost, lost=lost))
    add(engine, rank, place, item)
    found.messages += 1
    found.records += item.count if item.kind == "batch" else 0


def add(engine: Engine, rank: Rank, place: Place, item: Item) -> None:
    """Put a message into the rank's queue, and mine now and then."""
    rank.note_submitted(item)
    rank.note_durable(item)
    if item.kind == "batch":
        rank.accounts.arrive(item.count)
    engine.worker.put(rank, item, place)
    if len(rank.queue) >= PIECE:
        catch_up(engine, rank)


def catch_up(engine: Engine, rank: Rank) -> None:
    """Mine all that a rank has waiting."""
    while rank.queue:
        engine.worker.mine(rank)


def read_item(engine: Engine, rank: Rank, frame: Frame) -> Item | None:
    """Return the message that a frame holds, None where it cannot be read any more."""
    if frame.kind == "batch":
        try:
            batch = pb.Batch.FromString(frame.payload)
            records = check_batch(batch, engine.limits, rank.names)
        except WireError:
            return None
        return Item("batch", frame.payload, records.first, records.count, records, find_devices(batch))
    lost = frame.count or None if frame.kind == "gap" else None
    return Item(frame.kind, frame.payload, frame.first, frame.count, lost=lost)
