"""Everything again under the sanitizers, which state what a test that only counts cannot see."""

import signal
from pathlib import Path

import pytest

from deepprof.collectors.live.packets import CollectionLevel, Kind
from tests.patience import PATIENCE_S

from .building import build
from .reader import Agent, await_truth, finish_job, start_job

RUNS = [
    ("mixed", 2000, 1),
    ("threads", 3000, 6),
    ("burst", 60_000, 0),
    ("late", 45_000, 1),
    ("backward", 2000, 1),
    ("garbage", 2000, 1),
    ("dropped", 45_000, 1),
    ("unfinished", 600, 1),
    ("names", 6000, 1),
    ("paused", 200, 1),
    ("stray", 200, 1),
]


@pytest.mark.parametrize("flavour", ["address", "thread"])
@pytest.mark.parametrize(("scenario", "count", "threads"), RUNS)
def test_scenarios_are_clean(tmp_path: Path, flavour: str, scenario: str, count: int, threads: int) -> None:
    with Agent(tmp_path / "socket", keep=False) as agent:
        settings = {"DEEPPROF_SOCKET": agent.path, "DEEPPROF_GRAPHS": "launches", "MOCK_PATIENT": 1}
        kept, dropped, _ = finish_job(start_job(build(flavour), [scenario, count, threads], settings))
        said = agent.only()
    assert said.ended
    assert said.count + said.lost == kept + dropped


PROGRAMS = [("graphs", 28), ("devices", 130001), ("profiled", 28), ("unannounced", 28), ("monitor-first", 130500)]


@pytest.mark.parametrize("flavour", ["address", "thread"])
@pytest.mark.parametrize(("program", "api"), PROGRAMS)
def test_programs_are_clean(tmp_path: Path, flavour: str, program: str, api: int) -> None:
    with Agent(tmp_path / "socket", keep=False) as agent:
        # Where nothing shows that another client is still there, it is left alone for six of the longest pauses.
        settings = {"DEEPPROF_SOCKET": agent.path, "DEEPPROF_RETRY_MS": 40, "MOCK_API": api, "MOCK_LEFT": 1}
        settings |= {"JOB_LEFT_ALONE_MS": 6 * 40}
        finish_job(start_job(build(flavour), [program, 30], settings, "training"))
        assert agent.only().ended


@pytest.mark.parametrize("flavour", ["address", "thread"])
def test_forks_are_clean(tmp_path: Path, flavour: str) -> None:
    with Agent(tmp_path / "socket") as agent:
        job = start_job(build(flavour), ["fork", 500], {"DEEPPROF_SOCKET": agent.path})
        _, err = job.communicate(timeout=PATIENCE_S)
        assert (job.returncode, err) == (0, "")
        await_truth(lambda: len(agent.connections) == 3 and all(c.closed for c in agent.connections), "three ends")
    assert sorted(c.count for c in agent.connections) == [500, 500, 2000]


@pytest.mark.parametrize("flavour", ["address", "thread"])
def test_levels_and_a_lost_agent_are_clean(tmp_path: Path, flavour: str) -> None:
    path = tmp_path / "socket"
    settings = {"DEEPPROF_SOCKET": path, "DEEPPROF_QUEUE_NBYTES": 1 << 18, "MOCK_BUSY": 1, "DEEPPROF_RETRY_MS": 20}
    with Agent(path) as first:
        job = start_job(build(flavour), ["steady", 10_000_000], settings)
        await_truth(lambda: first.connections and first.connections[0].count > 1000, "records")
        first.connections[0].say(Kind.LEVEL, CollectionLevel.OFF)
        await_truth(lambda: first.connections[0].ticks[-1]["level"] == 0, "the level")
        first.connections[0].say(Kind.LEVEL, CollectionLevel.ON)
        await_truth(lambda: first.connections[0].ticks[-1]["level"] == 1, "the level")
        first.gate.clear()
    with Agent(path) as second:
        await_truth(lambda: second.connections and second.connections[0].count > 1000, "records again")
        job.send_signal(signal.SIGTERM)
        finish_job(job)
        assert second.only().ended
