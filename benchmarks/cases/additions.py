"""What else a recorder writes down: other threads, other processes, Python frames, its own work, side streams.

Each takes a trace and returns it with more records, none of which is why a device waits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from benchmarks.cases.disturbances import numbered, rebuild
from deepprof.collectors.trace import HOST_EVENTS, Trace

__all__ = [
    "add_flushes",
    "add_frames",
    "add_helpers",
    "add_process",
    "add_side_stream",
    "add_watchdog",
    "add_worker",
    "work_in_pauses",
]

Int64s = npt.NDArray[np.int64]

NEW_IDS = 3_000_000_000  # correlations that no recorder reaches
SILENT_NS = 1_500_000  # between two calls of a host that does something else
COLLECTS, WORKER = "statistics.py(41): collect", 90_007  # what a thread next to the launching one does
FRAMES = (  # of scripts around the loop; the outer ones are open all the time
    "train_imagenet_dataloader.py(12): <module>",
    "/home/user/data_loading_experiments/train.py(201): main",
    "train.py(88): train_one_epoch",
)


def add_rows(trace: Trace, name: str, starts: Int64s, ns: int | Int64s, **columns: int | str) -> Trace:
    """Return the trace with host events `name`, runtime calls of its process where `columns` do not state otherwise."""
    process = trace.host_events["process"].drop_nulls().head(1).to_list() or [0]
    values = {"process": process[0], "category": "runtime", "name_id": len(trace.names), **columns}
    rows = pl.DataFrame({"start_ns": starts, "end_ns": starts + ns}).with_columns(
        [pl.lit(value).alias(key) for key, value in values.items()]
    )
    missing = [pl.lit(None).alias(column) for column in HOST_EVENTS.names() if column not in rows.columns]
    added = rows.with_columns(missing).select(HOST_EVENTS.names()).cast(HOST_EVENTS)
    host = pl.concat([numbered(trace, "host_events"), added], how="diagonal")
    return rebuild(replace(trace, names=trace.names.extend_constant(name, 1)), host_events=host)


def grid(trace: Trace, every_ns: int) -> Int64s:
    """Return times every this many nanoseconds over the capture."""
    work = trace.device_events
    return np.arange(int(work["start_ns"].min()), int(work["end_ns"].max()), every_ns, dtype=np.int64)  # type: ignore[arg-type]


def add_watchdog(trace: Trace) -> Trace:
    """Return the trace with a thread that polls events all the time and waits for the device now and then."""
    polls = add_rows(trace, "cudaEventQuery", grid(trace, 100_000), 3_000, thread=90_001)
    waits = add_rows(polls, "cudaEventSynchronize", grid(trace, 10_000_000), 8_000_000, thread=90_001)
    return add_rows(waits, "cudaDeviceSynchronize", grid(trace, 50_000_000), 1_500_000, thread=90_002)


def add_process(trace: Trace) -> Trace:
    """Return the trace with another process that loads data, allocates and synchronises, on the same thread number."""
    threads = trace.host_events["thread"].drop_nulls().head(1).to_list() or [1]
    place = {"process": 77_777, "thread": threads[0]}
    loads = add_rows(trace, "DataLoader.__next__", grid(trace, 10_000_000), 9_000_000, **place, category="op")
    frees = add_rows(loads, "cudaFree", grid(trace, 5_000_000), 2_000_000, **place)
    return add_rows(frees, "cudaDeviceSynchronize", grid(trace, 5_000_000) + 2_000_000, 2_000_000, **place)


def add_helpers(trace: Trace) -> Trace:
    """Return the trace with a thread that pins memory and one that decodes batches, both busy all the time."""
    pins = add_rows(trace, "cudaHostAlloc", grid(trace, 3_000_000), 2_500_000, thread=90_003)
    frees = add_rows(pins, "cudaFreeHost", grid(trace, 3_000_000) + 2_500_000, 400_000, thread=90_003)
    return add_rows(frees, "load_batch", grid(trace, 20_000_000), 19_500_000, thread=90_004, category="op")


def work_in_pauses(trace: Trace, *, launching: bool) -> Trace:
    """Return the trace with a Python frame in each silence of the host, of the `launching` thread or of another one."""
    calls = trace.host_events.filter(pl.col("category") == "runtime").sort("start_ns")
    begin, end = calls["end_ns"].cum_max(), calls["start_ns"].shift(-1).fill_null(0)
    silent = end - begin > SILENT_NS
    starts, ends = begin.filter(silent).to_numpy(), end.filter(silent).to_numpy()
    thread = int(calls["thread"].mode()[0]) if launching else WORKER
    return add_rows(trace, COLLECTS, starts, ends - starts, thread=thread, category="python")


def add_worker(trace: Trace) -> Trace:
    """Return the trace with a thread that computes in Python nearly all the time, whatever the others do."""
    return add_rows(trace, COLLECTS, grid(trace, 1_000_000), 950_000, thread=WORKER, category="python")


def add_frames(trace: Trace) -> Trace:
    """Return the trace with the launching thread's Python frames around everything, of files with tempting names."""
    threads = trace.host_events["thread"].drop_nulls().value_counts(sort=True)["thread"].head(1).to_list() or [1]
    times = grid(trace, 1_000_000)
    begin, whole = times[:1] - 1_000_000, int(times[-1] - times[0]) + 3_000_000
    for depth, name in enumerate(FRAMES):
        trace = add_rows(trace, name, begin + depth, whole - 2 * depth, thread=threads[0], category="python")
    return trace


def add_flushes(trace: Trace) -> Trace:
    """Return the trace with the profiler's own work: its buffers are written by a thread while the job goes on."""
    return add_rows(trace, "Buffer Flush", grid(trace, 60_000_000), 12_000_000, thread=90_005, category="overhead")


def add_side_stream(trace: Trace, every_ns: int = 400_000, ns: int = 40_000) -> Trace:
    """Return the trace with kernels on their own stream next to long ones, launched by a helper thread."""
    slot = pl.col("start_ns") // every_ns
    length = pl.col("end_ns") - pl.col("start_ns")
    long = trace.device_events.filter((pl.col("activity") == "kernel") & (length > 2 * ns))
    beside = long.filter((slot != slot.shift(1)).fill_null(value=True)).with_columns(
        end_ns=pl.col("start_ns") + ns,
        stream=pl.lit(93, pl.Int64),
        correlation=NEW_IDS + pl.int_range(pl.len(), dtype=pl.UInt64),
        external_id=pl.lit(None, pl.UInt64),
    )
    called = add_rows(trace, "cudaLaunchKernel", beside["start_ns"].to_numpy() - 60_000, 5_000, thread=90_006)
    mine = pl.col("thread") == 90_006
    host = numbered(called, "host_events").with_columns(
        correlation=pl.when(mine).then(NEW_IDS + mine.cum_sum().cast(pl.UInt64) - 1).otherwise("correlation")
    )
    named = replace(called, names=called.names.extend_constant("side_stream_kernel(float*, int)", 1))
    side = beside.with_columns(name_id=pl.lit(len(called.names), pl.UInt32))
    device = pl.concat([numbered(trace, "device_events"), side], how="diagonal")
    return rebuild(named, host_events=host, device_events=device)
