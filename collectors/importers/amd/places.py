"""Where AMD's work ran: the numbers of devices, and whether the stream id or the hardware queue is the `stream`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import DEVICES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NO_STREAM = -1
FEW_KERNELS, MANY_STREAMS = 4, 32  # kernels on one stream; streams in one trace
SCOPE = 2**40  # each process counts its correlation ids from 1
UNIX_FROM_NS = 10**18  # September 2001: clocks that count from the start of the machine never reach it


class RocmProcessor(Struct, frozen=True, kw_only=True):
    """A processor as the recorder lists it. `key` identifies it in device rows; `number` counts the GPUs of a node."""

    key: str
    node: str = ""
    gpu: bool = True
    number: int | None = None
    name: str | None = None
    memory_nbytes: int | None = None
    multiprocessors: int | None = None


def number_agents(agents: Sequence[RocmProcessor], used: Iterable[str]) -> dict[str, int]:
    """Return the device number of each GPU in `agents`, and of every key in `used` that is not among them.

    The recorder's own numbers are kept unless two GPUs have the same number, as happens when one file contains several
    nodes: then GPUs are counted from 0 in the order listed. GPUs that are not listed take the lowest free numbers.
    """
    listed = {agent.key: agent for agent in agents}
    gpus = [agent for agent in listed.values() if agent.gpu]
    own = [agent.number for agent in gpus if agent.number is not None and 0 <= agent.number < 2**16]
    plain = len(own) == len(gpus) and len(set(own)) == len(own)
    numbers = {agent.key: at if not plain or agent.number is None else agent.number for at, agent in enumerate(gpus)}
    taken = set(numbers.values())
    free = (number for number in range(2**32) if number not in taken)
    strangers = sorted(set(used) - listed.keys(), key=lambda key: (len(key), key))  # "9" before "10"
    return numbers | {key: next(free) for key in strangers}


def place(rows: pl.DataFrame, numbers: Mapping[str, int]) -> pl.DataFrame:
    """Return `rows` with the `device` of the key in `agent`; 0 if that names no GPU (a copy from host to host)."""
    table = pl.DataFrame(
        {"agent": list(numbers), "device": list(numbers.values())}, {"agent": pl.String, "device": pl.Int64}
    )
    joined = rows.join(table, on="agent", how="left", maintain_order="left")
    return joined.with_columns(pl.col("device").fill_null(0))


def list_devices(agents: Sequence[RocmProcessor], numbers: Mapping[str, int], used: Iterable[int]) -> pl.DataFrame:
    """Return DEVICES with the devices in `used`, on which events ran, that `agents` describes."""
    wanted = set(used)
    told = [agent for agent in reversed(agents) if agent.gpu and agent.name]
    known = {numbers[agent.key]: agent for agent in told if numbers.get(agent.key) in wanted}
    rows = [
        (number, agent.name, _fitting(agent.memory_nbytes, 64), _fitting(agent.multiprocessors, 32), None)
        for number, agent in sorted(known.items())
    ]
    return pl.DataFrame(rows, schema=DEVICES, orient="row", strict=False)


def _fitting(value: int | None, bits: int) -> int | None:
    """Return `value` if it is a positive integer of at most `bits` bits, else None."""
    return value if value is not None and 0 < value < 2**bits else None


def choose_streams(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` with `stream`: their `stream_id`, or their `queue` when stream ids do not give the order of work.

    A stream is the order that the program gives its work; a hardware queue is where the runtime puts it. HIP maps a
    stream to several queues over time and several streams to one queue, so the stream id is the better choice. There
    are three exceptions: a kernel has no stream id (graphs under RPD, rocprofv3 before ROCm 6.4); all work is on
    stream 0 and only queues differ (OpenMP, plain HSA); or most of the work is on streams of very few kernels (a
    stream made for every launch), so that no main stream could be found.

    Rows without a stream take the stream that their queue serves, if it serves a single one, and else -1.
    """
    if not tells_order(rows):
        return rows.with_columns(stream=pl.col("queue").fill_null(NO_STREAM))
    keys = ["process", "device", "queue"]
    served = rows.drop_nulls(["queue", "stream_id"]).group_by(keys).agg(pl.col("stream_id").unique().alias("served"))
    served = served.filter(pl.col("served").list.len() == 1).with_columns(pl.col("served").list.first())
    rows = rows.join(served, on=keys, how="left", maintain_order="left")
    return rows.with_columns(stream=pl.coalesce("stream_id", "served", NO_STREAM)).drop("served")


def tells_order(rows: pl.DataFrame) -> bool:
    """Return whether the `stream_id` of `rows` is a better stream than their `queue`."""
    kernels = rows.filter(pl.col("activity") == "kernel")
    kernels = rows if kernels.is_empty() else kernels
    if not kernels["queue"].count():
        return True
    if kernels["stream_id"].null_count():
        return False
    sizes = kernels.group_by("process", "device", "stream_id").len()["len"]
    if not (kernels["stream_id"] != 0).any() and kernels["queue"].n_unique() > 1:
        return False
    alone = sizes.filter(sizes <= FEW_KERNELS).sum()
    return len(sizes) < MANY_STREAMS or 2 * alone < kernels.height


def scope_correlations(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` with correlation ids made unique across the processes numbered in `process`; 0 means no id."""
    if rows.is_empty() or not (rows["process"] != 0).any():
        return rows
    known = pl.col("correlation").is_between(1, SCOPE - 1)
    return rows.with_columns(correlation=pl.when(known).then(pl.col("correlation") + pl.col("process") * SCOPE))


def clock_of(frames: Iterable[pl.DataFrame]) -> str:
    """Return the clock that the times of `frames` are on: AMD's recorders count from the start of the machine."""
    starts = [rows["start_ns"].median() for rows in frames if rows.height]
    return "unix" if any(isinstance(at, int | float) and at > UNIX_FROM_NS for at in starts) else "session"
