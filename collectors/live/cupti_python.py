"""CUPTI through NVIDIA's `cupti-python`, inside the job: for cases where the injected library cannot be used.

`pip install "deepprof[cupti]"`; its licence is proprietary, and nothing else here needs it. Prefer `deepprof run`.
Hazards:

- A record costs 1.4 µs in 13.4 and 62 µs in 13.0.1, on a thread that takes the job's interpreter lock.
- CUPTI calls back into Python from its own threads. One that waits for the interpreter lock while the job holds it
  and waits for CUPTI is a deadlock; nothing on this side can rule it out.
- CUPTI has one subscriber in a process up to CUDA 13.2: not together with torch.profiler, nsys or `deepprof run`.

Its authors never ran it on a GPU: its tests use a substitute for the package.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from deepprof.collectors.errors import UsageError
from deepprof.collectors.live.cupti_records import decode
from deepprof.collectors.live.identity import CollectorIdentity, describe, find_socket
from deepprof.collectors.live.job_log import LOG, warn
from deepprof.collectors.live.packets import Reason
from deepprof.collectors.live.writer import RecordBatch, Writer

BUFFER_NBYTES = 8 << 20
FLUSH_S = 0.2
BUSY_CODE, INVALID_CODE = 311, 312
KINDS = ("MEMCPY", "MEMCPY2", "MEMSET", "SYNCHRONIZATION")
KERNELS = {"nodes": ("CONCURRENT_KERNEL",), "launches": ("CONCURRENT_KERNEL", "GRAPH_TRACE")}


class _Collector:
    """CUPTI, switched on and off as the agent asks. `records` counts those sent, `invalid` those without sane times."""

    def __init__(self, cupti: Any, speaker: CollectorIdentity, path: Path, graphs: str) -> None:
        self.cupti = cupti
        self.kinds = [getattr(cupti.ActivityKind, name) for name in (*KERNELS[graphs], *KINDS)]
        self.records = self.invalid = 0
        self.buffers = 0  # how many CUPTI holds
        self.on, self.registered, self.window = False, False, Reason.NONE
        self.stopped = threading.Event()
        self.turn = threading.Lock()  # a flush within a window ends before the window does
        self.writer = Writer(speaker, path, device_clock=cupti.get_timestamp, listener=self.switch)
        self.flusher = threading.Thread(target=self.flush, name="deepprof-cupti", daemon=True)

    def start(self) -> _Collector:
        """Connect; nothing is enabled before the agent requests it."""
        self.writer.start()
        with contextlib.suppress(RuntimeError):  # no thread can be started: CUPTI delivers buffers only when full
            self.flusher.start()
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Disable everything, send the rest and report that the job has ended."""
        if self.stopped.is_set() or self.writer.is_over:
            return
        self.stopped.set()
        self.switch(False)
        self.writer.finish()
        atexit.unregister(self.stop)

    def switch(self, on: bool) -> None:
        """Begin or end a window. Runs on the writer's thread."""
        if on == self.on or (on and self.stopped.is_set()):
            return
        try:
            self.enable() if on else self.disable()
        except self.cupti.cuptiError as error:
            self.report(error)

    def enable(self) -> None:
        """Begin a window."""
        if not self.registered:
            self.cupti.activity_register_callbacks(self.request, self.complete)
            self.registered = True
        self.on = True
        for kind in self.kinds:
            self.cupti.activity_enable(kind)

    def disable(self) -> None:
        """End a window, and let CUPTI deliver every record that belongs to it."""
        for kind in self.kinds:
            with contextlib.suppress(self.cupti.cuptiError):  # a kind that could not be enabled
                self.cupti.activity_disable(kind)
        with self.turn:
            self.cupti.activity_flush_all(1)
            self.on, self.window = False, Reason.DUTY_CYCLE

    def report(self, error: Exception) -> None:
        """Report why nothing is collected, and disable everything in the driver."""
        text = f"CUPTI refused ({error}): another profiler has it, or this user may not profile"
        self.on = False
        for kind in self.kinds:
            with contextlib.suppress(self.cupti.cuptiError):
                self.cupti.activity_disable(kind)
        self.writer.notice(BUSY_CODE, text)
        warn(text)

    def request(self) -> tuple[int, int]:
        """Return a new buffer's size, and 0 for as many records as fit. Called by CUPTI."""
        self.buffers += 1
        return BUFFER_NBYTES, 0

    def complete(self, activities: Sequence[Any]) -> None:
        """Take a buffer's records; an error must not reach CUPTI. Called by CUPTI, which takes the buffer back."""
        try:
            self.take(activities)
        except Exception:
            LOG.exception("a buffer of CUPTI could not be read")
        finally:
            self.buffers -= 1

    def take(self, activities: Sequence[Any]) -> None:
        """Send a buffer's records."""
        began_ns = time.thread_time_ns()
        decoded = decode(activities, self.writer.intern)
        if decoded.invalid:
            self.invalid += decoded.invalid
            self.writer.notice(INVALID_CODE, "CUPTI gave records without sane times, which were left out")
        reason = Reason.DRIVER_DROPPED if decoded.invalid else self.window
        is_any = len(decoded.events) or decoded.invalid
        if is_any and self.writer.put(RecordBatch(decoded.events, reason=reason, lost=decoded.invalid)):
            self.records += len(decoded.events)
            self.window = Reason.NONE
        self.writer.spent_ns += time.thread_time_ns() - began_ns

    def flush(self) -> None:
        """Ask CUPTI for complete records a few times a second, until the job ends. Runs on its own thread."""
        while not self.stopped.wait(FLUSH_S):
            if self.on:
                with contextlib.suppress(self.cupti.cuptiError):
                    self.flush_once()

    def flush_once(self) -> None:
        """Take complete records. If CUPTI then contains no buffer, all records that ended before the call have come."""
        before_ns = self.cupti.get_timestamp()
        with self.turn:
            self.cupti.activity_flush_all(0)
        self.writer.driver_dropped += self.count_dropped()
        if self.buffers == 0 and self.writer.is_on:
            self.writer.put(RecordBatch(events_until_ns=before_ns))

    def count_dropped(self) -> int:
        """Return how many records CUPTI has dropped since the last call."""
        dropped = ctypes.c_size_t(0)
        self.cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(dropped))
        return dropped.value


def start(
    *,
    job: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    socket: str | None = None,
    graphs: str = "nodes",
) -> _Collector:
    """Collect kernels, copies, memsets and synchronizations of this process; call it before its first CUDA call.

    The arguments are those of `deepprof.attach`; with `graphs="launches"` a launch of a CUDA graph is one record and
    not one for every node. Raises `UsageError` without cupti-python.
    """
    if graphs not in KERNELS:
        raise UsageError(f'graphs must be "nodes" or "launches", not {graphs!r}')
    cupti = load()
    try:
        cupti.get_timestamp()
    except Exception as error:  # its type depends on the release
        raise UsageError(f"CUPTI cannot be used: {error}; it needs NVIDIA's driver") from error
    speaker = CollectorIdentity("cupti-python", variables=describe(job, rank, world_size))
    return _Collector(cupti, speaker, find_socket() if socket is None else Path(socket), graphs).start()


def load(importer: Callable[[], Any] | None = None) -> Any:
    """Return the module `cupti.cupti`; raises `UsageError` where it, or the driver that it needs, is missing."""
    try:
        return _import_cupti() if importer is None else importer()
    except ImportError as error:
        raise UsageError(f'collecting with cupti-python needs it: pip install "deepprof[cupti]" ({error})') from error


def _import_cupti() -> Any:
    from cupti import cupti

    return cupti
