"""What a rank needs of a daemon's memory: while it sends, when it has ended, and a while later.

`python -m benchmarks.rank_memory` prints a table; the ranks' records are `benchmarks.kernels`, this many that the
windows in which loops are searched for are full."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

from rich.console import Console
from rich.table import Table

from benchmarks.kernels import kernels_and_copies
from benchmarks.serving import Process, running
from deepprof.live.client.endpoint import find_endpoint
from deepprof.live.client.sender import Sender
from deepprof.live.wire.checking import count_records
from deepprof.live.wire.cutting import cut
from deepprof.v1.records_pb2 import CLOCK_SESSION, Batch, End, Hello

__all__ = ["measure"]

IDLE_S = 30


async def measure(daemon: Process, ranks: int, batches: list[tuple[Batch, int]]) -> Iterator[tuple[str, float]]:
    """Return the daemon's resident MiB at every stage."""
    found = [("started", daemon.rss_mib())]
    endpoint = find_endpoint(f"unix:{daemon.folder}/d/s")
    async with AsyncExitStack() as stack:
        senders = [await stack.enter_async_context(Sender(endpoint, greet(rank))) for rank in range(ranks)]
        await asyncio.gather(*(send(sender, batches) for sender in senders))
        await wait_mined(daemon, ranks * sum(count for _, count in batches))
        found.append(("all sent, all connected", daemon.rss_mib()))
        await asyncio.gather(*(sender.end(End(await_account=True)) for sender in senders))
    found.append(("all ended", daemon.rss_mib()))
    await asyncio.sleep(IDLE_S)
    return iter([*found, (f"{IDLE_S} s later", daemon.rss_mib())])


def greet(rank: int) -> Hello:
    """Return what a rank states first."""
    return Hello(job="memory", rank=rank, rank_known=True, collector="memory", clock=CLOCK_SESSION)


async def send(sender: Sender, batches: list[tuple[Batch, int]]) -> None:
    """Send all batches."""
    for batch, count in batches:
        await sender.send(batch, count)


async def wait_mined(daemon: Process, records: int) -> None:
    """Wait until all is analysed."""
    while daemon.mined() < records:
        await asyncio.sleep(0.2)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=600, help="of 500 kernels, of each rank")
    args = parser.parse_args()
    batches = [(batch, count_records(batch)) for batch in cut(kernels_and_copies(args.iterations, 500), records=8192)]
    began = time.monotonic()
    with running(None) as daemon:
        stages = list(asyncio.run(measure(daemon, args.ranks, batches)))
    records = sum(count for _, count in batches)
    table = Table(title=f"{args.ranks} ranks of {records:,} records each, in {time.monotonic() - began:.0f} s")
    for title in ("stage", "resident MiB", "MiB a rank"):
        table.add_column(title, justify="left" if title == "stage" else "right")
    for stage, mib in stages:
        table.add_row(stage, f"{mib:.0f}", f"{(mib - stages[0][1]) / args.ranks:.1f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
