"""A thousand ranks that send at a steady pace to one daemon, and how long they wait for their acknowledgements.

Run as a module it is the clients: one process with a stream for every rank. All send the same bytes, cut once, so that
the clients cost little.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field

import grpc

from benchmarks.kernels import kernels_and_copies
from deepprof.live.client.repetition import cut_repeated
from deepprof.live.wire.checking import count_records
from deepprof.v1 import ingest_pb2 as wire
from deepprof.v1.records_pb2 import CLOCK_SESSION, Hello

__all__ = ["Fleet", "Waits"]

CHANNELS = 8
METHOD = "/deepprof.v1.Ingest/Send"
Batches = list[tuple[bytes, int]]
"""The messages of a rank, and the number behind each one's last record."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is sent: `ranks` times `pace` batches a second of `records` records each, for so long."""

    ranks: int
    pace: float
    records: int
    seconds: float

    @property
    def batches(self) -> int:
        """The batches of a rank."""
        return max(1, round(self.pace * self.seconds))


@dataclass(slots=True)
class Waits:
    """How long acknowledgements took, and how late batches went out because the client had no time."""

    records: int = 0
    seconds: float = 0.0
    acks_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)


def cut_batches(fleet: Fleet) -> Batches:
    """Return the messages of any rank."""
    trace = kernels_and_copies(20, 500)
    repeat = 1 + fleet.batches * fleet.records // trace.accounting.kept
    cut, end = [], 0
    for batch, _ in cut_repeated(trace, repeat, fleet.records):
        end += count_records(batch)
        cut.append((wire.SendRequest(batch=batch).SerializeToString(), end))
        if len(cut) == fleet.batches:
            break
    return cut


async def send_rank(channel: grpc.aio.Channel, number: int, fleet: Fleet, batches: Batches, waits: Waits) -> None:
    """Send one rank, each batch when its time has come."""
    hello = Hello(job=f"job-{number // 256}", rank=number % 256, collector="fleet", clock=CLOCK_SESSION)
    call = channel.stream_stream(METHOD, None, wire.SendResponse.FromString)()
    await call.write(wire.SendRequest(hello=hello).SerializeToString())
    await call.read()
    waiting: deque[tuple[int, float]] = deque()
    hearing = asyncio.create_task(hear(call, batches[-1][1], waiting, waits))
    due = time.perf_counter() + random.Random(number).uniform(0, 1 / fleet.pace)
    for content, end in batches:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        now = time.perf_counter()
        waits.late_s.append(now - due)
        waiting.append((end, now))
        await call.write(content)
        due += 1 / fleet.pace
    await hearing
    await call.done_writing()
    while await call.read() is not grpc.aio.EOF:
        pass


async def hear(call: grpc.aio.StreamStreamCall, last: int, waiting: deque[tuple[int, float]], waits: Waits) -> None:
    """Take acknowledgements until the last."""
    durable = 0
    while durable < last:
        answer = await call.read()
        if answer is grpc.aio.EOF:
            raise ConnectionError(await call.details())
        durable, now = answer.durable, time.perf_counter()
        while waiting and waiting[0][0] <= durable:
            waits.acks_s.append(now - waiting.popleft()[1])


async def send_fleet(address: str, fleet: Fleet) -> Waits:
    """Send all ranks."""
    batches, waits = cut_batches(fleet), Waits()
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options) for _ in range(CHANNELS)]
    print("go", flush=True)
    began = time.perf_counter()
    await asyncio.gather(*(send_rank(channels[n % CHANNELS], n, fleet, batches, waits) for n in range(fleet.ranks)))
    waits.records, waits.seconds = fleet.ranks * batches[-1][1], time.perf_counter() - began
    await asyncio.gather(*(channel.close() for channel in channels))
    return waits


if __name__ == "__main__":
    ranks, pace, records, seconds = map(float, sys.argv[2:])
    found = asyncio.run(send_fleet(sys.argv[1], Fleet(int(ranks), pace, int(records), seconds)))
    print(json.dumps(asdict(found)))
