"""What the agent's other sources find arrives at a daemon: from the file to the iterations."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepprof.collectors.importers import read
from deepprof.live.wire.figures import RankState
from deepprof.simulation import simulate, write
from tests.collectors.rpd_database import build
from tests.deepprof.live.agent.agents import running_agent
from tests.deepprof.live.service.daemons import Daemon, running, wait_for
from tests.deepprof.live.service.sending import open_client

ITERATIONS, KERNELS = 60, 40
PAUSE_NS, KERNEL_NS = 100_000_000, 10_000
STRINGS = ("", "KernelExecution", "hipLaunchKernel", *(f"kernel_{at}" for at in range(13)))


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="dp-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def wait_settled(daemon: Daemon, job: str) -> RankState:
    def look() -> RankState | None:
        with open_client(daemon) as client:
            known = any(each.job == job for each in client.jobs())
            found = client.ranks(job) if known else []
        return next((rank for rank in found if rank.ended and rank.settled), None)

    return wait_for(look, "the rank has ended and is settled")


def is_connected(daemon: Daemon, job: str) -> bool:
    with open_client(daemon) as client:
        return any(each.job == job and each.connected for each in client.jobs())


def count_iterations(rank: RankState) -> int:
    return sum(device.iterations for device in rank.devices)


def write_iteration(connection: sqlite3.Connection, number: int, begin_ns: int) -> None:
    """One iteration: its operations, calls and what ties both, in one transaction."""
    keys = range(number * KERNELS + 1, (number + 1) * KERNELS + 1)
    starts = [begin_ns + number * (KERNELS * KERNEL_NS + PAUSE_NS) + at * KERNEL_NS for at in range(KERNELS)]
    names = [4 + (at * at + 3 * at) % 13 for at in range(KERNELS)]
    rows = list(zip(keys, starts, names, strict=True))
    with connection:
        connection.executemany(
            "INSERT INTO rocpd_op VALUES (?, 0, 0, 0, ?, ?, ?, 2)", [(k, s, s + 8000, n) for k, s, n in rows]
        )
        connection.executemany(
            "INSERT INTO rocpd_api VALUES (?, 1, 1, ?, ?, 3, 1, NULL, NULL)",
            [(k, s - 5000, s - 4000) for k, s, _ in rows],
        )
        connection.executemany("INSERT INTO rocpd_api_ops VALUES (?, ?, ?)", [(k, k, k) for k in keys])
        connection.executemany(
            "INSERT INTO rocpd_kernelapi (api_ptr_id, stream, kernelName_id) VALUES (?, '0x0', 1)", [(k,) for k in keys]
        )


def test_a_file_that_is_written_meanwhile(folder: Path) -> None:
    path = build(folder / "live.rpd", STRINGS)
    busy = []

    def trace() -> None:
        connection = sqlite3.connect(path, timeout=0)
        begin_ns = time.monotonic_ns() - ITERATIONS * (KERNELS * KERNEL_NS + PAUSE_NS)
        number = 0
        while number < ITERATIONS:
            try:
                write_iteration(connection, number, begin_ns)
                number += 1
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                    raise
                busy.append(error)
        connection.close()

    with running() as daemon, running_agent(folder, daemon.address, "--tail", str(path), "--job", "amd") as agent:
        tracer = threading.Thread(target=trace)
        tracer.start()
        tracer.join()
        wait_for(lambda: is_connected(daemon, "amd"), "the first records have come")
        assert agent.stop() == 0
        rank = wait_settled(daemon, "amd")
    assert rank.account.received == 2 * ITERATIONS * KERNELS
    assert count_iterations(rank) == ITERATIONS
    assert (rank.account.accepted, rank.account.lost) == (rank.account.received, 0)


def test_reports_of_a_directory(folder: Path) -> None:
    reports = folder / "reports"
    reports.mkdir()
    write(simulate("healthy", iterations=12), reports / "first.json.gz")
    kept = read(reports / "first.json.gz").accounting.kept
    with running() as daemon, running_agent(folder, daemon.address, "--watch", str(reports), "--job", "batch"):
        rank = wait_settled(daemon, "batch/first")
    assert rank.account.received == kept
    assert count_iterations(rank) >= 12
