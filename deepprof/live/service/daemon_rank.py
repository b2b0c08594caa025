"""One rank as the daemon holds it: its Hello, its durable records, the messages that wait to be mined, its view."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from deepprof.live.service.account import Accounts
from deepprof.live.service.context_windows import merge_hours
from deepprof.live.service.history.values import WaitingWindow
from deepprof.live.service.journal import JournalPlace
from deepprof.live.service.leading_contexts import LeadingContexts
from deepprof.live.service.session import RankSession
from deepprof.live.service.views import HISTORY, RankView
from deepprof.live.wire.figures import Account, CollectorStatus, KindAccount, LeadingFigures, StageFigures
from deepprof.live.wire.kinds import UNKNOWN_KIND
from deepprof.metrics.contexts.lines import sum_lines
from deepprof.metrics.contexts.sent import read_sent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deepprof.live.service.context_windows import ContextWindow
    from deepprof.live.service.journal import Kind
    from deepprof.live.service.refusal import RefusedError
    from deepprof.live.wire.records import CheckedRecords
    from deepprof.v1 import records_pb2 as pb

VERSION = 1
BEGINNING = JournalPlace(0, 0, 0)  # of any journal
NO_GAPS: tuple[int, frozenset[str]] = (-1, frozenset())
MOST_WAITING_WINDOWS = 120  # of minutes, while the history cannot be written
MOST_REASONS = 16  # at one place


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message on its way: checked, numbered, and (once `place` is known) durable."""

    kind: Kind
    payload: bytes
    first: int
    count: int
    records: CheckedRecords | None = None  # of a batch
    devices: bytes = b""  # the table that describes the devices, as received
    lost: int | None = None  # of a gap; None where the number is unknown
    missing: Mapping[str, int] = field(default_factory=dict)  # records that it reports as not sent, by reason
    arrived_ns: int = 0  # on the daemon's monotonic clock

    @property
    def names(self) -> int:
        """The number of new names in the message."""
        return len(self.records.names) if self.records is not None else 0

    @property
    def names_nbytes(self) -> int:
        """The bytes of the new names in the message."""
        return sum(len(name.encode()) for name in self.records.names) if self.records is not None else 0

    @property
    def nbytes(self) -> int:
        """The memory that it needs while it waits: the message, and its tables, which are about as large."""
        return waiting_nbytes(len(self.payload))


def waiting_nbytes(payload_nbytes: int) -> int:
    """Return the memory that an item with such a payload takes while it waits."""
    return 2 * payload_nbytes + 256


class SavedRank(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a rank next to its session's, as a checkpoint keeps it."""

    version: int
    next: int
    items: int
    names: int
    devices: bytes
    ended: bool
    settled: bool
    failed: bool
    first_seen_unix_ns: int
    last_record_unix_ns: int
    last_iteration_unix_ns: int
    account: dict[str, int]
    dropped: dict[str, int]
    session: bytes
    kinds: dict[str, int] = {}  # accepted; these three fields are newer, and states without them are still read
    dropped_kinds: dict[str, dict[str, int]] = {}  # by kind and reason
    missing: dict[str, int] = {}


@dataclass(slots=True, eq=False)
class DaemonRank:
    """A session of one collector of one rank.

    The event loop owns the fields of the connection (`next`, `names`, `connection`, `broken`), the worker thread those
    of mining (`session`, `rows`, `position`); `queue` is handed over under the worker's lock. `view` is replaced as a
    whole, so that any thread may read it.
    """

    number: int
    hello: pb.Hello
    session: RankSession
    accounts: Accounts = field(default_factory=Accounts)
    first_seen_unix_ns: int = 0
    last_record_unix_ns: int = 0
    last_iteration_unix_ns: int = 0
    # The connection's side.
    next: int = 0  # number of the record that is expected
    names: int = 0  # known, including those on their way
    names_nbytes: int = 0
    bare_gaps: tuple[int, frozenset[str]] = NO_GAPS  # the latest gaps of unknown size: their place, their reasons
    durable: int = 0
    durable_items: int = 0
    durable_names: int = 0
    durable_names_nbytes: int = 0
    connection: object | None = None
    left_ns: int = 0  # when it was last connected, on the daemon's monotonic clock
    closing: bool = False  # an End is on its way
    ended: bool = False  # … and durable
    broken: RefusedError | None = None  # why the items on their way cannot become durable
    submitted: int = 0  # items handed to the journal and not yet written
    submitted_nbytes: int = 0
    owner: str = ""  # its sender: the name of a token, or of another proof
    reserved_nbytes: int = 0  # of a message that is just being checked
    counted_nbytes: int = 0  # the value of `waiting_nbytes` that the admission has counted
    # The miner's side.
    queue: deque[tuple[QueuedMessage, JournalPlace]] = field(default_factory=deque)
    line: str | None = None  # the owner in whose queue it waits for its turn to be mined; None: it does not wait
    queued_nbytes: int = 0
    rows: list[pl.DataFrame] = field(default_factory=list)  # not yet in the history
    contexts: list[ContextWindow] = field(default_factory=list)  # … nor these windows of calling contexts
    position: JournalPlace | None = None  # of the last item mined
    saved: JournalPlace | None = None  # … when last saved
    begun: JournalPlace | None = None  # the journal's end when the rank began: its records are after it
    latest: JournalPlace | None = None  # of the last item that is durable
    unsaved_nbytes: int = 0
    state_nbytes: int = 0  # of the last checkpoint
    saved_ns: int = 0
    lag_ns: int = 0
    mined: int = 0  # the number after the last record that the session took, or has to be lost
    mined_end: bool = False
    mined_items: int = 0
    counted: tuple[int, bool] = (0, False)  # the record up to which the account is complete, and whether to the end
    devices: bytes = b""  # as last described
    settled: bool = False
    unsettled: bool = False  # it cannot be settled: not all records are kept, or they could not be analysed
    unsaved: bool = False  # more was mined than is saved
    failed: bool = False  # a bug occurred with its records: they are no longer mined
    findings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    stages: tuple[StageFigures, ...] = ()
    leading: LeadingContexts | None = None  # the lines of code that lead; not saved, as counters may begin anew
    status: CollectorStatus | None = None  # the last one; not saved, because the collector sends it again
    view: RankView = field(init=False)

    def __post_init__(self) -> None:
        self.show()

    @property
    def key(self) -> tuple[str, int]:
        """The job and the rank's number in it."""
        return self.hello.job, self.hello.rank

    @property
    def waiting_nbytes(self) -> int:
        """The memory of its messages that are not mined yet."""
        return self.reserved_nbytes + self.submitted_nbytes + self.queued_nbytes

    @property
    def needs(self) -> JournalPlace | None:
        """The place from which on the journal is needed to restore the rank; None: it is not needed."""
        return None if self.latest == self.saved else self.saved or self.begun or BEGINNING

    @property
    def is_done(self) -> bool:
        """Whether the rank has ended, and nothing is left to do for it."""
        return self.mined_end and self.connection is None and not self.submitted and not self.queue

    def show(self) -> None:
        """Make a new view."""
        self.view = RankView(
            job=self.hello.job,
            rank=self.hello.rank,
            world_size=self.hello.world_size,
            host=self.hello.host,
            collector=self.hello.collector,
            connected=self.connection is not None,
            ended=self.ended,
            settled=self.settled,
            first_seen_unix_ns=self.first_seen_unix_ns,
            last_record_unix_ns=self.last_record_unix_ns,
            last_iteration_unix_ns=self.last_iteration_unix_ns,
            clock_offset_ns=self.hello.clock_offset_ns,
            account=self.accounts.view(),
            queued_nbytes=self.queued_nbytes,
            lag_ns=self.lag_ns,
            devices=self.session.devices,
            findings=self.findings,
            stages=self.stages,
            contexts=self._look_at_leading(),
            status=self.status,
            sender=self.owner,
        )

    def note_contexts(self, windows: Iterable[ContextWindow], most: int) -> None:
        """Count what lines of code did in windows that are over."""
        for window in windows:
            self.leading = self.leading or LeadingContexts(most)
            self.leading.add(sum_lines(read_sent(window.tree).measure(window.tree)), window.length_ns)

    def _look_at_leading(self) -> LeadingFigures | None:
        """Return the lines of code that lead, None where no contexts came at all."""
        if self.leading is not None:
            return self.leading.show()
        return LeadingFigures() if self.session.has_contexts else None

    def note_status(self, status: CollectorStatus) -> None:
        """Show the collector's status at once; the rest of the view belongs to the worker, which may be at work."""
        self.status = status
        self.view = replace(self.view, status=status)

    def note_submitted(self, item: QueuedMessage) -> None:
        """Count an item that goes to the journal; the next one is expected after it."""
        self.next = item.first + item.count
        self.submitted += 1
        self.submitted_nbytes += item.nbytes
        self.closing = self.closing or item.kind == "end"
        self.names += item.names
        self.names_nbytes += item.names_nbytes

    def note_bare_gap(self, first: int, reason: str) -> bool:
        """Note a gap of unknown size; False: it is available, and was sent again because a connection broke."""
        place, reasons = self.bare_gaps
        here = reasons if place == first else frozenset()
        if reason not in here and len(here) < MOST_REASONS:
            self.bare_gaps = first, here | {reason}
        return reason not in here

    def note_durable(self, item: QueuedMessage) -> None:
        """Note that an item is in the journal."""
        self.submitted -= 1
        self.submitted_nbytes -= item.nbytes
        self.durable = item.first + item.count
        self.durable_items += 1
        self.devices = item.devices or self.devices
        self.ended = self.ended or item.kind == "end"
        self.durable_names += item.names
        self.durable_names_nbytes += item.names_nbytes

    def note_lost(self, item: QueuedMessage, why: RefusedError | None) -> None:
        """Note that an item could not be made durable: it and all after it have to be sent again."""
        self.submitted -= 1
        self.submitted_nbytes -= item.nbytes
        self.broken = why

    def mend(self) -> None:
        """Continue after the durable items, once no item is on its way to the journal any more."""
        self.bare_gaps = NO_GAPS if self.broken else self.bare_gaps
        self.next, self.closing, self.broken = self.durable, self.ended, None
        self.names, self.names_nbytes = self.durable_names, self.durable_names_nbytes

    def take(self, item: QueuedMessage) -> None:
        """Give an item to the session."""
        self.follow(item)
        if item.records is not None:
            self.session.take(item.records)
        elif item.kind == "gap":
            self.session.gap(item.lost)
        elif item.kind == "end":
            self.session.end()

    def follow(self, item: QueuedMessage) -> None:
        """Note how far the rank was mined."""
        self.mined = item.first + item.count
        self.mined_items += 1
        self.mined_end = self.mined_end or item.kind == "end"
        if item.kind == "gap":
            self.accounts.gap(item.lost or 0)
        self.accounts.miss(item.missing)
        if self.failed and item.records is not None:
            self.session.take_names(item.records.names, item.records.first_name)

    def note_counted(self) -> None:
        """Note that the account contains everything that was mined."""
        self.counted = self.mined, self.mined_end

    @property
    def is_counted(self) -> bool:
        """Whether the account contains all durable items, and the End is one of them."""
        return self.counted == (self.durable, True)

    def give_up(self) -> None:
        """Stop mining the rank: the results so far stay, if they can still be shown and saved."""
        self.failed = True
        try:
            self.session.save()
            self.show()
        except Exception:  # the bug may have left the session in any state
            names, self.session = self.session.names, RankSession()
            self.session.take_names(names, 0)
            self.show()

    def take_rows(self) -> pl.DataFrame:
        """Return the iterations that are not in the history yet; the caller puts them there."""
        rows, self.rows = self.rows, []
        return pl.concat(rows) if rows else pl.DataFrame(schema=HISTORY)

    def take_contexts(self) -> list[ContextWindow]:
        """Return the windows of contexts that are not in the history yet; the caller puts them there."""
        windows, self.contexts = self.contexts, []
        return windows

    def look_at_contexts(self) -> list[WaitingWindow]:
        """Return the windows of contexts that are not in the history yet, those that are not over too."""
        over = [WaitingWindow(self.number, window, is_open=False) for window in self.contexts]
        return over + [WaitingWindow(self.number, window, is_open=True) for window in self.session.look_at_contexts()]

    def put_back(self, rows: pl.DataFrame, contexts: list[ContextWindow]) -> None:
        """Keep what could not be put into the history; of many windows of contexts those of an hour become one."""
        self.rows.insert(0, rows)
        self.contexts = contexts + self.contexts
        if len(self.contexts) > MOST_WAITING_WINDOWS:
            self.contexts = list(merge_hours(self.contexts))

    def save(self) -> bytes:
        """Return the encoded state of the rank at `position`."""
        account = self.accounts.view()
        dropped = dict(account.dropped)
        counts = ("received", "accepted", "invalid", "duplicate", "gaps", "lost")
        return msgspec.msgpack.encode(
            SavedRank(
                version=VERSION,
                next=self.mined,
                items=self.mined_items,
                devices=self.devices,
                names=len(self.session.names),
                ended=self.mined_end,
                settled=self.settled,
                failed=self.failed,
                first_seen_unix_ns=self.first_seen_unix_ns,
                last_record_unix_ns=self.last_record_unix_ns,
                last_iteration_unix_ns=self.last_iteration_unix_ns,
                account={name: getattr(account, name) for name in counts},
                dropped=dropped,
                session=self.session.save(),
                kinds={each.kind: each.accepted for each in account.kinds},
                dropped_kinds={each.kind: dict(each.dropped) for each in account.kinds},
                missing=dict(account.missing),
            )
        )

    @classmethod
    def restore(cls, number: int, hello: pb.Hello, state: bytes) -> DaemonRank:
        """Return the rank whose state `save` has encoded. Raises `ValueError` for other bytes."""
        saved = msgspec.msgpack.decode(state, type=SavedRank)
        if saved.version != VERSION:
            raise ValueError(f"a rank's state of version {saved.version}, not {VERSION}")
        session = RankSession.restore(saved.session)
        nbytes = sum(len(name.encode()) for name in session.names)
        return cls(
            number,
            hello,
            session,
            Accounts(_restore_account(saved)),
            saved.first_seen_unix_ns,
            saved.last_record_unix_ns,
            saved.last_iteration_unix_ns,
            next=saved.next,
            names=saved.names,
            durable=saved.next,
            durable_items=saved.items,
            mined_items=saved.items,
            counted=(saved.next, saved.ended),
            devices=saved.devices,
            durable_names=saved.names,
            names_nbytes=nbytes,
            durable_names_nbytes=nbytes,
            closing=saved.ended,
            ended=saved.ended,
            mined=saved.next,
            mined_end=saved.ended,
            settled=saved.settled,
            failed=saved.failed,
        )


def _restore_account(saved: SavedRank) -> Account:
    """Return the account in a state; records that were counted without their kind keep an unknown kind."""
    kinds = saved.kinds.keys() | saved.dropped_kinds.keys()
    return Account(
        **saved.account,
        dropped=saved.dropped,
        kinds=tuple(
            KindAccount(kind, saved.kinds.get(kind, 0), saved.dropped_kinds.get(kind, {}))
            for kind in sorted(kinds - {UNKNOWN_KIND})
        ),
        missing=saved.missing,
    )
