"""Calling contexts from a job's packets through an agent and a daemon to the client, with their time on devices."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepprof.collectors.live.packets import Kind
from tests.deepprof.live.agent import packets_made as made
from tests.deepprof.live.agent.agents import AgentProcess, Job, running_agent
from tests.deepprof.live.service.context_making import paths_of
from tests.deepprof.live.service.daemons import running, wait_for
from tests.deepprof.live.service.sending import open_client

SECOND = 10**9
NAMES = ["gemm", "train.py(1): main", "train.py(9): step", "aten::mm"]
TREE = [(0, 2, 3, 0), (1, 3, 12, 0), (2, 4, 0, 1)]  # main → step → aten::mm


@pytest.fixture
def folder() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="dp-"))
    yield found
    shutil.rmtree(found, ignore_errors=True)


class ContextJob(Job):
    """A job that shows its contexts, and what each did and launched, a window at a time."""

    def begin(self) -> None:
        self.name(*NAMES)
        self.write(Kind.CONTEXTS, made.contexts(TREE))

    def window(self, start_ns: int, kernels: int) -> None:
        """Write a second in which aten::mm launched kernels of 700 ns each."""
        rows = made.kernels([start_ns + 1000 * number for number in range(kernels)], 700)
        rows["correlation"] += self.next
        self.write(Kind.LAUNCHES, made.launches(dict.fromkeys(rows["correlation"].tolist(), 3)))
        self.records(rows)
        sums = made.window(start_ns, {1: (0, SECOND), 2: (1, SECOND // 2), 3: (kernels, SECOND // 4)})
        self.write(Kind.CONTEXT_SUMS, made.sums(self.next, sums))
        self.next += len(sums)


def killed_once(agent: AgentProcess, job: ContextJob) -> None:
    """Kill the agent when all that arrived is on disk, and go on with another one."""
    wait_for(lambda: agent.ask().processes[0].records == job.next, "they have come")
    agent.kill()
    agent.start()
    job.reconnect()
    job.write(Kind.CONTEXTS, made.contexts(TREE))  # again on every connection, as names


@pytest.mark.parametrize("kills", [False, True])
def test_contexts_arrive_with_the_time_of_what_they_launched(folder: Path, *, kills: bool) -> None:
    with running() as daemon, running_agent(folder, daemon.address) as agent, open_client(daemon) as client:
        job = ContextJob(agent)
        job.begin()
        begin = time.monotonic_ns() - 200 * SECOND
        job.tick(begin)
        for second in range(5):
            job.window(begin + second * SECOND, 10)
            job.tick(begin + (second + 1) * SECOND)
        if kills:
            job.tick(begin + 60 * SECOND)
            wait_for(lambda: agent.ask().processes[0].durable == job.next, "all of it has arrived")
            killed_once(agent, job)
            job.tick(begin + 61 * SECOND)
            job.window(begin + 61 * SECOND, 7)
        job.end()
        wait_for(agent.arrived, "everything arrived")
        wait_for(lambda: client.ranks("demo")[0].ended, "the rank has ended")
        found, rank = client.contexts("demo"), client.ranks("demo")[0]
        account = agent.ask().processes[0].account
    count = 50 + 7 * kills
    paths = paths_of(found.nodes)
    rows = found.sums.group_by("context").sum()
    done = {paths[row["context"]][-1]: row for row in rows.iter_rows(named=True)}
    assert [len(path) for path in paths.values()] == [0, 1, 2, 3]
    assert {name: row["count"] for name, row in done.items()} == {NAMES[1]: 0, NAMES[2]: 5 + kills, NAMES[3]: count}
    assert {name: row["host_ns"] for name, row in done.items()} == {
        NAMES[1]: (5 + kills) * SECOND,
        NAMES[2]: (5 + kills) * SECOND // 2,
        NAMES[3]: (5 + kills) * SECOND // 4,
    }
    assert (done[NAMES[3]]["device_count"], done[NAMES[3]]["device_ns"]) == (count, count * 700)
    kinds = {each.kind: each.accepted for each in rank.account.kinds}
    assert kinds == {"kernel": count, "context_sums": 3 * (5 + kills)}
    assert account.waiting == 0
    if not kills:
        assert (account.made, account.missing) == ({"kernel": 50, "context": 15}, {})
