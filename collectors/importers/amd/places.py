"""Where AMD's work ran: numbers for devices, and which of a recorder's two ideas of a queue is the `stream`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from deepprof.collectors.trace import DEVICES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "RocmProcessor",
    "choose_streams",
    "clock_of",
    "list_devices",
    "number_agents",
    "place",
    "scope_correlations",
]

NO_STREAM = -1
FEW_KERNELS, MANY_STREAMS = 4, 32  # on a stream; of a trace
SCOPE = 2**40  # each process counts its correlation ids from 1
UNIX_FROM_NS = 10**18  # September 2001: clocks that count from the start of the machine never get there


@dataclass(frozen=True, slots=True, kw_only=True)
class RocmProcessor:
    """A processor as the recorder lists it. `key` is what device rows call it; `number` counts the GPUs of a node."""

    key: str
    node: str = ""
    gpu: bool = True
    number: int | None = None
    name: str | None = None
    memory_nbytes: int | None = None
    multiprocessors: int | None = None


def number_agents(agents: Sequence[RocmProcessor], used: Iterable[str]) -> dict[str, int]:
    """Return the device number of each GPU in `agents`, and of each key in `used` that is not among them.

    The recorder's own numbers are kept when no two are the same, which they are where several nodes are in one file:
    then GPUs are counted from 0 in the order listed. What is not listed takes the lowest numbers left.
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
    """Return `rows` with `device` for the key in `agent`; 0 for what names no GPU (a copy from host to host)."""
    table = pl.DataFrame(
        {"agent": list(numbers), "device": list(numbers.values())}, {"agent": pl.String, "device": pl.Int64}
    )
    joined = rows.join(table, on="agent", how="left", maintain_order="left")
    return joined.with_columns(pl.col("device").fill_null(0))


def list_devices(agents: Sequence[RocmProcessor], numbers: Mapping[str, int], used: Iterable[int]) -> pl.DataFrame:
    """Return the DEVICES that events ran on, `used`, as far as `agents` has something to say of them."""
    wanted = set(used)
    told = [agent for agent in reversed(agents) if agent.gpu and agent.name]
    known = {numbers[agent.key]: agent for agent in told if numbers.get(agent.key) in wanted}
    rows = [
        (number, agent.name, fitting(agent.memory_nbytes, 64), fitting(agent.multiprocessors, 32), None)
        for number, agent in sorted(known.items())
    ]
    return pl.DataFrame(rows, schema=DEVICES, orient="row", strict=False)


def fitting(value: int | None, bits: int) -> int | None:
    """Return `value` where it is an unsigned integer of so many bits."""
    return value if value is not None and 0 < value < 2**bits else None


def choose_streams(rows: pl.DataFrame) -> pl.DataFrame:
    """Return `rows` with `stream`: their `stream_id`, or their `queue` when stream ids do not tell the order of work.

    A stream is what the program orders its work by; a hardware queue is where the runtime put it. HIP maps a stream
    to several queues over time and several streams to one queue, so the stream is the better answer wherever the
    recorder has one. It is not where a kernel has none (graphs under RPD, rocprofv3 before ROCm 6.4), where all is
    stream 0 and only queues differ (OpenMP, plain HSA), and where most of the work stands on handles that hold hardly
    any (a stream made for each launch): no main stream could be found among those.

    Rows without a stream take the one that their queue serves, if it serves a single one, and else -1.
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
    """Return `rows` with correlation ids made unique across the processes numbered in `process`; 0 is none."""
    if rows.is_empty() or not (rows["process"] != 0).any():
        return rows
    known = pl.col("correlation").is_between(1, SCOPE - 1)
    return rows.with_columns(correlation=pl.when(known).then(pl.col("correlation") + pl.col("process") * SCOPE))


def clock_of(frames: Iterable[pl.DataFrame]) -> str:
    """Return the clock that the times of `frames` are on: AMD's recorders count from the start of the machine."""
    starts = [rows["start_ns"].median() for rows in frames if rows.height]
    return "unix" if any(isinstance(at, int | float) and at > UNIX_FROM_NS for at in starts) else "session"
