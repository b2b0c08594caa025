"""`deepprof.attach`: cycles of a torch.profiler that the job runs itself, sent to the agent of its node.

Nothing is profiled that the job does not profile anyway. A cycle is read when torch calls `on_trace_ready`, before the
job's own handler gets the same profiler. Works on a CPU-only torch, where operators are sent instead of kernels. Needs
numpy and no other library.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from deepprof.collectors.live.identity import CollectorIdentity, describe, find_socket
from deepprof.collectors.live.job_log import LOG, warn
from deepprof.collectors.live.model_forward import ForwardRecorder, RecordedForward, write_embedded
from deepprof.collectors.live.packets import Reason
from deepprof.collectors.live.torch_events import Array, ProfilerCycle, read_cycle
from deepprof.collectors.live.writer import RecordBatch, Writer, read_clocks

Handler = Callable[[Any], object]
SKIPPED_CODE, FAILED_CODE = 301, 302

KEY = "deepprof_layers"  # in the header of a trace
UNSEEN = "the layers of the model are not noted in the trace: it was not called until detach, or is compiled"


class Attachment:
    """The result of `attach`: counts of all `cycles`, of `lost_cycles` that were not sent, and of `records` sent."""

    def __init__(self, profiler: Any, writer: Writer) -> None:
        self.profiler, self.writer = profiler, writer
        self.theirs: Handler | None = profiler.on_trace_ready
        self.cycles = self.lost_cycles = self.records = 0
        self.attached, self.failed = True, False
        self.noting: _LayerNotes | None = None
        self.ours: Handler = self.handle  # one object, so that `detach` can recognise it
        profiler.on_trace_ready = self.ours

    def handle(self, profiler: Any) -> None:
        """Send a cycle, then call the job's own handler; our errors never reach the job, those of its handler do."""
        if self.attached:
            try:
                self.send(profiler)
            except Exception:
                self.fail()
        if self.theirs is not None:
            self.theirs(profiler)

    def fail(self) -> None:
        """Report once that a cycle could not be read."""
        if not self.failed:
            LOG.warning("deepprof: a cycle of the profiler could not be read", exc_info=True)
            self.writer.notice(FAILED_CODE, "a cycle of torch.profiler could not be read")
        self.failed = True

    def send(self, profiler: Any) -> None:
        """Send the profiler's events; while collecting is off they are not even read."""
        until_ns, began_ns = time.time_ns(), time.thread_time_ns()
        if not self.writer.is_on:
            self.count(self.writer.put(RecordBatch(reason=Reason.DUTY_CYCLE)), 0)
            return
        results = profiler.profiler.kineto_results
        cycle = read_cycle(results.events(), self.writer.intern, getattr(results, "experimental_event_tree", None))
        if cycle.skipped:
            self.writer.notice(SKIPPED_CODE, "torch.profiler has events of kinds that have no place here")
        _fill_sizes(cycle.changes)
        reason = Reason.DUTY_CYCLE if self.cycles else Reason.NONE
        taken = self.writer.put(_batch_of(cycle, until_ns, reason))
        self.writer.spent_ns += time.thread_time_ns() - began_ns
        self.count(taken, cycle.count)

    def count(self, taken: bool, records: int) -> None:
        """Count a cycle and its records."""
        self.cycles += 1
        self.lost_cycles += 0 if taken else 1
        self.records += records if taken else 0

    def detach(self) -> None:
        """Restore the profiler, and send the rest; the last attachment of a process reports that the job has ended."""
        if not self.attached:
            return
        self.attached = False
        if self.noting is not None:
            self.noting.stop()
        if self.profiler.on_trace_ready is self.ours:
            self.profiler.on_trace_ready = self.theirs
        _release(self.writer)


def _fill_sizes(changes: Array) -> None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return
    for device in np.unique(changes["device"][changes["device"] >= 0]).tolist():
        size = torch.cuda.get_device_properties(device).total_memory
        changes["device_nbytes"][changes["device"] == device] = size


def _batch_of(cycle: ProfilerCycle, until_ns: int, reason: Reason) -> RecordBatch:
    """Return a cycle as a batch, its ranges and changes of memory on CLOCK_MONOTONIC, with the watermark `until_ns`."""
    _, mono_ns, unix_ns = read_clocks()
    offset_ns = np.int64(mono_ns - unix_ns)
    cycle.ranges["start_ns"] += offset_ns
    cycle.ranges["end_ns"] += offset_ns
    cycle.changes["time_ns"] += offset_ns
    until = until_ns, until_ns + int(offset_ns)
    return RecordBatch(cycle.events, cycle.ranges, *until, reason, changes=cycle.changes)


def attach(  # noqa: PLR0913  options by name
    profiler: Any,
    *,
    job: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    socket: str | None = None,
    model: Any = None,
) -> Attachment:
    """Send the cycles of `profiler`, a `torch.profiler.profile`, to the agent of this node.

    Call it before the profiler is started or while it runs, on the profiler itself; with a schedule every cycle is
    sent, each complete. `job`, `rank` and `world_size`, if not given, are taken from the environment (torchrun, SLURM,
    MPI, Kubernetes) and from torch.distributed; `socket` is the agent's, if not given DEEPPROF_SOCKET or the usual one.
    With `profile_memory=True` allocations and releases are sent, too.

    If no agent listens, and under `deepprof run`, which collects already, one line is logged and the job runs as usual.

    With `model`, a `torch.nn.Module`, its next forward pass shows which layer runs which operators, and the profiler
    writes that into its trace files, from the cycle on in which it has run: no agent is needed for that, and nothing
    runs twice. Torch prints two lines on it. A compiled model has no such layers: one line is logged. Until that pass
    the modules have hooks, which `torch.jit.script` and CUDA graphs refuse: attach behind them.
    """
    noting = None if model is None else _note_layers(profiler, model)
    attachment = _attach(profiler, describe(job, rank, world_size), socket)
    attachment.noting = noting
    return attachment


def _attach(profiler: Any, variables: Mapping[str, str], socket: str | None) -> Attachment:
    """Attach a profiler to the agent that listens at `socket`."""
    path = find_socket() if socket is None else Path(socket)
    speaker = CollectorIdentity("torch", not _records_device(profiler), variables)
    if socket is None and os.environ.get("DEEPPROF_INJECT"):
        warn("this job runs under `deepprof run`, which collects it: attach sends nothing")
        return Attachment(profiler, Writer(speaker, path))
    return Attachment(profiler, obtain(path, speaker))


def _records_device(profiler: Any) -> bool:
    """Return whether kernels will be recorded: an accelerator is present, and `profiler` records it."""
    torch = sys.modules.get("torch")
    asked = any(str(activity).rpartition(".")[2] != "CPU" for activity in profiler.activities)
    present = torch is not None and (torch.cuda.is_available() or (hasattr(torch, "xpu") and torch.xpu.is_available()))
    return asked and bool(present)


# One process is one sender, however many profilers it makes: the agent would take two senders for two claims on a rank.
Key = tuple[Path, tuple[tuple[str, str], ...]]
WRITERS: dict[Key, tuple[Writer, int]] = {}
LOCK = threading.Lock()


def _renew() -> None:
    """Replace the lock in a forked child: a thread of the parent, which is not here, may have held it."""
    global LOCK  # noqa: PLW0603
    LOCK = threading.Lock()


os.register_at_fork(after_in_child=_renew)


def obtain(path: Path, speaker: CollectorIdentity) -> Writer:
    """Return the writer of this process to `path`, started."""
    key = path, tuple(sorted(speaker.variables.items()))
    with LOCK:
        writer, users = WRITERS.get(key, (None, 0))
        if writer is None or writer.is_over:
            writer, users = Writer(speaker, path), 0
            writer.start()
        WRITERS[key] = writer, users + 1
        return writer


def _release(writer: Writer) -> None:
    """Release `writer`; its last user ends it."""
    with LOCK:
        key = next((key for key, (other, _) in WRITERS.items() if other is writer), None)
        if key is None:
            return
        users = WRITERS[key][1] - 1
        WRITERS[key] = writer, users
        if users == 0:
            del WRITERS[key]
    if users == 0:
        writer.finish()


class _LayerNotes:
    """Waits for a forward pass of `model`, and notes its layers; errors are logged once and never reach the job."""

    def __init__(self, profiler: Any, model: Any) -> None:
        self.profiler = profiler
        self.noted = False
        self.recorder = ForwardRecorder(model, self.note, _report)

    def note(self, forward: RecordedForward) -> None:
        """Have the profiler write the layers into this cycle, if one is being recorded, and into all later ones."""
        text = write_embedded(forward)
        self.profiler.preset_metadata_json(KEY, text)
        if _is_recording(self.profiler):
            self.profiler.add_metadata_json(KEY, text)
        self.noted = True

    def stop(self) -> None:
        """Wait no longer; report it where no forward pass was seen."""
        try:
            if not self.recorder.over:
                warn(UNSEEN)
            self.recorder.remove()
        except Exception as error:
            _report(error)


def _note_layers(profiler: Any, model: Any) -> _LayerNotes | None:
    """Note the layers of `model` in the traces of `profiler`; None, and one line in the log, where that cannot be."""
    try:
        return _LayerNotes(profiler, model)
    except Exception as error:
        _report(error)
        return None


def _is_recording(profiler: Any) -> bool:
    """Return whether a cycle is being recorded; torch prints a warning on a note at any other time."""
    torch: Any = importlib.import_module("torch")
    return profiler.profiler is not None and bool(torch.autograd._profiler_enabled())


def _report(error: Exception) -> None:
    warn(f"the layers of the model are not noted in the trace: {error}")
