"""The agent as a process between jobs and a daemon, both of which end when they like."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepprof.live.wire.figures import RankState
from tests.deepprof.live.agent.agents import AgentProcess, Job, iterations, running_agent
from tests.deepprof.live.agent.views import exported, watched
from tests.deepprof.live.service.daemons import Daemon, launch, running, wait_for
from tests.deepprof.live.service.sending import open_client

NAMES = [f"kernel_{number}" for number in range(13)]
MS = 1_000_000


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="dp-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def find_rank(daemon: Daemon, job: str = "demo", rank: int = 0) -> RankState | None:
    with open_client(daemon) as client:
        known = any(each.job == job for each in client.jobs())
        return next((each for each in client.ranks(job) if each.rank == rank), None) if known else None


def count_iterations(daemon: Daemon) -> int:
    found = find_rank(daemon)
    return sum(device.iterations for device in found.devices) if found else 0


def wait_ended(daemon: Daemon) -> RankState:
    def look() -> RankState | None:
        found = find_rank(daemon)
        return found if found is not None and found.ended and found.settled else None

    return wait_for(look, "the rank has ended and is settled")


def test_iterations_of_a_job_arrive(folder: Path) -> None:
    with running() as daemon, running_agent(folder, daemon.address) as agent:
        job = Job(agent)
        job.name(*NAMES)
        begin = time.monotonic_ns()
        job.tick()
        for part in range(3):
            job.records(iterations(20, begin + part * 12 * MS))
        job.tick()
        job.end()
        wait_for(agent.arrived, "everything arrived")
        rank = wait_ended(daemon)
        assert count_iterations(daemon) == 60
        assert rank.account.accepted == job.next == 60 * 40
        assert rank.account.lost == 0
        assert agent.stop() == 0
        assert not list(agent.spool.glob("*/*"))  # nothing is left of what has arrived


def test_a_job_s_name_that_is_used_again_shows_the_new_run(folder: Path) -> None:
    with running() as daemon, running_agent(folder, daemon.address) as agent:
        for number, length in ((1, 60), (2, 30)):
            job = Job(agent, session=f"{number:032x}")
            job.name(*NAMES)
            job.tick()
            job.records(iterations(length, time.monotonic_ns()))
            job.tick()
            job.end()
            wait_for(lambda job=job: agent.arrived(job.session), "everything arrived")
            wait_for(lambda length=length: watched(daemon, "demo") == {(0, 0): length}, "watch shows the run's own")
            wait_for(lambda length=length: exported(daemon, "demo") == {(0, 0): length}, "so does the exporter")


@pytest.mark.slow  # `test_true_numbers` kills an agent while a job sends
def test_kill_of_the_agent_loses_nothing_that_was_taken_and_is_a_gap(folder: Path) -> None:
    with running() as daemon:
        agent = AgentProcess(folder, daemon.address).start()
        job = Job(agent)
        job.name(*NAMES)
        begin = time.monotonic_ns()
        job.tick(begin)
        job.records(iterations(30, begin))
        job.tick(begin + 5 * 10**9)
        wait_for(lambda: count_iterations(daemon) > 20, "iterations show")
        job.records(iterations(10, begin + 6 * 10**9))  # not ripe yet: lost with the agent
        wait_for(lambda: agent.ask().processes[0].records == job.next, "they have come")
        agent.kill()
        agent.start()
        job.reconnect()
        job.tick(begin + 8 * 10**9)
        job.records(iterations(30, begin + 8 * 10**9))
        job.end()
        wait_for(agent.arrived, "everything arrived")
        rank = wait_ended(daemon)
        agent.kill()
    assert rank.account.accepted == 60 * 40
    assert (rank.account.lost, rank.account.gaps) == (10 * 40, 1)
    assert sum(device.iterations for device in rank.devices) == 60


@pytest.mark.slow  # `test_uplink_kills` kills a daemon while an uplink sends
def test_kill_of_the_daemon_costs_nothing(folder: Path) -> None:
    with running() as first, running_agent(folder, first.address) as agent:
        job = Job(agent)
        job.name(*NAMES)
        begin = time.monotonic_ns()
        job.tick(begin)
        job.records(iterations(30, begin))
        job.tick(begin + 5 * 10**9)
        wait_for(lambda: count_iterations(first) > 20, "iterations show")
        first.kill()
        job.records(iterations(30, begin + 5 * 10**9))
        job.tick(begin + 10 * 10**9)
        job.end()
        wait_for(lambda: agent.ask().problem, "the agent says that the daemon is away")
        assert agent.ask().spool.nbytes > 0
        second = launch(first.folder).wait_ready()
        try:
            wait_for(agent.arrived, "everything arrived")
            rank = wait_ended(second)
        finally:
            second.kill()
    assert (rank.account.accepted, rank.account.lost, rank.account.gaps) == (60 * 40, 0, 0)
    assert sum(device.iterations for device in rank.devices) == 60


def test_a_second_process_of_a_rank_is_refused_until_the_first_is_gone(folder: Path) -> None:
    with running() as daemon, running_agent(folder, daemon.address) as agent:
        first = Job(agent)
        first.name(*NAMES)
        first.tick()
        first.records(iterations(3, time.monotonic_ns()))
        agent.wait(lambda answer: answer.processes[0].rank == 0, "the first has the place")
        second = Job(agent, session="f" * 32)
        second.name(*NAMES)
        second.tick()
        second.records(iterations(3, time.monotonic_ns()))
        answer = agent.wait(lambda answer: bool(answer.refused), "the second is refused")
        assert "rank 0 of job demo is collected already" in answer.refused[0].why
        assert second.read()[0] == 17  # LEVEL: it shall not collect
        first.end()
        wait_for(agent.arrived, "the first has arrived")
        second.socket.close()


def test_processes_without_a_rank_get_numbers(folder: Path) -> None:
    with running() as daemon, running_agent(folder, daemon.address) as agent:
        jobs = [Job(agent, session=f"{number:032x}", env__RANK="") for number in (1, 2)]
        for job in jobs:
            job.name(*NAMES)
            job.tick()
            job.records(iterations(3, time.monotonic_ns()))
            job.tick()
        for job in jobs:
            job.end()
        wait_for(lambda: all(agent.arrived(job.session) for job in jobs), "both arrived")
        assert sorted(process.rank or 0 for process in agent.ask().processes) == [0, 1]


def test_a_job_that_is_killed_ends(folder: Path) -> None:
    with running() as daemon, running_agent(folder, daemon.address) as agent:
        job = Job(agent)
        job.name(*NAMES)
        job.tick()
        job.records(iterations(10, time.monotonic_ns()))
        job.write(3, b"nonsense")  # the agent closes on it, and does not fall over it
        agent.wait(lambda answer: answer.processes[0].records == 400, "the good ones have come")
        wait_for(lambda: any(line["event"] == "not-understood" for line in agent.log), "the agent says so")
        job.socket.close()
