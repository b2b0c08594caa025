"""What a collector states of itself, from the sender to everybody who asks the daemon."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from deepprof.live.client.endpoint import find_endpoint
from deepprof.live.client.errors import DaemonError
from deepprof.live.client.sender import Sender, SendPolicy
from deepprof.live.wire.checking import encode_status
from deepprof.live.wire.declarations import build
from deepprof.live.wire.figures import CollectorStatus
from deepprof.v1 import records_pb2 as pb
from tests.deepprof.live.service.daemons import Daemon, running, wait_for
from tests.deepprof.live.service.sending import open_client
from tests.patience import PATIENCE_S

HELLO = pb.Hello(job="train", rank=0, collector="c", clock=pb.CLOCK_UNIX, host="node", rank_known=True)
DUTY = CollectorStatus(
    level="duty", reason="overhead", since_unix_ns=7, duty_ratio=0.25, overhead_ratio=0.02, spool_nbytes=99
)


def talk(daemon: Daemon, *told: pb.Status, meanwhile: Any = lambda: None) -> None:
    """Say something as a collector does, do something, and end."""

    async def run() -> None:
        sender = Sender(find_endpoint(daemon.address, environ={}), HELLO, SendPolicy(patience_s=None, reach_s=None))
        async with asyncio.timeout(PATIENCE_S), sender:
            for each in told:
                sender.tell(each)
                await asyncio.to_thread(wait_shown, daemon, sender, each)
            await asyncio.to_thread(meanwhile)
            await sender.end(pb.End())

    asyncio.run(run())


def wait_shown(daemon: Daemon, sender: Sender, told: pb.Status) -> None:
    """Wait until the daemon shows what it was told, or has refused it."""
    wanted = build(CollectorStatus, told)
    wait_for(lambda: sender.error is not None or seen(daemon) == wanted, "the daemon shows it")


def seen(daemon: Daemon) -> CollectorStatus | None:
    with open_client(daemon) as client:
        ranks = client.ranks("train") if client.jobs() else ()
    return ranks[0].status if ranks else None


def levels(daemon: Daemon) -> list[Any]:
    return [line["collects"] for line in list(daemon.log) if line.get("event") == "collector-level"]


def test_everybody_who_asks_is_told_how_the_collector_is() -> None:
    with running() as daemon:

        def look() -> None:
            found = seen(daemon)
            assert found == CollectorStatus("duty", "overhead", 7, 0.25, 0.02, 99, 3, 1, "look at it")
            page = daemon.get("/metrics")[1]
            assert 'deepprof_collector_level{job_id="train",rank="0",level="duty"} 1' in page
            assert 'deepprof_collector_spool_bytes{job_id="train",rank="0"} 99' in page
            environment = {**os.environ, "COLUMNS": "100"}
            command = [sys.executable, "-m", "deepprof", "watch", daemon.address, "--once"]
            shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
            assert "  duty  " in shown
            told = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=True).stdout
            (state,) = json.loads(told)["jobs"]
            assert state["rank_states"][0]["status"]["level"] == "duty"

        talk(daemon, encode_status(replace(DUTY, lost=3, level_changes=1, notice="look at it")), meanwhile=look)
        ended = 'deepprof_rank_ended{job_id="train",rank="0"} 1'  # shown once the end is mined, not once it is kept
        page = wait_for(lambda: ended in (page := daemon.get("/metrics")[1]) and page, "the rank has ended")
        assert "{job_id" not in "".join(line for line in page.splitlines() if "_collector_" in line)


def test_changes_of_level_are_logged_and_nothing_else() -> None:
    with running() as daemon:
        off = replace(DUTY, level="off", duty_ratio=0.0)
        told = [CollectorStatus(), DUTY, replace(DUTY, lost=5), off, CollectorStatus(lost=5)]
        talk(daemon, *map(encode_status, told))
        wait_for(lambda: len(levels(daemon)) == 3, "the changes are logged")
        assert levels(daemon) == ["duty", "off", "full"]


def test_a_status_that_cannot_be_is_refused_and_harms_nothing() -> None:
    with running() as daemon:
        wrong = encode_status(DUTY)
        wrong.duty_ratio = 7.0
        with pytest.raises(DaemonError, match=r"duty_ratio: 7\.0 is not between 0 and 1"):
            talk(daemon, encode_status(CollectorStatus()), wrong)
        talk(daemon, encode_status(replace(DUTY, lost=1)))
        with open_client(daemon) as client:
            wait_for(lambda: [rank.ended for rank in client.ranks("train")] == [True], "the rank has ended")
