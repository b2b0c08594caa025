"""Recovery at the start: every rank is restored as last saved, and its later messages from the journal are mined."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from deepprof.live.service.daemon_rank import DaemonRank, QueuedMessage
from deepprof.live.service.history import StoredSession
from deepprof.live.service.ingest import find_devices
from deepprof.live.service.journal import JournalError, JournalFrame, JournalPlace
from deepprof.live.service.missing_names import check_after_loss
from deepprof.live.service.session import RankSession
from deepprof.live.wire.errors import WireError
from deepprof.live.wire.limits import WIDEST
from deepprof.v1 import records_pb2 as pb

if TYPE_CHECKING:
    from deepprof.live.service.engine import Engine

log = logging.getLogger(__name__)

PIECE = 16  # items of a rank mined at a time
PIECE_NBYTES = 64 << 20  # queued of all ranks together before all are mined
DAMAGED = "damaged"  # the reason of records that the journal has lost


@dataclass(slots=True)
class RecoveryResult:
    """The counts of a recovery: ranks, messages and records mined again, and messages that could not be read."""

    ranks: int = 0
    messages: int = 0
    records: int = 0
    damaged: int = 0


def recover(engine: Engine) -> RecoveryResult:
    """Restore the ranks of the history, and mine their later messages in the journal. Call it before the threads start.

    Ends early when the daemon is to stop: the rest is left for the next start.
    """
    found = RecoveryResult()
    open_ones = [stored for stored in engine.history.restore() if not stored.closed]
    ranks = {stored.session: rank for stored in open_ones if (rank := _bring_back(engine, stored))}
    senders = engine.history.senders()
    for rank in ranks.values():
        rank.owner = senders.get(rank.key, "")
        engine.roster.put(rank)
    found.ranks = len(ranks)
    for place, frame in engine.journal.replay(_first_needed(engine, list(ranks.values()))):
        if engine.stopping:
            break
        rank = ranks.get(frame.session)
        if rank is not None and (rank.saved is None or place > rank.saved):
            take_again(engine, rank, place, frame, found)
    for rank in ranks.values():
        _catch_up(engine, rank)
    engine.worker.save(ranks.values())
    return found


def _bring_back(engine: Engine, stored: StoredSession) -> DaemonRank | None:
    """Return a rank as it was last saved; None, with a log event, where not even its Hello can be read."""
    try:
        hello = pb.Hello.FromString(stored.hello)
    except DecodeError as error:
        _log_damage(stored, error)
        return None
    if stored.state and stored.position is not None:
        try:
            rank = DaemonRank.restore(stored.session, hello, stored.state)
        except ValueError as error:
            _log_damage(stored, error)
            rank = _without_state(engine, stored, hello)
        rank.position = rank.saved = rank.latest = stored.position
        return rank
    return DaemonRank(stored.session, hello, RankSession(), first_seen_unix_ns=stored.begun_unix_ns)


def _log_damage(stored: StoredSession, error: Exception) -> None:
    log.error("state-damaged", extra={"job": stored.job, "rank": stored.rank, "problem": str(error)[:200]})


def _without_state(engine: Engine, stored: StoredSession, hello: pb.Hello) -> DaemonRank:
    """Return a rank whose state cannot be read: it starts again after the mined messages, which the history has.

    Acknowledged records stay acknowledged if the journal still has the last of them: the client continues where it was.
    """
    rank = DaemonRank(stored.session, hello, RankSession(), first_seen_unix_ns=stored.begun_unix_ns)
    places = engine.journal.window(stored.session)
    for place in places:
        if stored.position is not None and place <= stored.position:
            _follow(engine, rank, place)
    if rank.durable and not rank.ended:
        _add_gap(rank)
    rank.note_counted()
    return rank


def _follow(engine: Engine, rank: DaemonRank, place: JournalPlace) -> None:
    """Note a message that was mined, and the names in it."""
    try:
        frame = engine.journal.read(place)
    except JournalError:
        return
    item = _read_item(rank, frame)
    if item is None:
        return
    if item.first > rank.next:  # messages before are not kept or damaged: then not all records can be examined together
        rank.durable_items += 1
        rank.mined_items += 1
    rank.note_submitted(item)
    rank.note_durable(item)
    rank.follow(item)
    if item.records is not None:
        rank.session.take_names(item.records.names, item.records.first_name)


def _add_gap(rank: DaemonRank) -> None:
    """Separate the records mined before from those that follow, so that no result spans both."""
    rank.session.gap(None)
    rank.accounts.gap(0)


def _first_needed(engine: Engine, ranks: list[DaemonRank]) -> JournalPlace | None:
    """Return the place after which the journal has to be read; None: from its beginning."""
    saved = [rank.saved for rank in ranks]
    return None if not saved or None in saved else min(place for place in saved if place is not None)


def take_again(
    engine: Engine, rank: DaemonRank, place: JournalPlace, frame: JournalFrame, found: RecoveryResult
) -> None:
    """Queue a message that was durable; if it cannot be read, the rank gets a gap."""
    item = _read_item(rank, frame)
    if item is None:
        found.damaged += 1
        missing = max(0, frame.first + frame.count - rank.next)
        item = QueuedMessage("gap", b"", rank.next, missing, lost=frame.count or None, missing={DAMAGED: frame.count})
    elif frame.first > rank.next:  # the messages between were damaged
        lost = frame.first - rank.next
        _add(engine, rank, place, QueuedMessage("gap", b"", rank.next, lost, lost=lost, missing={DAMAGED: lost}))
    _add(engine, rank, place, item)
    found.messages += 1
    found.records += item.count if item.kind == "batch" else 0


def _add(engine: Engine, rank: DaemonRank, place: JournalPlace, item: QueuedMessage) -> None:
    """Put a message into the rank's queue, and mine when enough messages wait."""
    rank.note_submitted(item)
    rank.note_durable(item)
    if item.kind == "batch":
        rank.accounts.arrive(item.count)
    engine.worker.put(rank, item, place)
    engine.admission.count(rank)
    if len(rank.queue) >= PIECE:
        _catch_up(engine, rank)
    if engine.queued_nbytes >= PIECE_NBYTES:
        for other in list(engine.roster):
            _catch_up(engine, other)


def _catch_up(engine: Engine, rank: DaemonRank) -> None:
    while rank.queue:
        engine.worker.mine(rank)
    engine.admission.count(rank)


def _read_item(rank: DaemonRank, frame: JournalFrame) -> QueuedMessage | None:
    """Return the message that a frame holds, None where it cannot be read any more.

    It was checked when it arrived, but perhaps against other limits.
    """
    if frame.kind == "batch":
        try:
            batch = pb.Batch.FromString(frame.payload)
            records = check_after_loss(batch, WIDEST, rank.names)
        except (WireError, DecodeError):
            return None
        return QueuedMessage("batch", frame.payload, records.first, records.count, records, find_devices(batch))
    lost = frame.count or None if frame.kind == "gap" else None
    missing = _read_missing(frame)
    return (
        None
        if missing is None
        else QueuedMessage(frame.kind, frame.payload, frame.first, frame.count, lost=lost, missing=missing)
    )


def _read_missing(frame: JournalFrame) -> dict[str, int] | None:
    """Return the counts, by reason, of records not sent that a gap or an End reports, None where it cannot be read."""
    try:
        if frame.kind == "gap":
            return {pb.Gap.FromString(frame.payload).reason: frame.count}
        return dict(pb.End.FromString(frame.payload).dropped)
    except DecodeError:
        return None
