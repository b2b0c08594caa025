"""NVIDIA's own libcupti where no device is: the job goes on, its end is its own, and one line says what is missing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from .building import FLAGS, HERE, build, compiler, run
from .reader import PATIENCE_S, Agent, Connection, await_truth
from .vendor_wheels import CUDA, CUPTI_13_2, VendorWheel, cupti_library

PROGRAMS = HERE / "programs"
NO_DEVICE = 100  # what cuInit says
DRIVERS: dict[str, dict[str, object]] = {
    "refuses": {"MOCK_INIT": NO_DEVICE, "MOCK_VERSION": 13050},
    "has no device": {"MOCK_DEVICES": 0, "MOCK_VERSION": 13050},
}
TICKS = 10  # 2.5 s: all first tries are over
# It crashes in every call without a device, that for its version included.
CRASHES = pytest.mark.xfail(strict=True, reason="CUPTI is called before the driver has shown a device")
LIBRARIES = [*(CUDA[version].cupti for version in ("12.9", "13.0", "13.5")), pytest.param(CUPTI_13_2, marks=CRASHES)]


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
    }
    own |= {"CUDA_INJECTION64_PATH": build("plain").library, **settings}
    environment = {name: str(value) for name, value in own.items()}
    pipe = subprocess.PIPE
    with subprocess.Popen([programs / "job"], env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as job:
        try:
            yield job
        finally:
            job.kill()


def await_tries(agent: Agent, job: subprocess.Popen[str]) -> None:
    """Return when the collector has said that it cannot, when it has tried long enough, or when the job is gone."""

    def is_over() -> bool:
        said = agent.connections[0] if agent.connections else None
        return job.poll() is not None or (said is not None and (bool(said.notices) or len(said.ticks) >= TICKS))

    await_truth(is_over, "the tries")


def finish(agent: Agent, job: subprocess.Popen[str]) -> Connection:
    """Let the job end, and return what was said; it ends as it would alone."""
    await_tries(agent, job)
    assert job.communicate("\n", timeout=2 * PATIENCE_S) == ("", "")
    assert job.returncode == 0
    return agent.only()


@pytest.mark.parametrize("wheel", LIBRARIES, ids=lambda wheel: wheel.version)
def test_a_job_without_a_device_goes_on(wheel: VendorWheel, programs: Path, tmp_path: Path) -> None:
    library = cupti_library(wheel)
    alone: dict[str, dict[str, object]] = {"is not there": {}}
    drivers = alone | {name: each | {"JOB_DRIVER": programs / "libcuda.so.1"} for name, each in DRIVERS.items()}
    with ExitStack() as stack:
        agents = {name: stack.enter_context(Agent(tmp_path / f"{place}")) for place, name in enumerate(drivers)}
        jobs = {name: stack.enter_context(start(programs, library, agents[name], drivers[name])) for name in drivers}
        said = {name: finish(agents[name], jobs[name]) for name in drivers}
    assert all(each.ended and not each.count for each in said.values())
    assert {name: len(said[name].notices) for name in DRIVERS} == dict.fromkeys(DRIVERS, 1)
    assert len(said["is not there"].notices) <= 1
