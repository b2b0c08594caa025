"""Processes one rank's records from batches to iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np
import polars as pl

from deepprof.collectors.trace import ANNOTATIONS, Accounting, Trace, empty_table
from deepprof.live.service.context_windows import MOST_NODES, ContextWindow
from deepprof.live.service.examination import FoundLoop
from deepprof.live.service.session.columns import FARTHEST_NS, RANGES, Columns, empty, join, select
from deepprof.live.service.session.contexts import SessionContexts
from deepprof.live.service.session.device_session import DeviceSession
from deepprof.live.service.session.events import SessionEvent
from deepprof.live.service.session.intake import TIMES, SessionIntake, WaitingRows, call_columns, range_columns
from deepprof.live.service.session.latest_iteration import as_history
from deepprof.live.service.session.launches import LAG_NS, Launches
from deepprof.live.service.session.limits import SessionLimits
from deepprof.live.service.session.main_stream import RankContext
from deepprof.live.service.session.names import COLLECTIVE_MARK, RangeFamilies, SessionNames
from deepprof.live.service.session.saving import pack, unpack
from deepprof.live.service.views import DeviceView
from deepprof.live.wire.records import CheckedRecords
from deepprof.metrics.cpu_fallback import stand_in
from deepprof.mining.online.recent import MAX_NAMES


@dataclass(slots=True, eq=False)
class _CpuFallback:
    """Host rows in the order of arrival; `over` once a device was seen, or there are more rows than `most`."""

    most: int
    host_events: list[pl.DataFrame] = field(default_factory=list)
    annotations: list[pl.DataFrame] = field(default_factory=list)
    rows: int = 0
    over: bool = False

    def take(self, host_events: pl.DataFrame | None, annotations: pl.DataFrame | None) -> None:
        """Keep rows."""
        if self.over:
            return
        for kept, rows in ((self.host_events, host_events), (self.annotations, annotations)):
            if rows is not None:
                kept.append(rows)
                self.rows += rows.height
        if self.rows > self.most:
            self.give_up()

    def give_up(self) -> None:
        """Remove all rows and keep no more: a device is in use, records are missing, or there are too many."""
        self.over, self.host_events, self.annotations = True, [], []

    def device_events(self, texts: Sequence[str]) -> Trace | None:
        """Return a trace whose device events are the operators, None where operators cannot replace kernels."""
        if self.over or not self.host_events:
            return None
        host = pl.concat(self.host_events).sort("start_ns", maintain_order=True)
        ranges = pl.concat([empty_table(ANNOTATIONS), *self.annotations]).sort("start_ns", maintain_order=True)
        read = host.height + ranges.height
        return stand_in(
            Trace(
                path="",
                format="",
                names=pl.Series("names", list(texts), dtype=pl.String),
                accounting=Accounting(read=read, kept=read),
                host_events=host,
                annotations=ranges,
            )
        )


@dataclass(slots=True)
class _UnbrokenStretch:
    """The waiting rows between two gaps, and whether a gap or the end closes them."""

    queues: WaitingRows = field(default_factory=WaitingRows)
    closing: Literal["", "gap", "end"] = ""
    lost: int | None = None


@dataclass(slots=True)
class _SessionState:
    """All of a session but its names. `backlog` are the latest ranges, for devices that appear for the first time."""

    limits: SessionLimits
    intake: SessionIntake
    launches: Launches
    families: RangeFamilies
    without: _CpuFallback
    stretches: list[_UnbrokenStretch] = field(default_factory=lambda: [_UnbrokenStretch()])
    followers: dict[int, DeviceSession] = field(default_factory=dict)
    backlog: Columns = field(default_factory=lambda: empty(RANGES))
    host_ranges: bool = False  # the host has ranges: those of devices repeat them and are left out
    done_ns: int = -FARTHEST_NS  # all device events that start before were processed
    ended: bool = False
    contexts: SessionContexts = field(default_factory=lambda: SessionContexts(MOST_NODES))  # newer than saved states

    @classmethod
    def make(cls, limits: SessionLimits) -> _SessionState:
        """Return the state of a new session."""
        return cls(
            limits,
            SessionIntake(limits.devices),
            Launches(limits.launches),
            RangeFamilies(limits.families),
            _CpuFallback(limits.host_rows),
            contexts=SessionContexts(limits.contexts),
        )


@dataclass(slots=True)
class _SavedSession:
    """A session as it is saved."""

    names: list[bytes]
    state: _SessionState


MOST_STRETCHES = 64  # gaps that wait to be handled


@dataclass(frozen=True, slots=True, eq=False)
class SessionOutput:
    """New iterations (`HISTORY`), in order for every device, events, and windows of contexts that are over."""

    iterations: pl.DataFrame
    events: tuple[SessionEvent, ...]
    contexts: tuple[ContextWindow, ...] = ()


class RankSession:
    """Follows the devices of one rank: takes its records, and gives out its iterations as they become known.

    The output depends only on the records, gaps and watermarks, not on how they were cut into batches or when `advance`
    is called, unless a limit is exceeded. Memory is bounded by the limits, and by 64 MiB of names.

    The records of a rank without any device are kept until its end, when its operators count as kernels; a long rank
    without a device gives no iterations. No iteration is warm-up (`warmup`), as that is known only at the end, and
    `edits` count against the template of that time: an analysis of the whole recording can differ in both.

    Args:
        limits: what is kept at most.
    """

    def __init__(self, limits: SessionLimits | None = None) -> None:
        self._names = SessionNames()
        self._state = _SessionState.make(limits or SessionLimits())

    # -- records in --

    def take(self, records: CheckedRecords) -> None:
        """Take a batch that was accepted; batches come in order and without gaps.

        Raises:
            ValueError: after `end`, and where names before the batch's names are missing.
        """
        self._refuse_when_ended()
        state, queues = self._state, self._state.stretches[-1].queues
        self._names.add(records.names, records.first_name)
        rows = {name: state.intake.admit(name, records.tables[name]) for name in TIMES if name in records.tables}
        self._watch_for_devices(records, rows)
        if late := state.contexts.take(records.tables):
            state.intake.drop("late", {"context_sums": late})
        if (events := rows.get("device_events")) is not None:
            queues.events.add(state.intake.device_events(events))
        if (host := rows.get("host_events")) is not None:
            queues.calls.add(call_columns(host, self._names))
        if (ranges := rows.get("annotations")) is not None:
            queues.ranges.add(range_columns(ranges, self._names, state.families))
        state.intake.promise = max(state.intake.promise, min(records.complete_until_ns, FARTHEST_NS))
        if self.pending_records > state.limits.pending_records:
            self._make_room()

    def take_names(self, texts: Sequence[str], first: int) -> None:
        """Take names alone, the first with the id `first`. Raises ValueError where earlier names are missing."""
        self._names.add(texts, first)

    def _watch_for_devices(self, records: CheckedRecords, rows: dict[str, pl.DataFrame]) -> None:
        """Keep host rows as long as no record shows that a device is in use."""
        without = self._state.without
        if without.over:
            return
        host, memory = rows.get("host_events"), rows.get("memory_events")
        if (
            {"device_events", "devices"} & set(records.tables)
            or (host is not None and (host["category"] == "runtime").any())
            or (memory is not None and (memory["device"] >= 0).any())
        ):
            without.give_up()
        without.take(host, rows.get("annotations"))

    def gap(self, lost: int | None = None) -> None:
        """Note that records are missing here, `lost` of them where that is known: no iteration spans the gap.

        Records that come later and start before the latest record so far are dropped (`gap`).
        """
        self._refuse_when_ended()
        self._close("gap", lost)
        self._state.stretches.append(_UnbrokenStretch())
        self._state.without.give_up()
        if len(self._state.stretches) > MOST_STRETCHES:
            self._work()

    def end(self) -> None:
        """Note that the records end here."""
        self._refuse_when_ended()
        self._close("end", None)
        self._state.contexts.end()
        self._state.ended = True

    def _close(self, closing: Literal["gap", "end"], lost: int | None) -> None:
        last = self._state.stretches[-1]
        last.closing, last.lost = closing, lost
        self._state.intake.interrupt()

    def _refuse_when_ended(self) -> None:
        if self._state.ended:
            raise ValueError("the records have ended")

    # -- iterations out --

    def advance(self) -> SessionOutput:
        """Process all complete records; return the iterations and events since the last call."""
        self._work()
        given = [follower.take_given() for follower in self._state.followers.values()]
        rows = as_history([part for one in given for part in one.rows])
        events = tuple(event for one in given for event in one.events)
        return SessionOutput(rows, events, tuple(self._state.contexts.take_given(self._names.texts)))

    def _work(self) -> None:
        state = self._state
        while state.stretches and state.stretches[0].closing:
            stretch = state.stretches.pop(0)
            self._flush(stretch)
        if state.stretches:
            promise = state.intake.promise
            self._read(state.stretches[0].queues, promise, promise - LAG_NS)

    def _flush(self, stretch: _UnbrokenStretch) -> None:
        """Process all records that arrived before a gap or the end."""
        state = self._state
        until = max(state.done_ns, *(queue.newest + 1 for queue in stretch.queues.all))
        self._read(stretch.queues, until, until)
        rank = self._rank()
        if stretch.closing == "end":
            self._stand_in(rank)
        for follower in state.followers.values():
            if stretch.closing == "gap":
                follower.interrupt(stretch.lost, rank)
            else:
                follower.close(rank)
                follower.until_ns = FARTHEST_NS
        if stretch.closing == "end":
            state.intake.promise = FARTHEST_NS

    def _read(self, queues: WaitingRows, host_until: int, device_until: int) -> None:
        """Process host records before `host_until`, and device events before `device_until`, which is not later."""
        state = self._state
        calls, ranges = queues.calls.release(host_until), queues.ranges.release(host_until)
        if calls is not None:
            state.launches.read(calls, host_until)
        if ranges is not None:
            self._read_ranges(ranges)
        events = queues.events.release(device_until)
        if events is not None:
            self._read_events(events)
        state.launches.forget()
        state.done_ns = max(state.done_ns, device_until)
        for follower in state.followers.values():
            follower.ranges.forget()
            follower.until_ns = state.done_ns

    def _read_ranges(self, ranges: Columns) -> None:
        state = self._state
        host = ranges["device"] < 0
        begins = 0 if state.host_ranges else int(np.argmax(host)) if host.any() else len(host)
        state.host_ranges = state.host_ranges or begins < len(host)
        own = (ranges["family"] >= 0) & (host | (np.arange(len(host)) < begins))
        ranges = select(ranges, own)
        for follower in state.followers.values():
            follower.ranges.add(_of_device(ranges, follower.device))
        state.backlog = select(join([state.backlog, ranges]), slice(-state.limits.ranges, None))

    def _read_events(self, events: Columns) -> None:
        collective = (self._names.marks & COLLECTIVE_MARK) != 0
        rank, devices = self._rank(), np.unique(events["device"])
        for device in devices.tolist():
            own = events if len(devices) == 1 else select(events, events["device"] == device)
            self._follower(device).read(own, self._state.launches, rank, collective)

    def _follower(self, device: int) -> DeviceSession:
        state = self._state
        follower = state.followers.get(device)
        if follower is None:
            follower = state.followers[device] = DeviceSession.make(device, state.limits)
            follower.ranges.add(_of_device(state.backlog, device))
        return follower

    def _rank(self) -> RankContext:
        families = self._state.families
        return RankContext(self._names.optimizer[:MAX_NAMES], families.known, families.end_tells())

    def _stand_in(self, rank: RankContext) -> None:
        """Read operators as kernels where there was no device."""
        state = self._state
        trace = None if state.followers else state.without.device_events(self._names.texts)
        state.without.give_up()
        if trace is not None:
            self._read_events(state.intake.device_events(trace.device_events))

    def _make_room(self) -> None:
        """Process complete records; where too many still wait, take the older half as complete, too."""
        self._work()
        most = self._state.limits.pending_records
        if self.pending_records <= most:
            return
        queues = self._state.stretches[-1].queues
        starts = np.concatenate([part.rows["start"] for queue in queues.all for part in queue.parts])
        until = int(np.partition(starts, len(starts) - most // 2 - 1)[len(starts) - most // 2 - 1]) + 1
        self._state.intake.promise = max(self._state.intake.promise, until)
        self._read(queues, until, until)

    # -- what is shown --

    def settle(self, iterations: pl.DataFrame, loops: Sequence[FoundLoop]) -> None:
        """Replace the iterations (`HISTORY`) and loops emitted by those of an analysis of the whole recording."""
        for device, follower in self._state.followers.items():
            own = iterations.filter(pl.col("device") == device).sort("start_ns", maintain_order=True)
            follower.settle(own, [loop for loop in loops if loop.device == device])

    @property
    def has_contexts(self) -> bool:
        """Whether calling contexts were sent."""
        return self._state.contexts.newest_ns > -FARTHEST_NS

    def look_at_contexts(self) -> list[ContextWindow]:
        """Return the minutes of calling contexts that are not over, as far as they are available."""
        return list(self._state.contexts.look(self._names.texts))

    @property
    def names(self) -> Sequence[str]:
        """The rank's names by id."""
        return self._names.texts

    @property
    def dropped(self) -> Mapping[str, int]:
        """Records taken but dropped, by reason.

        `late`: they start before a watermark, or, windows of contexts, an hour before the newest
        or in the first of too many minutes at once; `gap`: they start
        before the latest record before a gap; `device`: there
        are too many devices; `time`: they are beyond all clocks.
        """
        return MappingProxyType(self._state.intake.dropped)

    @property
    def dropped_kinds(self) -> Mapping[str, Mapping[str, int]]:
        """The dropped records by reason and kind."""
        return MappingProxyType(self._state.intake.dropped_kinds)

    @property
    def devices(self) -> tuple[DeviceView, ...]:
        """The view of every device."""
        followers = self._state.followers
        return tuple(followers[device].view() for device in sorted(followers))

    @property
    def pending_records(self) -> int:
        """The number of records that wait for others, or for `advance`."""
        return sum(stretch.queues.rows for stretch in self._state.stretches)

    @property
    def nbytes(self) -> int:
        """The bytes held, without names and the miners' own memory."""
        state = self._state
        pending = sum(queue.nbytes for stretch in state.stretches for queue in stretch.queues.all)
        followers = sum(follower.nbytes for follower in state.followers.values())
        return pending + state.launches.nbytes + state.contexts.nbytes + followers

    # -- saving --

    def save(self) -> bytes:
        """Return the whole state: a session that `restore` makes of it continues as this one would."""
        return pack(_SavedSession(self._names.pack(), self._state))

    @classmethod
    def restore(cls, data: bytes) -> RankSession:
        """Return the session whose state `save` has written.

        Raises:
            ValueError: for any other bytes; its text is what is wrong with them.
        """
        saved = unpack(data, _SavedSession)
        session = cls.__new__(cls)
        session._names, session._state = SessionNames.unpack(saved.names), saved.state
        return session


def _of_device(ranges: Columns, device: int) -> Columns:
    """Return the ranges that count for a device: those of the host, and its own."""
    return select(ranges, (ranges["device"] < 0) | (ranges["device"] == device))
