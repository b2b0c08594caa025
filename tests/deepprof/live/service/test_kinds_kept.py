"""What a daemon keeps is counted by kind, and what it was told to be missing by reason, over restarts and crashes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from deepprof.collectors.trace import ACTIVITIES
from deepprof.live.service.daemon_rank import DaemonRank, QueuedMessage, SavedRank
from deepprof.live.service.query import job_of
from deepprof.live.service.views import RankView
from deepprof.live.wire.cutting import cut
from deepprof.live.wire.figures import Account, KindAccount
from deepprof.live.wire.kinds import count_kinds
from deepprof.v1.records_pb2 import End, Gap
from tests.deepprof.live.service.inside import Inside, inside, until
from tests.deepprof.live.service.traces import gpu_only_trace

LOST, LEFT_OUT = 7, 3


@pytest.fixture(scope="module")
def trace() -> deepprof.Trace:
    """A trace that has records of several kinds."""
    made = gpu_only_trace(iterations=10, kernels=50)
    events = made.device_events.with_row_index("row").with_columns(
        activity=pl.when(pl.col("row") % 7 == 3)
        .then(pl.lit("memset"))
        .otherwise(pl.col("activity").cast(pl.String))
        .cast(pl.Enum(ACTIVITIES))
    )
    return replace(made, device_events=events.drop("row"))


def run(folder: Path, body: Callable[[Inside], Coroutine[Any, Any, None]], *, killed: bool = False) -> None:
    """Run a daemon while `body` does; `killed`: it saves nothing, as if it were killed after it."""

    async def main() -> None:
        async with inside(folder, checked=not killed) as daemon:
            if killed:
                daemon.engine.worker.save = lambda ranks: None  # type: ignore[method-assign]
            await body(daemon)

    asyncio.run(main())


async def send(daemon: Inside, trace: deepprof.Trace) -> None:
    """Send a trace with a gap in it, and an end that counts what was left out."""
    connection = object()
    rank = await daemon.attach(trace, "job", connection)
    first, *rest = cut(trace, records=200)
    await daemon.submit(rank, first)
    gap = Gap(first=rank.next, lost=LOST, reason="buffer-full")
    missing = {"buffer-full": LOST}
    await daemon.put(rank, QueuedMessage("gap", gap.SerializeToString(), rank.next, LOST, lost=LOST, missing=missing))
    for batch in rest:
        batch.first = rank.next
        await daemon.submit(rank, batch)
    end = End(dropped={"late": LEFT_OUT})
    await daemon.put(rank, QueuedMessage("end", end.SerializeToString(), rank.next, 0, missing=dict(end.dropped)))
    await until(lambda: rank.is_counted, "all is counted")
    daemon.engine.detach(rank, connection)


def find(daemon: Inside) -> DaemonRank:
    rank = daemon.engine.roster.find("job", 0)
    assert rank is not None
    return rank


def check(rank: DaemonRank, trace: deepprof.Trace) -> None:
    account = rank.accounts.view()
    assert {each.kind: each.accepted for each in account.kinds} == count_kinds({"device_events": trace.device_events})
    assert len(account.kinds) > 1
    assert account.missing == {"buffer-full": LOST, "late": LEFT_OUT}
    assert (account.lost, account.gaps) == (LOST, 1)
    assert rank.is_counted


@pytest.mark.parametrize("killed", [False, True])
def test_kinds_and_reasons_are_the_same_after_a_restart(tmp_path: Path, trace: deepprof.Trace, killed: bool) -> None:
    async def before(daemon: Inside) -> None:
        await send(daemon, trace)
        check(find(daemon), trace)

    async def after(daemon: Inside) -> None:
        check(find(daemon), trace)

    run(tmp_path, before, killed=killed)
    run(tmp_path, after)


def test_a_state_from_before_kinds_were_counted_is_read(tmp_path: Path, trace: deepprof.Trace) -> None:
    states = []

    async def before(daemon: Inside) -> None:
        await send(daemon, trace)
        states.append((find(daemon).hello, find(daemon).save()))

    run(tmp_path, before)
    (hello, state) = states[0]
    known = msgspec.msgpack.decode(state)
    for name in ("kinds", "dropped_kinds", "missing"):
        del known[name]
    assert set(known) | {"kinds", "dropped_kinds", "missing"} == set(SavedRank.__struct_fields__)
    rank = DaemonRank.restore(1, hello, msgspec.msgpack.encode(known))
    account = rank.accounts.view()
    assert account.kinds == (KindAccount("unknown", account.accepted),)
    again = DaemonRank.restore(1, hello, rank.save())
    assert again.accounts.view() == account


def test_kinds_of_several_ranks_are_added_up() -> None:
    one = Account(5, 4, kinds=(KindAccount("kernel", 4, {"late": 1}),), missing={"busy": 2})
    other = Account(9, 9, kinds=(KindAccount("kernel", 6), KindAccount("sync", 3)), missing={"busy": 1, "late": 1})
    total = job_of(
        "job", [RankView(job="job", rank=0, account=one), RankView(job="job", rank=1, account=other)]
    ).account
    assert {each.kind: (each.accepted, dict(each.dropped)) for each in total.kinds} == {
        "kernel": (10, {"late": 1}),
        "sync": (3, {}),
    }
    assert total.missing == Counter(busy=3, late=1)
