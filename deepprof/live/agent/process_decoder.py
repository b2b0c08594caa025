"""Decodes the packets of a process: records on the Unix clock, in order, under the rank's names."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import polars as pl

from deepprof.collectors.errors import escaped
from deepprof.collectors.live.packets import (
    CONTEXT_SUM,
    EVENT,
    MEMORY_CHANGE,
    NO_TIME,
    NOTICE_HEAD,
    RANGE,
    RECORDS_HEAD,
    TICK,
    Kind,
    Reason,
)
from deepprof.collectors.trace import ANNOTATIONS, HOST_EVENTS, empty_table
from deepprof.live.agent.accounting import (
    CONTEXT_KIND,
    MEMORY_KIND,
    RANGE_KIND,
    RESTARTED,
    Made,
    ProcessAccount,
    count_rows,
)
from deepprof.live.agent.answers import CUT
from deepprof.live.agent.clocks import ClockFollower
from deepprof.live.agent.context_backlog import MOST_SUMS, ContextBacklog, ready_until
from deepprof.live.agent.conversion import (
    device_events,
    device_sizes,
    host_tables,
    is_framework,
    is_operator,
    memory_events,
)
from deepprof.live.agent.hello import ProcessHello, ProtocolError
from deepprof.live.agent.operators import OperatorKernels, OperatorSplit
from deepprof.live.agent.pieces import Tables, count_records
from deepprof.live.agent.process_names import ProcessNameTable
from deepprof.live.agent.process_notices import ProcessNotices
from deepprof.live.agent.rank_spool import RankSpool
from deepprof.live.agent.record_limits import AHEAD_NS, FAR_NS, are_possible, judge_records
from deepprof.live.agent.reordering import ReorderBuffer, Rows

SOON_NS = 10**9  # after a reading that arrived after the record
log = logging.getLogger(__name__)

LEAST_HOLD_NS, MOST_HOLD_NS = 250_000_000, 10_000_000_000
# A collector's watermark is waited for so long: a kernel that still runs, such as a collective that waits for another
# rank, keeps back the buffer with all that was launched around it, while later buffers come. If a collector sends no
# watermark, or no more, records that have not come so long after records that ended later are in no buffer.
PATIENCE_NS = 10_000_000_000
BEHIND_NS = 1_000_000_000
HELD_NBYTES = 32 << 20  # of records that wait for their turn; beyond it only those that have come are ordered
EVERY_NS = 1_000_000_000  # between batches, unless BATCH_RECORDS are kept
BATCH_RECORDS = 8192  # records: a small batch costs the daemon as much as a large one
CUT_TEXT = "the process was gone before it had said its end: its last records may be missing"
HIGHEST = 2**60  # number of a record
NO_CONTEXT = "no-context"  # device events that arrived into no context's sum, where contexts are told
NOT_COLLECTED = "not-collected"  # no rank took them, or no agent had asked for them
RECORDS = {Kind.EVENTS: EVENT, Kind.RANGES: RANGE, Kind.MEMORY_CHANGES: MEMORY_CHANGE}  # packets of records
CONTEXT_PACKETS = (Kind.CONTEXTS, Kind.CONTEXT_SUMS, Kind.LAUNCHES)
NUMBERS = [name for name in TICK.names or () if name != "made"]
NO_HOST, NO_ANNOTATIONS = empty_table(HOST_EVENTS), empty_table(ANNOTATIONS)
NO_CHANGES: Tables = {}


@dataclass(frozen=True, slots=True)
class ProcessTick:
    """A process's report on its clocks and costs, all in ns and totals; see `collectors.live.packets.TICK`."""

    device_ns: int
    mono_ns: int
    unix_ns: int
    events_until_ns: int
    ranges_until_ns: int
    open_since_ns: int
    next: int
    driver_dropped: int
    collector_cpu_ns: int
    process_cpu_ns: int
    level: int
    reason: int
    made: Made


@dataclass(slots=True)
class _ClockBacklog:
    """One clock of a process, and its records that wait for their turn."""

    clock: ClockFollower = field(default_factory=ClockFollower)
    order: ReorderBuffer = field(default_factory=ReorderBuffer)
    until_ns: int = NO_TIME  # on its own clock: all records that began before are here
    now_ns: int | None = None  # on its own clock, when it was read last


class ProcessDecoder:
    """Takes packets and gives tables to a rank, which `open_rank` finds when the first records come.

    `next` counts the process's records up to now, and `account` states what became of them.
    """

    def __init__(self, hello: ProcessHello, open_rank: Callable[[], RankSpool]) -> None:
        self.hello, self.open_rank = hello, open_rank
        self.rank: RankSpool | None = None
        self.process_names = ProcessNameTable()
        self.events, self.ranges = _ClockBacklog(), _ClockBacklog()
        self.changes = _ClockBacklog(self.ranges.clock)
        self.contexts = ContextBacklog()
        self.operators = OperatorKernels() if hello.stand_in else None
        self.tick: ProcessTick | None = None
        self.next = 0
        self.account = ProcessAccount()
        self.overflowed = False  # since the flag was last cleared
        self.notices = ProcessNotices()
        self.sent_ns = 0  # CLOCK_MONOTONIC
        self.watermark_ns = NO_TIME  # Unix: all records that began before were given to the rank
        self.ended = False

    def take(self, kind: int, payload: memoryview) -> None:
        """Take a packet. Raises `ProtocolError` for one that no collector writes, and what `open_rank` raises."""
        if self.ended:
            raise ProtocolError("it goes on behind its end")
        if kind in RECORDS:
            self._take_records(kind, payload)
        elif kind in CONTEXT_PACKETS:
            self._take_contexts(kind, payload)
        elif kind == Kind.NAMES:
            self.process_names.add(payload)
        elif kind == Kind.TICK:
            self._take_tick(payload)
        elif kind == Kind.NOTICE:
            self._take_notice(payload)
        elif kind == Kind.END:
            self._follow(payload, None)
            self.end()
        else:
            raise ProtocolError(f"it sends packets of the unknown kind {kind}")

    def reconnect(self, hello: ProcessHello) -> None:
        """Go on with the same process over a new connection; its names come again."""
        self.pause()  # held records have the names of the former connection
        self.hello = hello
        self.process_names = ProcessNameTable()
        self._leave_out("no-clock", *self.contexts.clear())
        self.contexts = self.contexts.renew(self._now_ns())

    def open(self) -> None:
        """Find the rank of a process that has sent records already. Raises what `open_rank` raises."""
        if self.rank is None:
            self._open(0)

    def after(self, other: ProcessDecoder) -> ProcessDecoder:
        """Return this one as the successor of `other`, whose records no rank needed: names and clocks stay."""
        self.process_names, self.tick, self.notices = other.process_names, other.tick, other.notices
        self.contexts.tree = other.contexts.tree
        for own, others in zip(self._backlogs, other._backlogs, strict=True):
            own.clock, own.now_ns = others.clock, others.now_ns
        self.next, self.account = other.next, other.account
        self.account.abandon(NOT_COLLECTED)
        return self

    def pause(self) -> None:
        """Give all held records to the rank, because this agent ends and another one goes on with the process."""
        if not self.ended and self.rank is not None:
            self._flush()

    def cut(self) -> None:
        """End a process that is gone without END: records that it had not written yet cannot be counted."""
        if not self.ended and self.rank is not None:
            if self.tick is not None and self.tick.next > self.next:
                self._skip(self.tick.next - self.next, self.tick.made, Reason(self.tick.reason))
                self.next = self.tick.next
            self.notices.keep(CUT, CUT_TEXT, self.hello)
        self.end()

    def end(self) -> None:
        """Give everything to the rank, because nothing more comes."""
        if not self.ended and self.rank is not None:
            self._flush()
            self._leave_out("no-clock", *(rows for each in self._backlogs for rows in each.order.clear()))
            self._leave_out("no-clock", *self.contexts.clear())
            self.rank.end(dropped=self.dropped, flagged={NO_CONTEXT: self.contexts.finish(self._now_ns())})
        self.ended = True
        self.process_names, self.operators = ProcessNameTable(), None  # it is shown for long, and may have many names
        self.contexts = ContextBacklog()

    # -- packets --

    def _take_records(self, kind: int, payload: memoryview) -> None:
        dtype = RECORDS[Kind(kind)]
        count = self._follow(payload, dtype)
        if not count:
            return
        rows = np.frombuffer(payload, dtype, offset=RECORDS_HEAD.itemsize)
        self.account.come(count_rows(rows))
        if self.rank is None:
            self._open(count)
        source = dict(zip(RECORDS, self._backlogs, strict=True))[Kind(kind)]
        if source is self.events and self.operators is not None:
            self._leave_out("stand-in", rows)  # its HELLO states that there is no device
            return
        self._leave_out("late", source.order.add(self._sound(rows, source)))
        if source.order.nbytes > HELD_NBYTES:
            self._relieve(source)

    def _take_contexts(self, kind: int, payload: memoryview) -> None:
        if kind == Kind.CONTEXTS:
            self.contexts.add_contexts(payload, self.process_names.texts)
        elif kind == Kind.LAUNCHES:
            self.contexts.add_launches(payload, self._now_ns())
        elif count := self._follow(payload, CONTEXT_SUM):
            self._take_sums(np.frombuffer(payload, CONTEXT_SUM, offset=RECORDS_HEAD.itemsize), count)

    def _take_sums(self, rows: Rows, count: int) -> None:
        self.account.come(count_rows(rows))
        if self.rank is None:
            self._open(count)
        for reason, bad in self.contexts.add_sums(self._sound(rows, self.ranges)):
            self._leave_out(reason, bad)
        if self.contexts.held > MOST_SUMS:
            self._release_sums(whole=True)
            self._leave_out("no-clock", *self.contexts.clear())

    def _relieve(self, source: _ClockBacklog) -> None:
        """Free memory: of the records that have come, give out the early ones, or all of them."""
        if not source.clock.is_set:
            self._leave_out("no-clock", *source.order.clear())
            return
        self._release(source.clock.one(source.order.early_ns()))  # only a part: a stall would cost the job records
        if source.order.nbytes > HELD_NBYTES:
            self._flush()

    def _follow(self, payload: memoryview, dtype: np.dtype[np.void] | None) -> int:
        """Follow the record numbers of a packet of `dtype` records, None for no records; returns how many it has."""
        if len(payload) < RECORDS_HEAD.itemsize:
            raise ProtocolError("a packet of records is too short")
        head = np.frombuffer(payload, RECORDS_HEAD, 1)[0]
        first, count, reason = int(head["first"]), int(head["count"]), int(head["reason"])
        if len(payload) - RECORDS_HEAD.itemsize != count * (dtype.itemsize if dtype else 0) or (count and not dtype):
            raise ProtocolError("a packet of records has not the size that it claims")
        if first < self.next or reason > max(Reason) or first > HIGHEST:
            raise ProtocolError("its records are numbered wrongly")
        if first > self.next or reason:
            self._skip(first - self.next, head["made"], Reason(reason))
        self.next = first + count
        return count

    def _skip(self, lost: int, made: Made, reason: Reason) -> None:
        """Note that records are missing here; a rank that is found later gets the gap then."""
        word = word_of(reason, opened=self.rank is not None)
        self.account.skip(lost, made, word)
        if self.rank is not None:
            self.overflowed |= reason == Reason.BUFFER_FULL
            self._flush()
            self.rank.gap(word, lost, self.next + lost - self.waiting)

    def _open(self, count: int) -> None:
        """Find the rank, at the first `count` records, and give it gaps for those that no agent has taken before."""
        self.rank = self.open_rank()
        self.watermark_ns = NO_TIME
        before, first = self.rank.source_next, self.next - count
        if before:
            self.account.resume(before, elsewhere=self.rank.is_renamed)
        until = before
        for reason, lost in self.lost_by_reason.items():
            until += lost
            self.rank.gap(reason, lost, until)
        if before and until == before and not self.rank.is_renamed:  # nothing is known to be missing
            self.rank.gap(RESTARTED, 0, max(first, before))

    def _sound(self, rows: Rows, source: _ClockBacklog, ahead_ns: int = AHEAD_NS) -> Rows:
        """Return the records that are possible; the others are counted. Times are checked once there is a clock."""
        for reason, good in judge_records(rows, source.now_ns, ahead_ns):
            if not good.all():
                self._leave_out(reason, rows[~good])
                return self._sound(rows[good], source, ahead_ns)
        return rows

    def _leave_out(self, reason: str, *pieces: Rows) -> None:
        for rows in pieces:
            self.account.leave_out(reason, count_rows(rows))

    @property
    def lost_by_reason(self) -> dict[str, int]:
        """Records that never arrived."""
        return {reason: kinds.total() for reason, kinds in self.account.lost.items()}

    @property
    def lost(self) -> int:
        """Records that never arrived, for whatever reason."""
        return sum(self.lost_by_reason.values())

    @property
    def dropped(self) -> dict[str, int]:
        """Records that arrived and were left out, by reason."""
        return {reason: kinds.total() for reason, kinds in self.account.left_out.items()}

    def _take_notice(self, payload: memoryview) -> None:
        if len(payload) < NOTICE_HEAD.itemsize:
            raise ProtocolError("a notice is too short")
        code = int(np.frombuffer(payload, NOTICE_HEAD, 1)[0]["code"])
        text = escaped(bytes(payload[NOTICE_HEAD.itemsize :][:1024]).decode("utf-8", "replace"))
        self.notices.take(code, text, self.hello)

    def _take_tick(self, payload: memoryview) -> None:
        if len(payload) != TICK.itemsize:
            raise ProtocolError("a tick has not its size")
        row = np.frombuffer(payload, TICK, 1)[0]
        tick = ProcessTick(**{name: int(row[name]) for name in NUMBERS}, made=row["made"])
        if not are_possible(tick.device_ns, tick.mono_ns, tick.unix_ns):
            raise ProtocolError("a tick has times that cannot be")
        if tick.reason > max(Reason) or tick.next > HIGHEST:
            raise ProtocolError("a tick has numbers that cannot be")
        self.tick = tick
        if tick.next > self.next:
            word = word_of(Reason(tick.reason), opened=self.rank is not None)
            self.account.look_ahead(tick.next - self.next, tick.made, word)
        jumped = [self._read_clock(self.events, tick.device_ns, tick.unix_ns)] if tick.device_ns != NO_TIME else []
        self._check_held(self.changes, tick.mono_ns)
        jumped += [self._read_clock(self.ranges, tick.mono_ns, tick.unix_ns)]
        if any(jumped) and self.rank is not None:
            self._mark_jump(self.rank)
        self._watermark(tick)
        held = sum(each.order.held for each in self._backlogs)
        if held >= BATCH_RECORDS or tick.mono_ns - self.sent_ns >= EVERY_NS:
            self.sent_ns = tick.mono_ns
            self._release(self._until_unix_ns())
            self._release_sums()

    # -- time --

    def _read_clock(self, source: _ClockBacklog, local_ns: int, unix_ns: int) -> bool:
        """Take a reading; returns whether the Unix clock was set ahead."""
        self._check_held(source, local_ns)
        return source.clock.tick(local_ns, unix_ns)

    def _check_held(self, source: _ClockBacklog, local_ns: int) -> None:
        """Leave out held records whose times turn out to be impossible."""
        is_first, source.now_ns = source.now_ns is None, local_ns
        if source.order.held and (is_first or source.order.newest_ns > local_ns + SOON_NS):
            late = source.order.sift(lambda rows: self._sound(rows, source, SOON_NS))  # one far ahead makes others late
            self._leave_out("late", *late)

    def _mark_jump(self, rank: RankSpool) -> None:
        """Report that the Unix clock was set: held records, and all that follow, are on the new time."""
        log.warning("clock-set", extra={"pid": self.hello.pid})
        if self.operators is not None:
            self._send(self.operators.finish(), rank)
        rank.gap("clock-set", 0, self.next - self.waiting)

    def _watermark(self, tick: ProcessTick) -> None:
        """Set the time on every clock up to which all records are here."""
        if tick.device_ns != NO_TIME:
            order = self.events.order
            hold = min(max(4 * order.longest_ns, LEAST_HOLD_NS), MOST_HOLD_NS)
            known = tick.events_until_ns
            if known < tick.device_ns - PATIENCE_NS:
                known = max(known, order.last_end_ns - BEHIND_NS)
            known = min(known, tick.device_ns)
            self.events.until_ns = known - hold if known > tick.device_ns - FAR_NS else NO_TIME
        open_since = max(tick.open_since_ns, tick.ranges_until_ns - MOST_HOLD_NS)
        until = min(tick.ranges_until_ns, open_since, tick.mono_ns)
        self.ranges.until_ns = self.changes.until_ns = until if until > tick.mono_ns - FAR_NS else NO_TIME

    @property
    def _backlogs(self) -> tuple[_ClockBacklog, ...]:
        return self.events, self.ranges, self.changes  # in the order of RECORDS

    def _sources(self) -> list[_ClockBacklog]:
        return [each for each in self._backlogs if each.clock.is_set]

    def _until_unix_ns(self) -> int | None:
        """Return the Unix time before which all records are here, None while that is unknown."""
        sources = self._sources()
        if not sources or any(each.until_ns == NO_TIME for each in sources):
            return None
        return min(each.clock.one(each.until_ns) for each in sources)

    def _newest_ns(self) -> int:
        """Return the start of the latest record that is kept, in Unix time, not below the watermark."""
        sources = [each for each in self._sources() if each.order.held]
        return max([self.watermark_ns, *(each.clock.one(each.order.newest_ns) for each in sources)])

    @property
    def waiting(self) -> int:
        """Records that are here and were not given to the rank yet."""
        return (
            sum(each.order.held for each in self._backlogs)
            + self.contexts.held
            + (self.operators.waiting if self.operators else 0)
        )

    def _flush(self) -> None:
        """Give out everything that is kept, even if earlier records may still come."""
        if any(each.order.held for each in self._sources()):
            self._release(self._newest_ns() + 1, whole=True)
        if self.operators is not None and self.rank is not None:
            split = self.operators.finish()
            self._send(split, self.rank, self._take_changes(split.until_ns, self.rank, whole=True))
        self._release_sums(whole=True)

    def _release(self, until_ns: int | None, *, whole: bool = False) -> None:
        """Give the rank the records that began before `until_ns`, or all that are kept if `whole`."""
        if until_ns is None or self.rank is None or until_ns <= self.watermark_ns:
            return
        tables: dict[str, pl.DataFrame] = {}
        for source in self._sources():
            if source is self.changes and self.operators is not None:
                continue  # they wait for the operators
            until = source.clock.to_local(until_ns)  # a few ns off where the clocks drift
            rows = source.order.take(max(until, source.order.newest_ns + 1) if whole else until)
            if rows is not None:
                self._count_given(count_rows(rows))
                if source is self.events:
                    self.contexts.add_events(rows, self._now_ns())
                tables |= self._tables(rows, source, self.rank, until_ns)
        self.watermark_ns = until_ns
        if self.operators is None:
            self.rank.send(tables, until_ns, self.next - self.waiting)
        else:
            ranges = tables.get("host_events", NO_HOST), tables.get("annotations", NO_ANNOTATIONS)
            split = self.operators.split(*ranges, self.rank.rank_names.texts, until_ns)
            self._send(split, self.rank, self._take_changes(split.until_ns, self.rank))

    def _release_sums(self, *, whole: bool = False) -> None:
        """Give the rank the sums whose windows are over, or all that are kept if `whole`."""
        clock, now_ns = self.ranges.clock, self._now_ns()
        if self.rank is None or not self.contexts.held or not clock.is_set:
            return
        known_ns = NO_TIME if self.watermark_ns == NO_TIME else clock.to_local(self.watermark_ns)
        # Those that arrived before the clock was set are checked only now.
        rows = self._sound(self.contexts.take(None if whole else ready_until(known_ns, now_ns)), self.ranges)
        for piece in self.contexts.release(rows, now_ns, clock, partial(self.process_names.ids, rank=self.rank)):
            self.account.give(Counter({CONTEXT_KIND: piece.sums}))
            # Operators that represent kernels may still wait: nothing more is promised than before.
            self.rank.send(piece.tables, self.rank.watermark_ns, self.next - self.waiting - piece.following)

    def _now_ns(self) -> int:
        """Return CLOCK_MONOTONIC as the process told it last, 0 before."""
        return self.ranges.now_ns or 0

    def _send(self, split: OperatorSplit, rank: RankSpool, changes: Tables = NO_CHANGES) -> None:
        tables = {**split.tables, **changes}
        if split.notice:  # the loop before it is a different one
            log.info("thread-changed", extra={"pid": self.hello.pid, "text": split.notice})
            rank.gap("thread-changed", 0, self.next - self.waiting - count_records(tables))
        self.account.give(Counter({RANGE_KIND: count_records(split.tables), MEMORY_KIND: count_records(changes)}))
        rank.send(tables, split.until_ns, self.next - self.waiting)

    def _take_changes(self, until_ns: int, rank: RankSpool, *, whole: bool = False) -> Tables:
        """Return the changes of memory before `until_ns`, or all, of a process whose operators represent kernels."""
        source = self.changes
        if not source.clock.is_set:
            return NO_CHANGES
        until = source.clock.to_local(until_ns)
        rows = source.order.take(max(until, source.order.newest_ns + 1) if whole else until)
        return NO_CHANGES if rows is None else self._memory_tables(rows, rank.watermark_ns, until_ns)

    def _memory_tables(self, rows: Rows, from_ns: int, until_ns: int) -> dict[str, pl.DataFrame]:
        time = np.clip(self.changes.clock.to_unix(rows["time_ns"]), from_ns, until_ns - 1)  # a shift of a few ns
        return {"memory_events": memory_events(rows, time, self.hello.pid), "devices": device_sizes(rows)}

    def _count_given(self, kinds: Counter[str]) -> None:
        if self.operators is None:  # else they wait in `operators`, and are counted when those are given
            self.account.give(kinds)

    def _tables(self, rows: Rows, source: _ClockBacklog, rank: RankSpool, until_ns: int) -> dict[str, pl.DataFrame]:
        if source is self.changes:
            return self._memory_tables(rows, self.watermark_ns, until_ns)
        start = np.clip(source.clock.to_unix(rows["start_ns"]), self.watermark_ns, until_ns - 1)  # a shift of a few ns
        end = np.maximum(source.clock.to_unix(rows["end_ns"]), start)
        ids = self.process_names.ids(rows["name"], rank)
        if source is self.events:
            return {"device_events": device_events(rows, start, end, ids)}
        kinds = (
            self.process_names.marks(rows["name"], is_operator),
            self.process_names.marks(rows["name"], is_framework),
        )
        host, annotations = host_tables(rows, (start, end), ids, kinds, self.hello.pid)
        return {"host_events": host, "annotations": annotations}


def word_of(reason: Reason, *, opened: bool) -> str:
    """Return why records are missing, as gaps and accounts name it."""
    if reason:
        return reason.name.lower().replace("_", "-")
    return "lost" if opened else NOT_COLLECTED
