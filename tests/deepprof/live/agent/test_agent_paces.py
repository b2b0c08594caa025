"""A job that obeys the agent's levels, on its own clock that runs faster than ours: windows, and what is told."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from deepprof.collectors.live.packets import CollectionLevel, Kind, Reason
from tests.deepprof.live.agent.agents import AgentProcess, Job, iterations, running_agent
from tests.deepprof.live.agent.test_agent import NAMES, find_rank, folder, wait_ended
from tests.deepprof.live.service.daemons import Daemon, launch, running, wait_for
from tests.patience import PATIENCE_S

__all__ = ["folder"]

SECOND = 10**9
QUARTER = SECOND // 4
PERIOD_NS = 40 * 10_000 + 200_000  # of an iteration, as `iterations` makes them


@dataclass
class Obedient:
    """A job that collects while it is instructed to; collecting costs `cost_ratio` of a core while it is on."""

    agent: AgentProcess
    cost_ratio: float
    level: CollectionLevel = CollectionLevel.ON
    cpu_ns: int = 0
    windows: list[list[float]] = field(default_factory=lambda: [[0.0]])  # seconds of the beginning, and of the end
    words: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.job = Job(self.agent, **self.words)
        self.job.name(*NAMES)
        self.begin_ns = self.now_ns = time.monotonic_ns()
        self.job.tick(self.now_ns)

    def live(self, seconds: float) -> None:
        """Work so long; a hundred iterations a second are collected."""
        for _ in range(int(seconds * 4)):
            if self.level is CollectionLevel.ON:
                self.job.records(iterations(25, self.now_ns))
                self.cpu_ns += int(self.cost_ratio * QUARTER)
            self.now_ns += QUARTER
            self.job.tick(self.now_ns, collector_cpu_ns=self.cpu_ns)
            self.obey()

    def obey(self) -> None:
        """Hear what the agent has stated of the ticks so far: its answer to a question comes behind it."""
        self.job.write(Kind.ASK, b"")
        while (said := self.job.read())[0] != Kind.ANSWER:
            assert said[0] == Kind.LEVEL
            self.level = CollectionLevel(int(np.frombuffer(said[1], "<u4")[0]))
            at_s = (self.now_ns - self.begin_ns) / SECOND
            if self.level is CollectionLevel.OFF:
                self.windows[-1].append(at_s)
                self.job.reason = Reason.DUTY_CYCLE
            else:
                self.windows.append([at_s])

    @property
    def lengths_s(self) -> list[float]:
        """How long the windows lasted that have ended."""
        return [window[1] - window[0] for window in self.windows if len(window) == 2]

    @property
    def pauses_s(self) -> list[float]:
        return [after[0] - before[1] for before, after in zip(self.windows, self.windows[1:], strict=False)]


def watch(daemon: Daemon) -> str:
    """What `deepprof watch` writes of the daemon, once."""
    command = [sys.executable, "-m", "deepprof", "watch", daemon.address, "--format", "json", "--once"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout


def test_a_dear_collector_collects_windows_and_says_so(folder: Path) -> None:
    with running() as daemon, running_agent(folder, daemon.address) as agent:
        obedient = Obedient(agent, cost_ratio=0.15)
        obedient.live(70)
        # ten seconds show what it costs, then windows of two seconds with pauses of eight
        assert 9 <= obedient.windows[0][1] <= 14
        assert len(obedient.lengths_s) >= 5
        assert all(2 <= length <= 3.25 for length in obedient.lengths_s[1:])
        assert all(8 <= pause <= 9.25 for pause in obedient.pauses_s[1:])
        changes = agent.ask().level_changes
        assert [(change["effort"], change["reason"]) for change in changes] == [("duty", "overhead")]
        shown = wait_for(lambda: find_rank(daemon), "the daemon knows the rank")
        obedient.job.end()
        wait_for(agent.arrived, "everything arrived")
        rank = wait_ended(daemon)
    assert shown is not None
    assert rank.account.accepted == obedient.job.next
    assert rank.account.lost == 0
    assert rank.account.gaps == len(obedient.lengths_s) - (len(obedient.windows[-1]) == 2)
    whole = obedient.job.next // 40
    found = sum(device.iterations for device in rank.devices)
    assert whole - 2 * len(obedient.windows) - 2 <= found <= whole


@pytest.mark.slow  # `test_pacing` does it without processes, and the test above shows that the job is told
def test_a_collector_that_is_far_too_dear_is_off_and_tried_again(folder: Path) -> None:
    with running() as daemon, running_agent(folder, daemon.address) as agent:
        obedient = Obedient(agent, cost_ratio=8.0)
        obedient.live(600)
        obedient.job.socket.close()
        changes = [(change["effort"], change["reason"]) for change in agent.ask().level_changes]
        assert changes[:3] == [("duty", "overhead"), ("off", "overhead"), ("duty", "tried-again")]
        shares = sum(obedient.lengths_s[1:]) / 590
        assert shares < 0.05
        assert 299 <= max(obedient.pauses_s) <= 302


def test_a_full_spool_makes_windows_and_then_nothing(folder: Path) -> None:
    address = f"unix:{folder}/d/s"  # no one is there yet
    with running_agent(folder, address, "--spool-limit", "200KiB") as agent:
        obedient = Obedient(agent, cost_ratio=0.0)
        obedient.live(250)
        answer = agent.ask()
        assert answer.spool.nbytes <= 300 << 10
        assert [change["reason"] for change in answer.level_changes][:2] == ["spool-full", "spool-full"]
        assert obedient.level is CollectionLevel.OFF
        daemon = launch(folder).wait_ready()
        try:
            wait_for(lambda: find_rank(daemon), "the daemon knows the rank")
            wait_for(lambda: agent.ask().processes[0].durable > 0, "it takes what is there")
            obedient.live(10)
            shown = wait_for(lambda: "spool-full" in watch(daemon), "watch says why")
            obedient.job.end()
            wait_for(agent.arrived, "everything arrived")
            rank = wait_ended(daemon)
        finally:
            daemon.kill()
    assert shown
    assert rank.account.lost > 0
    assert rank.account.accepted + rank.account.lost == obedient.job.next


def test_a_disk_that_takes_nothing_is_survived(folder: Path) -> None:
    with running() as daemon, running_agent(folder, daemon.address) as agent:
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        obedient = Obedient(agent, cost_ratio=0.0)
        obedient.live(40)
        assert agent.ask().level_changes[0]["reason"] == "spool-full"
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        obedient.live(20)
        obedient.job.end()
        wait_for(agent.arrived, "everything arrived")
        rank = wait_ended(daemon)
    assert rank.account.lost > 0
    assert rank.account.accepted + rank.account.lost == obedient.job.next
