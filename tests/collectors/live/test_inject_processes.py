"""Forks, programs that become others, many processes at once, and ends without a word."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deepprof.collectors.live import packets
from tests.patience import PATIENCE_S, UNHURRIED

from .building import build
from .reader import TRUTH, Agent, Connection, await_truth, finish_job, start_job


def await_ends(agent: Agent, count: int) -> list[Connection]:
    await_truth(lambda: len(agent.connections) >= count, f"{count} connections")
    await_truth(lambda: all(connection.closed for connection in agent.connections), "their ends")
    return agent.connections


def test_a_forked_child_is_a_process_of_its_own(tmp_path: Path) -> None:
    count = 500
    with Agent(tmp_path / "socket") as agent:
        job = start_job(build("plain"), ["fork", count], {"DEEPPROF_SOCKET": agent.path})
        _, err = job.communicate(timeout=PATIENCE_S)
        assert (job.returncode, err) == (0, "")
        said = await_ends(agent, 3)
    by_command = {(s.hello["command"].split()[1], s.hello["pid"] == str(job.pid)): s for s in said}
    parent, child, other = by_command["fork", True], by_command["fork", False], by_command["threads", False]
    assert len(said) == 3  # the child that starts nothing states nothing
    assert len({s.hello["session"] for s in said}) == len({s.hello["pid"] for s in said}) == 3
    assert [s.count for s in (parent, child, other)] == [4 * count, count, count]
    assert {int(stream) for stream in child.events["stream"]} == {40}
    assert {int(stream) for stream in parent.events["stream"]} == {7, 8}
    for s in said:
        assert (s.ended, s.lost, "continues" in s.hello) == (True, 0, False)


def test_many_processes_are_told_apart(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket") as agent:
        settings = [{"DEEPPROF_SOCKET": agent.path, "RANK": rank, "WORLD_SIZE": 6} for rank in range(6)]
        jobs = [start_job(build("plain"), ["threads", 100 * (n + 1), 2], s) for n, s in enumerate(settings)]
        kept = [finish_job(job)[0] for job in jobs]
        said = {int(s.hello["env:RANK"]): s for s in await_ends(agent, 6)}
    assert [said[rank].count for rank in range(6)] == kept == [200 * (n + 1) for n in range(6)]
    assert [int(said[rank].hello["pid"]) for rank in range(6)] == [job.pid for job in jobs]


@pytest.mark.parametrize("scenario", ["killed", "burst"])
def test_an_end_without_a_word_is_the_end_of_the_stream(tmp_path: Path, scenario: str) -> None:
    with Agent(tmp_path / "socket") as agent:
        job = start_job(build("plain"), [scenario, 100], {"DEEPPROF_SOCKET": agent.path})
        finish_job(job, -signal.SIGKILL if scenario == "killed" else 0)
        assert agent.only().ended is (scenario == "burst")


def test_hello_says_who_it_is(tmp_path: Path) -> None:
    settings = {"SLURM_PROCID": "3", "JOB_NAME": "two\nlines", "POD_NAME": "x" * 20_000, "HOME": "/secret"}
    with Agent(tmp_path / "socket") as agent:
        job = start_job(build("plain"), ["steady", 10_000], settings | {"DEEPPROF_SOCKET": agent.path})
        await_truth(lambda: agent.connections and agent.connections[0].hello, "a word")
        stat = Path(f"/proc/{job.pid}/stat").read_text().rsplit(")", 1)[1].split()
        hello = dict(agent.connections[0].hello)
        job.terminate()
        job.wait()
        job.communicate()
    assert (hello.pop("version"), hello.pop("collector"), hello.pop("pid")) == (
        str(packets.VERSION),
        "cupti",
        str(job.pid),
    )
    assert hello.pop("start") == stat[19]  # the 22nd field of all
    assert len(bytes.fromhex(hello.pop("session"))) == 16
    assert hello.pop("command").endswith("job steady 10000")
    assert hello == {"env:SLURM_PROCID": "3", "env:JOB_NAME": "two lines"}  # half a value would be another one


def test_a_job_that_closes_all_descriptors_is_not_written_to(tmp_path: Path) -> None:
    """A daemon closes what it did not open: the file that gets our number next must stay as it is."""
    script = tmp_path / "daemon.py"
    script.write_text(
        "import ctypes, os, sys, time\n"
        "library = ctypes.CDLL(sys.argv[1])\n"
        "library.InitializeInjection()\n"
        "ours = lambda: [n for n in range(200, 300) if os.path.exists(f'/proc/self/fd/{n}') and\n"
        "                os.readlink(f'/proc/self/fd/{n}').startswith('socket:')]\n"
        "while not os.path.exists(sys.argv[3]): time.sleep(0.01)\n"
        "number, = ours()\n"
        "mine = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)\n"
        "os.dup2(mine, number)\n"
        "while os.path.exists(sys.argv[3]): time.sleep(0.01)\n"
        "assert os.fstat(number).st_ino == os.fstat(mine).st_ino\n"
        "assert os.fstat(mine).st_size == 0\n"
        "print(number)\n"
    )
    built = build("plain")
    with Agent(tmp_path / "socket") as agent:
        mine, said = tmp_path / "mine", tmp_path / "said"
        job = subprocess.Popen(
            [sys.executable, "-S", "-E", str(script), str(built.library), str(mine), str(said)],
            env={"DEEPPROF_SOCKET": str(agent.path), "DEEPPROF_CUPTI": str(built.mock), **UNHURRIED},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        # While it connects, its socket has a number already that it cannot show from a file in its place.
        await_truth(lambda: bool(agent.connections and agent.connections[0].hello), "the first greeting")
        said.touch()
        await_truth(lambda: len(agent.connections) == 2 and bool(agent.connections[1].hello), "the second greeting")
        said.unlink()
        out, err = job.communicate(timeout=PATIENCE_S)
        assert (job.returncode, err) == (0, "")
        await_ends(agent, 2)
    assert int(out) >= 200  # out of the way of jobs that count on low numbers
    assert [c.hello.get("continues") for c in agent.connections] == [None, "1"]
    assert TRUTH.itemsize == 64
