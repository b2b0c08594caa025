"""NVIDIA's own libcupti where no device is: the job goes on, its end is its own, and one line says what is missing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.patience import UNHURRIED

from .building import FLAGS, HERE, build, compiler, run
from .reader import PATIENCE_S, Agent, Connection, await_truth
from .vendor_wheels import CUDA, CUPTI_13_2, VendorWheel, cupti_library

PROGRAMS = HERE / "programs"
NO_DEVICE = 100  # what cuInit states
DRIVERS: dict[str, dict[str, object]] = {
    "is not there": {},
    "refuses": {"MOCK_INIT": NO_DEVICE, "MOCK_VERSION": 13050},
    "has no device": {"MOCK_DEVICES": 0, "MOCK_VERSION": 13050},
}
CLAIMS: dict[str, object] = {"MOCK_DEVICES": 1, "MOCK_VERSION": 13050}  # and nothing behind the number is there
TICKS = 3  # it has examined the driver by then
LIBRARIES = [CUDA[version].cupti for version in ("12.9", "13.0", "13.5")]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a driver and a job."""
    folder = tmp_path_factory.mktemp("driverless")
    build_driver(folder / "libcuda.so.1")
    run([compiler(), *FLAGS, str(PROGRAMS / "driverless.c"), "-o", str(folder / "job"), "-ldl"])
    return folder


def build_driver(path: Path) -> None:
    source = str(PROGRAMS / "mock_driver.c")
    run([compiler(), *FLAGS, "-shared", "-Wl,-soname,libcuda.so.1", source, "-o", str(path), "-ldl"])


@contextmanager
def start(programs: Path, library: Path, agent: Agent, settings: dict[str, object]) -> Iterator[subprocess.Popen[str]]:
    own = {
        "PATH": os.environ["PATH"],
        "DEEPPROF_SOCKET": agent.path,
        "DEEPPROF_CUPTI": library,
        "DEEPPROF_RETRY_MS": 1100,
        **UNHURRIED,
    }
    own |= {"CUDA_INJECTION64_PATH": build("plain").library, **settings}
    environment = {name: str(value) for name, value in own.items()}
    pipe = subprocess.PIPE
    with subprocess.Popen([programs / "job"], env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as job:
        try:
            yield job
        finally:
            job.kill()


def finish(agent: Agent, job: subprocess.Popen[str], is_enough: Callable[[Connection], bool]) -> Connection:
    """Let the job end once enough was stated, and return what was; it ends as it would alone."""

    def is_over() -> bool:
        return job.poll() is not None or (bool(agent.connections) and is_enough(agent.connections[0]))

    await_truth(is_over, "a word, or the end")
    assert job.communicate("\n", timeout=PATIENCE_S) == ("", "")
    assert job.returncode == 0
    return agent.only()


@pytest.mark.parametrize("wheel", [*LIBRARIES, CUPTI_13_2], ids=lambda wheel: wheel.version)
def test_a_job_without_a_device_goes_on(wheel: VendorWheel, programs: Path, tmp_path: Path) -> None:
    """That of 13.2 crashes in every call without a device, that for its version included."""
    library = cupti_library(wheel)
    driver = {"JOB_DRIVER": programs / "libcuda.so.1"}
    settings = {name: driver | each if each else each for name, each in DRIVERS.items()}
    with ExitStack() as stack:
        agents = {name: stack.enter_context(Agent(tmp_path / f"{place}")) for place, name in enumerate(settings)}
        jobs = {name: stack.enter_context(start(programs, library, agents[name], settings[name])) for name in settings}
        said = {name: finish(agents[name], jobs[name], lambda each: len(each.ticks) >= TICKS) for name in settings}
    assert all(each.ended and not each.count for each in said.values())
    assert {name: len(each.notices) for name, each in said.items()} == dict.fromkeys(settings, 1)


@pytest.mark.parametrize("wheel", LIBRARIES, ids=lambda wheel: wheel.version)
def test_a_library_that_refuses_is_told_of(wheel: VendorWheel, programs: Path, tmp_path: Path) -> None:
    """It is called, for the driver states that it has a device, and finds nothing of a real driver."""
    settings = {"JOB_DRIVER": programs / "libcuda.so.1", **CLAIMS}
    with Agent(tmp_path / "socket") as agent, start(programs, cupti_library(wheel), agent, settings) as job:
        said = finish(agent, job, lambda each: bool(each.notices))
    assert said.ended
    assert not said.count
    ((_, text),) = said.notices
    assert "CUPTI cannot be used now" in text
