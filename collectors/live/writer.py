"""Packets written to the agent from Python: a bounded queue in front of its own thread. The job never waits.

A batch that does not fit is refused as a whole and counted: the next that fits states why records are missing before
it. While no agent is there nothing is kept, and the thread keeps looking for one.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepprof.collectors.live.connection import AgentLostError, Connection, connect
from deepprof.collectors.live.identity import CollectorIdentity
from deepprof.collectors.live.job_log import LOG, warn
from deepprof.collectors.live.packets import (
    EVENT,
    MEMORY_CHANGE,
    NO_TIME,
    RANGE,
    RECORD_KINDS,
    RECORDS_HEAD,
    TICK,
    CollectionLevel,
    Kind,
    Reason,
)
from deepprof.collectors.live.payloads import as_bytes, cut, name_payloads, notice_payload, pack

NEVER = 2**63 - 1
QUEUE_NBYTES = 128 << 20  # two million events: a cycle of a profiler comes all at once
NAMES, NAME_CHARS, ALL_CHARS = 1 << 20, 4096, 64 << 20
TICK_S, IDLE_S = 0.25, 0.25
PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
FINISH_S = 3.0  # how long a job that ends may wait for its last records

Counts = npt.NDArray[np.int64]
"""Number of records of each of `RECORD_KINDS`."""

_RANGE, _MEMORY = map(RECORD_KINDS.index, ("range", "memory"))  # the activities are before them
Reached = tuple[int, Counts, Reason]
"""The number of the next record, the counts before it, and why records are missing that no packet has reported."""


def _no_events() -> npt.NDArray[Any]:
    return np.zeros(0, EVENT)


def _no_ranges() -> npt.NDArray[Any]:
    return np.zeros(0, RANGE)


def _no_changes() -> npt.NDArray[Any]:
    return np.zeros(0, MEMORY_CHANGE)


def _no_counts() -> Counts:
    return np.zeros(len(RECORD_KINDS), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RecordBatch:
    """Records sent or refused together: EVENT on the device clock, RANGE and MEMORY_CHANGE on CLOCK_MONOTONIC.

    Each are in order of start. All events that ended before `events_until_ns`, ranges that ended and `changes` before
    `ranges_until_ns` are in this batch or in one before it; NO_TIME: no watermark. `lost` records are missing before it
    for `reason`. `first` and `made` are set by the writer: the number of its first record, and how many of every kind
    there were before.
    """

    events: npt.NDArray[Any] = field(default_factory=_no_events)
    ranges: npt.NDArray[Any] = field(default_factory=_no_ranges)
    events_until_ns: int = NO_TIME
    ranges_until_ns: int = NO_TIME
    reason: Reason = Reason.NONE
    lost: int = 0
    first: int = 0
    made: Counts = field(default_factory=_no_counts)
    changes: npt.NDArray[Any] = field(default_factory=_no_changes)

    @property
    def records(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """The records of every type."""
        return self.events, self.ranges, self.changes

    @property
    def count(self) -> int:
        """Number of records."""
        return sum(map(len, self.records))

    @property
    def nbytes(self) -> int:
        """Size in the queue."""
        return sum(int(rows.nbytes) for rows in self.records)


def read_clocks(device_clock: Callable[[], int] | None = None) -> tuple[int, int, int]:
    """Return the device's clock, CLOCK_MONOTONIC and the Unix clock, read together, in ns.

    Without `device_clock` events are on the Unix clock, as torch.profiler's are.
    """
    tries = [_read_once(device_clock) for _ in range(3)]
    # the shortest was not interrupted; failed ones sort last, as they may be quicker than a read
    before, unix_ns, device_ns, after = min(tries, key=lambda read: (read[2] == NO_TIME, read[3] - read[0]))
    return device_ns, (before + after) // 2, unix_ns


def _read_once(device_clock: Callable[[], int] | None) -> tuple[int, int, int, int]:
    """Return CLOCK_MONOTONIC, the Unix clock, the device's, and CLOCK_MONOTONIC again."""
    before, unix_ns = time.monotonic_ns(), time.time_ns()
    try:
        device_ns = unix_ns if device_clock is None else device_clock()
    except Exception:  # a driver may raise any; events then wait for a tick that has the time
        device_ns = NO_TIME
    return before, unix_ns, device_ns, time.monotonic_ns()


class Writer:
    """Sends the records of one process to the agent. Any thread may call its methods, and only `finish` waits.

    In a forked child it does nothing. `spent_ns` is CPU time of the caller that counts as a cost of collecting.
    """

    def __init__(
        self,
        speaker: CollectorIdentity,
        path: Path,
        *,
        device_clock: Callable[[], int] | None = None,
        listener: Callable[[bool], None] | None = None,
        queue_nbytes: int | None = None,
    ) -> None:
        self.speaker, self.path, self.device_clock, self.listener = speaker, path, device_clock, listener
        self.limit_nbytes = _queue_limit() if queue_nbytes is None else queue_nbytes
        self.pid, self.spent_ns = os.getpid(), 0
        self.lock, self.wanted, self.ended = threading.Lock(), threading.Event(), threading.Event()
        self.connection: Connection | None = None
        self.queue: deque[RecordBatch] = deque()
        self.notices: deque[tuple[int, str]] = deque(maxlen=64)
        self.names: list[str] = []
        self.ids: dict[str, int] = {}
        self.chars = 0
        self.queued_nbytes, self.next, self.driver_dropped = 0, 0, 0
        self.made = _no_counts()  # records by kind, of those numbered so far
        self.level, self.owed, self.connected_once = CollectionLevel.ON, Reason.NONE, False
        self.until, self.sent_names = (NO_TIME, NO_TIME), 0
        self.ahead_ns = 0  # how far the device's clock was ahead of CLOCK_MONOTONIC when last read
        self.thread = threading.Thread(target=self.run, name="deepprof", daemon=True)

    def start(self) -> bool:
        """Look for the agent and start the thread; return False, after a logged line, if no agent listens yet."""
        found = self.open()
        if not found:
            self.owed = Reason.DISCONNECTED
            warn(f"no agent listens at {self.path}: nothing is collected until one does (deepprof agent starts it)")
        try:
            self.thread.start()
        except RuntimeError:  # no memory for one, or too many
            warn("no thread can be started: nothing is collected")
            self.wanted.set()
            self.close()
            return False
        atexit.register(self.finish)
        own = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: leave(own()))
        return found

    def intern(self, texts: Sequence[str]) -> npt.NDArray[np.uint32]:
        """Return the id of every text, shape (n,); 0 beyond a million different ones or 64 Mi characters."""
        with self.lock:
            return np.fromiter(map(self.intern_one, texts), np.uint32, len(texts))

    def intern_one(self, text: str) -> int:
        """Return the id of one text; the lock is kept."""
        text = text[:NAME_CHARS]
        found = self.ids.get(text)
        if found is not None:
            return found
        if len(self.names) == NAMES or self.chars + len(text) > ALL_CHARS:
            return 0
        self.chars += len(text)
        self.names.append(text)
        self.ids[text] = len(self.names)
        return len(self.names)

    def put(self, batch: RecordBatch) -> bool:
        """Queue `batch` whole and return True, or refuse and count it: no agent, switched off, or no space."""
        if self.is_over:
            return False
        with self.lock:
            refused = self.refusal(batch)
            if refused is Reason.DUTY_CYCLE:  # records not to be collected are not lost, and get no numbers
                self.owed = refused
                return False
            first, made = self.next + batch.lost, self.made
            self.next, self.made = first + batch.count, made + _count_kinds(*batch.records)
            if refused is not Reason.NONE:
                self.owed = refused
                return False
            reason = self.owed or batch.reason
            if batch.count or not self.queue:
                self.queue.append(replace(batch, reason=reason, first=first, made=made))
                self.queued_nbytes += batch.nbytes
            else:
                self.queue[-1] = _and_promise(self.queue[-1], batch)
            self.owed = Reason.NONE if batch.count else reason
        self.wake()
        return True

    def refusal(self, batch: RecordBatch) -> Reason:
        """Return why `batch` cannot be queued, or NONE."""
        if self.connection is None:
            return Reason.DISCONNECTED
        if self.level is CollectionLevel.OFF:
            return Reason.DUTY_CYCLE
        full = self.queued_nbytes + batch.nbytes > self.limit_nbytes
        return Reason.BUFFER_FULL if full else Reason.NONE

    @property
    def is_on(self) -> bool:
        """Whether an agent is there and wants records."""
        return self.connection is not None and self.level is CollectionLevel.ON and self.pid == os.getpid()

    @property
    def is_over(self) -> bool:
        """Whether it has ended or is about to, or belongs to the process that this one was forked from."""
        return self.wanted.is_set() or self.pid != os.getpid()

    def notice(self, code: int, text: str) -> None:
        """Send one line for people through the agent."""
        self.notices.append((code, text))
        self.wake()

    def finish(self) -> None:
        """Send what is queued, then END, and end the thread; waits at most three seconds."""
        if self.pid != os.getpid() or not self.thread.is_alive():
            return
        self.wanted.set()
        self.wake()
        self.ended.wait(FINISH_S)
        atexit.unregister(self.finish)

    def wake(self) -> None:
        """End the thread's wait."""
        if (connection := self.connection) is not None:
            connection.wake()

    # From here on everything runs on the thread, except `open`, which `start` calls before the thread exists.

    def run(self) -> None:
        """Serve one connection after the other until the job ends."""
        tries = 0
        while not self.wanted.is_set() or self.connection is not None:
            if self.connection is None and not self.open():
                self.wanted.wait(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                tries += 1
                continue
            try:
                self.serve()
                tries = 0
            except (OSError, AgentLostError) as error:
                LOG.debug("the agent is gone: %s", error)
                tries += 1
            except Exception:
                LOG.exception("deepprof: collecting ends")  # an error of ours ends collecting, not the job
                self.wanted.set()
            self.close()
        self.ended.set()

    def open(self) -> bool:
        """Connect and queue HELLO; return False if no agent listens."""
        connection = connect(self.path)
        if connection is None:
            return False
        connection.queue(pack(Kind.HELLO, self.speaker.hello(continues=self.connected_once)))
        with self.lock:
            self.connection, self.connected_once, self.sent_names = connection, True, 0
        return True

    def close(self) -> None:
        """Close the connection, and drop what was queued for it."""
        with self.lock:
            connection, self.connection = self.connection, None
            self.queue.clear()
            self.queued_nbytes, self.until, self.level = 0, (NO_TIME, NO_TIME), CollectionLevel.ON
            self.owed = Reason.DISCONNECTED
        if connection is not None:
            connection.close()
        self.tell(False)

    def serve(self) -> None:
        """Write and receive until the job ends; raises `AgentLostError` or `OSError` when the agent goes."""
        connection = self.connection
        assert connection is not None  # noqa: S101  # `run` opened it
        connection.wait_welcome(self.wanted)
        self.follow(connection.level)
        ticked_s = 0.0
        while True:
            if not connection.pieces and (batch := self.take()) is not None:
                self.write(connection, batch)
            done = self.wanted.is_set() and not connection.pieces and not self.queue
            if not connection.pieces and (done or time.monotonic() - ticked_s > TICK_S):
                self.write_tick(connection)
                ticked_s = time.monotonic()
            if done:
                connection.queue(pack(Kind.END, self.head(self.next, 0, self.owed, self.made)))
                connection.flush(FINISH_S)
                return
            connection.step(0 if self.queue and not connection.pieces else IDLE_S)
            self.hear(connection)

    def reached(self) -> Reached:
        """Return how far the written records reach."""
        with self.lock:
            if self.queue:
                return self.queue[0].first - self.queue[0].lost, self.queue[0].made, Reason.NONE
            return self.next, self.made, self.owed

    def hear(self, connection: Connection) -> None:
        """Follow the agent's level if it has changed."""
        if connection.level is not self.level:
            self.follow(connection.level)

    def follow(self, level: CollectionLevel) -> None:
        """Switch to `level`; records that a collector delivers when it stops still belong to the window."""
        if level is CollectionLevel.OFF:
            self.tell(False)
        with self.lock:
            self.level = level
        if level is CollectionLevel.ON:
            self.tell(True)

    def tell(self, on: bool) -> None:
        """Tell the collector to begin or to stop; it must not raise, and an exception is logged."""
        if self.listener is not None:
            try:
                self.listener(on)
            except Exception:
                LOG.exception("a collector failed to %s", "start" if on else "stop")

    def take(self) -> RecordBatch | None:
        """Return the next batch."""
        with self.lock:
            if not self.queue:
                return None
            batch = self.queue.popleft()
            self.queued_nbytes -= batch.nbytes
            return batch

    def write(self, connection: Connection, batch: RecordBatch) -> None:
        """Queue a batch's packets, names first, with watermarks as they become valid."""
        self.write_names(connection)
        number, reason, made = batch.first, batch.reason, batch.made
        device_ns, mono_ns, _ = read_clocks(self.device_clock)
        self.ahead_ns = self.ahead_ns if device_ns == NO_TIME else device_ns - mono_ns
        for part in cut(*batch.records, self.ahead_ns):
            pieces = (Kind.EVENTS, part.events), (Kind.RANGES, part.ranges), (Kind.MEMORY_CHANGES, part.changes)
            for kind, records in pieces:
                if len(records):
                    head = self.head(number, len(records), reason, made)
                    connection.queue(pack(kind, head, as_bytes(records)))
                    number, reason = number + len(records), Reason.NONE
                    made = made + _count_kinds(records)
            self.promise(batch, part.until_ns, self.ahead_ns)
            self.write_tick(connection, (number, made, Reason.NONE))

    def promise(self, batch: RecordBatch, until_ns: int | None, offset_ns: int) -> None:
        """Raise the watermarks after a part of a batch: other parts begin at `until_ns` or later; None: the last."""
        events_ns, ranges_ns = batch.events_until_ns, batch.ranges_until_ns
        if until_ns is not None:
            events_ns, ranges_ns = min(events_ns, until_ns + offset_ns), min(ranges_ns, until_ns)
        self.until = max(self.until[0], events_ns), max(self.until[1], ranges_ns)

    def write_names(self, connection: Connection) -> None:
        """Queue the names that this connection has not carried yet."""
        with self.lock:
            fresh = self.names[self.sent_names :]
            first, self.sent_names = self.sent_names + 1, len(self.names)
        for payload in name_payloads(first, fresh):
            connection.queue(pack(Kind.NAMES, payload))

    def head(self, first: int, count: int, reason: Reason, made: Counts) -> bytes:
        """Return the head of records."""
        return np.array([(first, count, reason, made)], RECORDS_HEAD).tobytes()

    def write_tick(self, connection: Connection, reached: Reached | None = None) -> None:
        """Queue the notices, the clocks and the watermarks; `reached`, within a batch, is how far it is written."""
        while self.notices:
            connection.queue(pack(Kind.NOTICE, notice_payload(*self.notices.popleft())))
        tick = np.zeros(1, TICK)
        tick["device_ns"], tick["mono_ns"], tick["unix_ns"] = read_clocks(self.device_clock)
        tick["events_until_ns"], tick["ranges_until_ns"] = self.until
        tick["next"], tick["made"], tick["reason"] = reached or self.reached()
        tick["open_since_ns"], tick["driver_dropped"], tick["level"] = NEVER, self.driver_dropped, self.level
        tick["collector_cpu_ns"] = self.spent_ns + time.thread_time_ns()
        tick["process_cpu_ns"] = time.process_time_ns()
        connection.queue(pack(Kind.TICK, tick.tobytes()))


def _count_kinds(*pieces: npt.NDArray[Any]) -> Counts:
    """Return how many records there are of each of `RECORD_KINDS`; an unknown activity is not counted."""
    counts = _no_counts()
    for records in pieces:
        if records.dtype == EVENT:
            counts[:_RANGE] += np.bincount(records["activity"], minlength=_RANGE)[:_RANGE]
        else:
            counts[_RANGE if records.dtype == RANGE else _MEMORY] += len(records)
    return counts


def leave(writer: Writer | None) -> None:
    """Close the parent's connection in a forked child: the agent sees its end only when no process holds it."""
    if writer is not None and writer.connection is not None:
        writer.connection.close()


def _and_promise(last: RecordBatch, batch: RecordBatch) -> RecordBatch:
    """Return `last` with the watermarks of `batch`: while no agent reads, watermarks must not fill the queue."""
    events_ns, ranges_ns = map(max, _until(last), _until(batch))
    return replace(last, events_until_ns=events_ns, ranges_until_ns=ranges_ns)


def _until(batch: RecordBatch) -> tuple[int, int]:
    return batch.events_until_ns, batch.ranges_until_ns


def _queue_limit() -> int:
    """Return how many bytes may be queued: DEEPPROF_QUEUE_NBYTES or 128 MiB."""
    said = os.environ.get("DEEPPROF_QUEUE_NBYTES", "")
    return int(said) if said.isascii() and said.isdigit() and len(said) < 13 else QUEUE_NBYTES
