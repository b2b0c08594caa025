"""Looks at the memory in use, told to the library as the hook does: counted, in order, and covered by its promises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deepprof.collectors.live.packets import MEMORY_CHANGE, NO_TOTAL, RECORD_KINDS, CollectionLevel, Kind, Reason
from tests.collectors.live.building import FLAGS, INJECT, SANITIZERS, build, compiler
from tests.collectors.live.hooked import PROGRAMS
from tests.collectors.live.reader import Agent, Connection, await_truth
from tests.patience import PATIENCE_S, UNHURRIED

MEMORY = RECORD_KINDS.index("memory")
PROGRAM = """
import ctypes, os, sys, threading, time
library = ctypes.CDLL(sys.argv[1])
library.deepprof_memory.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64]
assert library.deepprof_operators(0) == 0
look = library.deepprof_memory
{}
library.deepprof_finish()
"""
FEW = "look(0, 1 << 40, 2**64 - 1, 80 << 30); look(1, 5, 7, 0)"
FLOOD = "[look(0, at, at, 1) for at in range(20_000)]"
THREADS = """
threads = [threading.Thread(target=lambda: [look(0, at, at, 1) for at in range(200)]) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
FORKED = """
look(0, 1, 1, 1)
child = os.fork()
if child == 0:
    look(0, 2, 2, 2)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
look(0, 3, 3, 3)
"""


def hear(code: str, folder: Path, level: CollectionLevel = CollectionLevel.ON) -> Connection:
    """Run a program of looks, which may wait for a line until it has the level; return what the agent heard."""
    with Agent(folder / "socket", level) as agent:
        words = [sys.executable, "-S", "-E", "-c", PROGRAM.format(code), str(build("plain").library)]
        environment = {"DEEPPROF_SOCKET": str(agent.path), **UNHURRIED}
        pipe = subprocess.PIPE
        with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as job:
            if "readline" in code:
                await_truth(lambda: agent.connections[0].ticks, "the level")
            _, err = job.communicate("\n", timeout=PATIENCE_S)
        assert (job.returncode, err) == (0, "")
        return agent.only()


def column(connection: Connection, name: str) -> list[Any]:
    place = (MEMORY_CHANGE.names or ()).index(name)
    return [row[place] for row in connection.changes]


def test_looks_arrive_as_changes_without_a_size(tmp_path: Path) -> None:
    heard = hear(FEW, tmp_path)
    assert column(heard, "allocated_nbytes") == [1 << 40, 5]
    assert column(heard, "reserved_nbytes") == [NO_TOTAL, 7]
    assert column(heard, "device_nbytes") == [80 << 30, 0]
    assert column(heard, "device") == [0, 1]
    assert column(heard, "nbytes") == column(heard, "address") == [0, 0]
    times = column(heard, "time_ns")
    assert times == sorted(times)
    last = heard.ticks[-1]
    assert times[-1] < last["ranges_until_ns"]
    assert (last["next"], last["made"][MEMORY]) == (2, 2)
    assert heard.frames[-1] == (Kind.END, 2, 0, Reason.NONE)


@pytest.mark.parametrize("code", [FLOOD, THREADS])
def test_all_are_kept_or_counted(code: str, tmp_path: Path) -> None:
    made = 20_000 if code is FLOOD else 800
    heard = hear(code, tmp_path)
    assert len(heard.changes) + heard.lost == made
    assert heard.ticks[-1]["made"][MEMORY] == made
    assert {reason for _, _, _, reason in heard.frames} <= {Reason.NONE, Reason.BUFFER_FULL}
    times = column(heard, "time_ns")
    assert times == sorted(times)


def test_no_tick_promises_more_than_was_told_before_it(tmp_path: Path) -> None:
    heard = hear("[(look(0, at, at, 1), time.sleep(0.002)) for at in range(400)]", tmp_path)
    times, told, ticks = column(heard, "time_ns"), iter(heard.frames), iter(heard.ticks)
    known = 0
    for kind in heard.order:
        if kind is Kind.MEMORY_CHANGES:
            known += next(told)[2]
        elif kind is Kind.TICK:
            until = next(ticks)["ranges_until_ns"]
            assert all(time >= until for time in times[known:])
    assert known == 400


def test_a_child_of_a_fork_tells_nothing(tmp_path: Path) -> None:
    assert column(hear(FORKED, tmp_path), "allocated_nbytes") == [1, 3]


def test_switched_off_nothing_is_kept(tmp_path: Path) -> None:
    heard = hear(f"sys.stdin.readline(); {FEW}", tmp_path, CollectionLevel.OFF)
    assert (heard.changes, heard.lost) == ([], 0)


@pytest.fixture(scope="module", params=SANITIZERS)
def stress(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("stress") / "stress"
    flags = [*FLAGS, *SANITIZERS[request.param], f"-I{INJECT}"]
    sources = [INJECT / "memory.c", PROGRAMS / "memory_stress.c"]
    subprocess.run([compiler(), *flags, *map(str, sources), "-o", str(target)], check=True)
    return target


@pytest.mark.parametrize("words", [["6", "5000"], ["2", "3000", "slow"]])
def test_promises_hold_whatever_threads_do(stress: Path, words: list[str]) -> None:
    done = subprocess.run([stress, *words], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stderr == ""
    made, got, lost, broken = map(int, done.stdout.split())
    assert (got + lost, broken) == (made, 0)
    assert words[-1] != "slow" or (got, lost) == (1024, 6000 - 1024)
