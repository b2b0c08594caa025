"""The uplink of a rank that rests for long, and of one that was taken for ended and lives."""

from __future__ import annotations

import asyncio
from pathlib import Path

from deepprof.live.agent.spool import Spool, SpoolBudget, SpoolIntake, find_spools
from deepprof.live.agent.uplink import Uplink
from deepprof.live.client.endpoint import Endpoint
from deepprof.v1.records_pb2 import Batch, End
from tests.deepprof.live.client.fake_daemon import FakeDaemon
from tests.deepprof.live.service.inside import until
from tests.patience import PATIENCE_S

from .spooling import hello
from .test_uplink import QUICK, SMALL, FastClock, daemon, endpoint, fill, folder, intake, send

__all__ = ["daemon", "endpoint", "folder", "intake"]


def test_a_rank_may_rest_for_days(daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake) -> None:
    """Promises leave no mark in the numbers: what a window or a spool contains must not grow with them."""
    fill(intake, 1)
    for second in range(5000):
        assert intake.put(Batch(complete_until_ns=second), 0)
    most = []

    def told() -> list[int]:
        return [batch.complete_until_ns for batch in daemon.rank(3).batches] if daemon.ranks else []

    async def run() -> None:
        uplink = Uplink(endpoint, intake.spool, policy=QUICK, clock=FastClock())
        task = asyncio.create_task(uplink.run())
        await until(lambda: told()[-1:] == [4999], "the last promise")
        await until(lambda: intake.spool.nbytes < 2 * SMALL, "a spool that rests")
        most.append(uplink._sender.window.nbytes)
        fill(intake, 1)
        intake.end(End())
        uplink.wake()
        await asyncio.wait_for(task, PATIENCE_S)

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    assert daemon.rank(3).durable == 100
    assert most[0] < 100


def test_one_that_a_former_agent_ended_goes_on_under_another_name(
    daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake, tmp_path: Path
) -> None:
    fill(intake, 2)
    intake.end(End())
    send(endpoint, intake.spool)
    intake.spool.remove()
    again = SpoolIntake(Spool.open(tmp_path, hello(job="job"), segment_nbytes=SMALL))  # of the process that lives
    again.gap("not-collected", 90)

    async def run() -> None:
        uplink = Uplink(endpoint, again.spool, policy=QUICK, clock=FastClock())
        task = asyncio.create_task(uplink.run())
        await until(lambda: uplink.state.connected, "an answer")
        for _ in range(3):
            fill(again, 1)
            uplink.wake()
        await until(lambda: uplink.state.durable == 240, "what comes later")
        again.end(End())
        uplink.wake()
        await asyncio.wait_for(task, PATIENCE_S)

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))
    ranks = {key[2]: rank for key, rank in daemon.ranks.items()}
    assert {name: (rank.durable, rank.ended) for name, rank in ranks.items()} == {"c": (100, True), "c-2": (240, True)}
    assert ranks["c-2"].names == ["n0", "n1", "n2"]
    (left,) = find_spools_after_a_restart(again.spool, tmp_path)
    assert left.hello.collector == "c-2"


def find_spools_after_a_restart(spool: Spool, root: Path) -> list[Spool]:
    spool.close()
    return find_spools(root, SpoolBudget())


def test_what_the_daemon_has_the_end_of_has_arrived_whatever_the_disk_lost(
    daemon: FakeDaemon, endpoint: Endpoint, intake: SpoolIntake, tmp_path: Path
) -> None:
    fill(intake, 2)
    intake.end(End())
    send(endpoint, intake.spool)
    intake.spool.remove()
    again = SpoolIntake(Spool.open(tmp_path, hello(job="job"), segment_nbytes=SMALL))
    fill(again, 1)
    again.end(End())
    send(endpoint, again.spool)
    assert list(daemon.ranks) == [("job", 3, "c")]
