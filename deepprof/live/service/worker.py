"""The only thread that mines: it gives durable records to their sessions, and puts the results into the history."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from deepprof.live.service.clock import DaemonClock
from deepprof.live.service.context_windows import ContextWindow
from deepprof.live.service.examination import FoundLoop
from deepprof.live.service.fair_queue import FairQueue
from deepprof.live.service.folder import StoreError
from deepprof.live.service.history import Checkpoint, History
from deepprof.live.service.journal import Journal, JournalPlace
from deepprof.live.service.session import SessionEvent
from deepprof.live.wire.kinds import count_kinds

if TYPE_CHECKING:
    import polars as pl

    from deepprof.live.process.supervision import FirstFailure
    from deepprof.live.service.daemon_rank import DaemonRank, QueuedMessage

log = logging.getLogger(__name__)

TURN, TURN_RECORDS = 32, 65_536  # items and records of one rank that are mined at a time while other ranks wait
STATE_NBYTES = 16 << 20  # of a rank's messages between checkpoints: a restart has to mine them again
STATE_NS = 30 * 10**9  # between checkpoints of a rank otherwise, or longer because of the next limit
STATE_RATE = 20_000_000  # bytes of states a second, so that a thousand ranks do not keep the disk busy
FAILED = "mining-failed"  # the reason of records that are dropped because a bug keeps them from being mined
TICK_NS = 10**9 // 2
LEADING = 20  # lines of code of a rank


class SessionWorker:
    """Mines, saves, and does all other work on sessions or the history, one after the other.

    `room` is called (from its thread) with a rank whose items were mined, `noticed` with a rank and an event of it.
    `leading` is how many lines of code of each are counted.
    """

    def __init__(
        self,
        journal: Journal,
        history: History,
        clock: DaemonClock,
        *,
        room: Callable[[DaemonRank], None],
        vitals: FirstFailure,
    ) -> None:
        self.journal, self.history, self.clock = journal, history, clock
        self._room = room
        self.leading = LEADING
        self.noticed: Callable[[DaemonRank, SessionEvent], None] = lambda rank, event: None
        self._wake = threading.Condition()
        self._ready = FairQueue["DaemonRank"]()  # ranks with items, each once
        self._orders: deque[Callable[[], None]] = deque()
        self._closing = False
        self._ticked_ns = 0
        self.problem = ""  # why the history could not be written
        self.ranks: Callable[[], Iterable[DaemonRank]] = tuple
        self._vitals = vitals
        run = self._vitals.guard("the thread that mines", self._run)
        self._thread = threading.Thread(target=run, name="worker", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def oldest_ns(self, now_ns: int) -> int:
        """Return how long the item that waits longest has waited."""
        with self._wake:
            arrived = [rank.queue[0][0].arrived_ns for rank in self._ready if rank.queue]
        return max(0, now_ns - min(arrived, default=now_ns))

    def put(self, rank: DaemonRank, item: QueuedMessage, place: JournalPlace) -> None:
        """Queue a durable item."""
        with self._wake:
            rank.queue.append((item, place))
            self._line_up(rank)
            rank.latest = place
            rank.queued_nbytes += item.nbytes
            self._wake.notify()

    def _line_up(self, rank: DaemonRank) -> None:
        """Queue a rank for its turn unless it is queued. The caller holds the lock."""
        if rank.line is None:
            rank.line = rank.owner
            self._ready.add(rank.line, rank.hello.job, rank)

    def call(self, order: Callable[[], Any]) -> None:
        """Have the thread carry out an order after its present work."""
        with self._wake:
            self._orders.append(order)
            self._wake.notify()

    def close(self) -> None:
        """Mine what is queued, save everything, and end; after a failure nothing is saved: a rank may be half mined."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()
        if not self._vitals.problem:
            self.save(self.ranks())

    def _run(self) -> None:
        while not (self._is_idle(TICK_NS / 1e9) and self._closing):
            self.work()

    def _is_idle(self, patience_s: float) -> bool:
        """Return whether there is still nothing to do after a while."""
        with self._wake:
            self._wake.wait_for(lambda: self._ready or self._orders or self._closing, patience_s)
            return not self._ready and not self._orders

    def work(self) -> None:
        """Carry out one order, or else mine the rank whose turn it is; then save the ranks that are due."""
        with self._wake:
            order = self._orders.popleft() if self._orders else None
            rank = self._ready.take() if order is None else None
            if rank is not None:
                rank.line = None
        if order is not None:
            self._carry_out(order)
        if rank is not None and rank.queue:
            self.mine(rank)
            self.save([rank] if rank.unsaved_nbytes >= STATE_NBYTES else [])
        self._tick()

    def _carry_out(self, order: Callable[[], Any]) -> None:
        """Carry out an order; the thread continues even if it fails."""
        try:
            order()
        except (OSError, StoreError) as error:
            self.problem = f"the history cannot be written: {error}"
            log.error("history-failed", extra={"problem": self.problem[:200]})
        except Exception:
            log.exception("order-failed")

    def _tick(self) -> None:
        """Save, from time to time, the ranks that were not saved for a while."""
        now = self.clock.monotonic_ns()
        if now - self._ticked_ns >= TICK_NS:
            ranks = list(self.ranks())
            pause_ns = max(STATE_NS, sum(rank.state_nbytes for rank in ranks) * 10**9 // STATE_RATE)
            due = [rank for rank in ranks if rank.unsaved and now - rank.saved_ns >= pause_ns]
            if len(due) <= TURN:  # else the next ranks are saved soon, and one is mined in between
                self._ticked_ns = now
            self.save(sorted(due, key=attrgetter("saved_ns"))[:TURN])

    def mine(self, rank: DaemonRank) -> None:
        """Give a rank's oldest items to its session, and take the results."""
        with self._wake:
            turn = next_turn(rank)
        items = [item for item, _ in turn]
        kinds, before = _add_kinds(items), rank.mined_items
        try:
            rank.accounts.take(kinds, self.take(rank, items))
        except Exception:
            self._give_up(rank, items[rank.mined_items - before :], kinds)
        rank.position, rank.unsaved = turn[-1][1], True
        rank.unsaved_nbytes += sum(len(item.payload) for item, _ in turn)
        rank.lag_ns = max(0, self.clock.monotonic_ns() - turn[-1][0].arrived_ns)
        self._pass(rank, items)
        rank.show()
        rank.note_counted()  # after the view is made: clients that learn of the count find it shown
        self._room(rank)

    def take(self, rank: DaemonRank, items: Sequence[QueuedMessage]) -> dict[str, Counter[str]]:
        """Give items to a rank's session; return the records that it has dropped now, by reason and kind."""
        if rank.failed:
            for item in items:
                rank.follow(item)
            return {FAILED: _add_kinds(items)}
        before = {reason: Counter(kinds) for reason, kinds in rank.session.dropped_kinds.items()}
        for item in items:
            rank.take(item)
        self.advance(rank)
        return {k: Counter(kinds) - before.get(k, Counter()) for k, kinds in rank.session.dropped_kinds.items()}

    def _give_up(self, rank: DaemonRank, items: Sequence[QueuedMessage], kinds: Counter[str]) -> None:
        """Stop mining a rank whose records met a bug: the others continue, and its raw records are still kept.

        `items` are those that the session has not taken yet, `kinds` the records of the whole turn.
        """
        log.exception("mining-failed", extra={"job": rank.hello.job, "rank": rank.hello.rank})
        rank.give_up()
        rank.accounts.take(kinds, {FAILED: kinds})
        for item in items:
            rank.follow(item)

    def advance(self, rank: DaemonRank) -> None:
        """Mine the records that a session has taken."""
        progress = rank.session.advance()
        if progress.iterations.height:
            rank.rows.append(progress.iterations)
            rank.last_iteration_unix_ns = self.clock.unix_ns()
        rank.contexts += progress.contexts
        rank.unsaved_nbytes += sum(int(window.tree.estimated_size()) for window in progress.contexts)
        rank.note_contexts(progress.contexts, self.leading)
        for event in progress.events:
            self.noticed(rank, event)

    def _pass(self, rank: DaemonRank, items: list[QueuedMessage]) -> None:
        """Take mined items off the queue."""
        nbytes = sum(item.nbytes for item in items)
        with self._wake:
            for _ in items:
                rank.queue.popleft()
            rank.queued_nbytes -= nbytes
            if rank.queue:
                self._line_up(rank)

    def save(self, ranks: Iterable[DaemonRank]) -> None:
        """Put the state and the new iterations of ranks into the history, a few ranks in one transaction."""
        dirty = [rank for rank in ranks if rank.unsaved and rank.position is not None]
        for first in range(0, len(dirty), TURN):
            self._save_together(dirty[first : first + TURN])

    def _save_together(self, dirty: list[DaemonRank]) -> None:
        rows = [(_take_rows(rank), rank.take_contexts()) for rank in dirty]
        saved = [_checkpoint_of(rank, *new) for rank, new in zip(dirty, rows, strict=True)]
        try:
            self.history.checkpoint(saved)
        except (OSError, StoreError) as error:
            self._put_back(dirty, rows, error)
            return
        self.problem = ""
        now = self.clock.monotonic_ns()
        for rank in dirty:
            rank.saved, rank.unsaved_nbytes, rank.saved_ns, rank.unsaved = rank.position, 0, now, False

    def settle(self, rank: DaemonRank, rows: pl.DataFrame, loops: Sequence[FoundLoop]) -> None:
        """Replace the iterations of a rank that has ended with better ones, those of `loops`."""
        self.save([rank])
        self.history.settle(rank.number, rows)
        rank.session.settle(rows, loops)
        if rows.height and not rank.last_iteration_unix_ns:
            rank.last_iteration_unix_ns = self.clock.unix_ns()
        rank.settled = rank.unsaved = True
        self.save([rank])
        rank.show()

    def _put_back(self, ranks: list[DaemonRank], rows: list[Any], error: Exception) -> None:
        """Keep the rows that could not be written until there is space again."""
        self.problem = f"the history cannot be written: {error}"
        log.error("history-failed", extra={"problem": self.problem})
        now = self.clock.monotonic_ns()
        for rank, new in zip(ranks, rows, strict=True):
            rank.put_back(*new)
            rank.saved_ns, rank.unsaved_nbytes = now, 0  # tried again in a while

    def drop(self, rank: DaemonRank) -> None:
        """Forget a rank's waiting and unsaved items. For the worker's own thread."""
        with self._wake:
            rank.queue.clear()
            rank.queued_nbytes = 0
            if rank.line is not None:
                self._ready.discard(rank.line, rank.hello.job, rank)
            rank.line = None
        rank.rows, rank.contexts, rank.unsaved, rank.saved = [], [], False, rank.latest
        self._room(rank)

    def needed(self) -> JournalPlace:
        """Return the place from which on the journal is still needed; everything before is saved, and synced."""
        end = self.journal.end  # read first: items that become durable later are after it
        needs = min((rank.needs for rank in self.ranks() if rank.needs is not None), default=end)
        self.history.sync()
        return min(needs, end)


def next_turn(rank: DaemonRank) -> list[tuple[QueuedMessage, JournalPlace]]:
    """Return a rank's oldest items, one at least, as many as are mined together."""
    turn: list[tuple[QueuedMessage, JournalPlace]] = []
    count = 0
    for item, place in islice(rank.queue, TURN):
        count += item.count if item.kind == "batch" else 0
        if turn and count > TURN_RECORDS:
            break
        turn.append((item, place))
    return turn


def _add_kinds(items: Iterable[QueuedMessage]) -> Counter[str]:
    """Return how many records of every kind the batches among the items have."""
    return sum((count_kinds(item.records.tables) for item in items if item.records is not None), Counter[str]())


def _take_rows(rank: DaemonRank) -> pl.DataFrame:
    """Return a rank's new iterations; if a bug prevents that, the rank is mined no more."""
    try:
        return rank.take_rows()
    except Exception:
        log.exception("saving-failed", extra={"job": rank.hello.job, "rank": rank.hello.rank})
        rank.give_up()
        return rank.take_rows()


def _checkpoint_of(rank: DaemonRank, rows: pl.DataFrame, contexts: Sequence[ContextWindow]) -> Checkpoint:
    if rank.position is None:
        raise ValueError(f"rank {rank.key} has mined nothing")
    try:
        state = rank.save()
    except Exception:
        log.exception("saving-failed", extra={"job": rank.hello.job, "rank": rank.hello.rank})
        rank.give_up()
        state = rank.save()
    rank.state_nbytes = len(state)
    return Checkpoint(rank.number, rank.position, state, rows, tuple(contexts))
