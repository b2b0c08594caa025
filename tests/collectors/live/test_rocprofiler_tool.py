"""The tool for AMD GPUs with a made-up SDK, whose buffers are as the real one's: every record arrives or is counted."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from deepprof.collectors.live.packets import NO_COPY, Kind, Reason
from deepprof.collectors.trace import COPY_KINDS
from tests.patience import UNHURRIED

from .building import HERE, INJECT, compiler, run
from .reader import PATIENCE_S, Agent, Connection, await_truth

TOOL = INJECT.parent / "rocprofiler"
MOCK = HERE / "rocprofiler_mock"
FLAGS = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread", "-isystem", str(MOCK)]
WARNINGS = "-Wall -Wextra -Werror"
GPU = 3  # the device's number in mock.cpp
MANY = 200_000  # several times what a buffer contains


@dataclass(frozen=True, slots=True)
class RocmPrograms:
    """The tool, the SDK and the job."""

    tool: Path
    job: Path


@pytest.fixture(scope="module")
def rocm(tmp_path_factory: pytest.TempPathFactory) -> RocmPrograms:
    cxx = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")
    if cxx is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("rocm")
    sdk, tool, job = folder / "libsdk.so", folder / "tool.so", folder / "job"
    run([cxx, *FLAGS, "-shared", str(MOCK / "mock.cpp"), "-o", str(sdk)])
    settings = {"OUT": tool, "INCLUDES": f"-isystem {MOCK} {WARNINGS}", "LINK": sdk, "CXX": cxx, "CC": compiler()}
    settings["HIDDEN"] = "-O1 -fPIC -pthread -fvisibility=hidden"
    run(["make", "-C", str(TOOL), *(f"{name}={value}" for name, value in settings.items())])
    run([cxx, *FLAGS, str(MOCK / "job.cpp"), str(sdk), "-o", str(job), "-ldl"])
    return RocmPrograms(tool, job)


@dataclass(slots=True)
class RocmJob:
    """A running job, and what it stated at its end."""

    job: subprocess.Popen[str]
    agent: Agent
    kept: int = 0
    dropped: int = 0

    def go_on(self) -> None:
        assert self.job.stdin is not None
        self.job.stdin.write("\n")
        self.job.stdin.flush()

    def end(self) -> Connection:
        out, err = self.job.communicate(timeout=PATIENCE_S)
        assert (self.job.returncode, err) == (0, "")
        self.kept, self.dropped = map(int, out.split()[-2:])
        return self.agent.only()


@contextmanager
def start(rocm: RocmPrograms, folder: Path, words: str, **settings: str) -> Iterator[RocmJob]:
    with Agent(folder / "socket") as agent:
        own = {"PATH": os.environ["PATH"], "JOB_TOOL": str(rocm.tool), "DEEPPROF_SOCKET": str(agent.path)}
        pipe = subprocess.PIPE
        command = [str(rocm.job), *words.split()]
        with subprocess.Popen(
            command, env=own | UNHURRIED | settings, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        ) as job:
            try:
                yield RocmJob(job, agent)
            finally:
                job.kill()


def texts(said: Connection) -> Counter[str]:
    return Counter(said.names.get(name, "") for name in said.events["name"].tolist())


def test_no_record_is_lost_while_buffers_are_swapped(rocm: RocmPrograms, tmp_path: Path) -> None:
    with start(rocm, tmp_path, f"kernels {MANY}") as device:
        said = device.end()
    assert (device.kept, device.dropped) == (MANY, 0)
    assert (said.count, said.lost, said.ended) == (MANY, 0, True)
    assert said.events["correlation"].tolist() == list(range(1, MANY + 1))
    assert texts(said) == {"gemm": 66_667, "relu": 66_667, "": 66_666}
    assert {reason for _, _, _, reason in said.frames} == {Reason.NONE}


def test_what_the_sdk_drops_is_counted_once(rocm: RocmPrograms, tmp_path: Path) -> None:
    """Its number is a total, told anew with every buffer."""
    words = f"hold kernels {MANY} release kernels 10 hold kernels {MANY} release kernels 10"
    with start(rocm, tmp_path, words, MOCK_LEAKY="1") as device:
        said = device.end()
    assert device.kept + device.dropped == 2 * MANY + 20
    assert device.dropped > MANY
    assert (said.count, said.lost) == (device.kept, device.dropped)
    assert int(said.ticks[-1]["driver_dropped"]) == device.dropped
    assert Reason.DRIVER_DROPPED in {reason for _, _, _, reason in said.frames}


def test_records_come_while_the_host_is_busy_with_ranges(rocm: RocmPrograms, tmp_path: Path) -> None:
    """They are far from filling a buffer, and nothing ever rests."""
    with start(rocm, tmp_path, "kernels 10 line") as device:
        await_truth(lambda: device.agent.connections and device.agent.connections[0].count == 10, "the kernels")
        said = device.agent.connections[0]
        await_truth(
            lambda: said.ticks[-1]["events_until_ns"] >= said.events["end_ns"].max(), "the promise of all before"
        )
        assert not said.ended
        device.go_on()
        device.end()


def test_kernels_and_copies_are_told_as_they_were(rocm: RocmPrograms, tmp_path: Path) -> None:
    with start(rocm, tmp_path, "kernels 3 copies 5 ranges 2") as device:
        said = device.end()
    kernels, copies = said.events[:3], said.events[3:]
    assert set(said.events["device"].tolist()) == {GPU}
    assert (kernels["end_ns"] - kernels["start_ns"]).tolist() == [5, 5, 5]
    assert kernels["stream"].tolist() == [1, 2, 1]  # queues, in the order in which they arrived
    assert set(kernels["copy_kind"].tolist()) == {NO_COPY}
    kinds = {**dict(enumerate(COPY_KINDS)), NO_COPY: ""}
    assert [kinds[kind] for kind in copies["copy_kind"].tolist()] == ["", "HtoH", "HtoD", "DtoH", "DtoD"]
    assert copies["nbytes"].tolist() == [100, 101, 102, 103, 104]
    assert np.all(copies["stream"] == 0)
    assert sum(count for kind, _, count, _ in said.frames if kind is Kind.RANGES) == 2


def test_records_without_times_are_counted(rocm: RocmPrograms, tmp_path: Path) -> None:
    with start(rocm, tmp_path, "kernels 5 bad 2 kernels 5") as device:
        said = device.end()
    assert (device.kept, said.count, said.lost) == (12, 10, 2)
