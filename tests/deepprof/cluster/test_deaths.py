"""Workers that die, are ended for good, or were never there; and our own, which are gone when we are."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client, LocalCluster
from distributed.scheduler import KilledWorker

from deepprof.analysis import analyze
from deepprof.cluster import analyze_on, connect, connection
from deepprof.cluster.mapping import TaskFailure, explain
from deepprof.collectors.errors import TraceError, UsageError
from deepprof.commands import main
from deepprof.job import read_job
from tests.patience import PATIENCE_S
from tests.widening import slow_unless

DEADLINE_S = PATIENCE_S
ELSEWHERE: dict[str, Any] = {  # a scheduler that is not ours, whatever else takes Dask's usual ports
    "host": "127.0.0.1",
    "dashboard_address": None,
    "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"},
}
# Looks at nothing once its workers are there: it ends when it is interrupted, then or before.
HELD = """
import sys, threading
from deepprof.cluster import connection
from deepprof.commands import main

def check(*given, real=connection.check_workers):
    real(*given)
    threading.Event().wait()

connection.check_workers = check
sys.exit(main(sys.argv[1:]))
"""


@functools.cache
def told_here(job: Path) -> str:
    """Return the report on a job that this process examines."""
    return analyze(read_job(job, jobs=1)).to_json()


def report_and_wait(pipe: str) -> Any:
    """Return what makes a worker show its process id through `pipe` when it is about to look, and then hang."""

    def install() -> None:
        import os
        import threading

        from deepprof.cluster import tasks

        def examine(*_: object) -> None:
            with open(pipe, "w") as told:  # waits until someone reads
                told.write(str(os.getpid()))
            threading.Event().wait()

        tasks.examine = examine  # type: ignore[assignment]

    return install


def test_a_worker_killed_at_work_changes_nothing(straggling: Path, tmp_path: Path) -> None:
    pipe, killed = tmp_path / "pipe", []
    os.mkfifo(pipe)

    def kill() -> None:
        killed.append(int(pipe.read_text()))
        os.kill(killed[0], signal.SIGKILL)

    watcher = threading.Thread(target=kill, daemon=True)
    watcher.start()
    with connect("local", workers=2) as client:
        first = min(client.scheduler_info()["workers"])
        client.run(report_and_wait(str(pipe)), workers=[first])
        found = analyze_on(client, straggling)
    watcher.join(DEADLINE_S)
    assert len(killed) == 1
    assert found.to_json() == told_here(straggling)


def test_a_file_that_kills_every_worker_is_named() -> None:
    error = KilledWorker("task", None, 3)  # type: ignore[no-untyped-call, arg-type]
    found = explain(TaskFailure("error", (KilledWorker, error, None)), "rank7.json")
    assert isinstance(found, TraceError)
    assert str(found).startswith("rank7.json: could not be looked at: every worker that tried was ended")


def test_a_scheduler_that_goes_away_is_said_in_one_line() -> None:
    assert isinstance(explain(TaskFailure("cancelled", None), "a"), UsageError)


def test_a_bug_of_a_worker_stays_a_bug() -> None:
    error = ZeroDivisionError("x")
    assert explain(TaskFailure("error", (ZeroDivisionError, error, None)), "a") is error


def test_a_scheduler_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = Client.wait_for_workers
    monkeypatch.setattr(Client, "wait_for_workers", lambda client, number, timeout: waited(client, number, 0.1))
    monkeypatch.setattr(connection, "WAIT_S", DEADLINE_S)  # for the scheduler, which is there
    with (
        LocalCluster(n_workers=0, **ELSEWHERE) as cluster,
        pytest.raises(UsageError, match=r"the scheduler has no worker; start some with `dask worker tcp://127"),
        connect(cluster.scheduler_address),
    ):
        pass


def test_a_scheduler_that_runs_elsewhere(straggling: Path) -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, **ELSEWHERE) as cluster,
        connect(cluster.scheduler_address) as client,
    ):
        assert analyze_on(client, straggling).to_json() == told_here(straggling)


def test_our_workers_are_on_the_loopback_and_refuse_who_has_no_certificate(client: Client) -> None:
    host, port = client.scheduler.address.removeprefix("tls://").split(":")
    assert host == "127.0.0.1"
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    places = [each.laddr.ip for one in family for each in one.net_connections("inet") if each.status == "LISTEN"]
    assert set(places) == {"127.0.0.1"}
    with pytest.raises(OSError), Client(f"tcp://{host}:{port}", timeout=1, set_as_default=False):  # noqa: PT011
        pass


@pytest.mark.parametrize(
    ("number", "status"),
    slow_unless(lambda case: case[0] == signal.SIGINT, [(signal.SIGINT, 130), (signal.SIGTERM, 143)]),
)
def test_an_interrupted_command_leaves_no_worker(
    straggling: Path, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-c", HELD, "diagnose", str(straggling), "--cluster", "local", "--jobs", "2"]
    environment = os.environ | {"TMPDIR": str(scratch), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0, env=environment
    ) as process:
        workers = wait_for_workers(psutil.Process(process.pid))
        os.killpg(process.pid, number)  # as a terminal does: to all of them
        out, error = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out, error) == (status, b"", b"")
    gone, alive = psutil.wait_procs(workers, timeout=DEADLINE_S)
    assert (len(gone) >= 2, alive) == (True, [])
    assert list(scratch.iterdir()) == []


def test_an_interrupt_that_another_thread_takes_waits_until_workers_are_there() -> None:
    over, reached = threading.Event(), []
    other = threading.Thread(target=over.wait, daemon=True)
    other.start()

    def start_workers() -> None:
        with connection.uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(50):  # Python raises it between two of them
                time.sleep(0.01)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        start_workers()
    over.set()
    assert reached
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_another_thread_starts_sees_no_interrupt_either() -> None:
    masks: list[set[signal.Signals]] = []

    def start_workers() -> None:
        with connection.uninterrupted():
            masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    thread = threading.Thread(target=start_workers)
    thread.start()
    thread.join(DEADLINE_S)
    assert [signal.SIGINT in mask for mask in masks] == [True, False]


def wait_for_workers(process: psutil.Process) -> list[psutil.Process]:
    """Return the children of a command once two workers have been started."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = process.children(recursive=True)
        if sum("spawn_main" in read_command(each) for each in found) >= 2:
            return found
        time.sleep(0.01)
    raise AssertionError(f"no workers after {DEADLINE_S} s")


def read_command(process: psutil.Process) -> str:
    """Return the words with which a process was started, none where it has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def test_the_command_prints_the_same(
    straggling: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(straggling)
    asked = ["diagnose", "rank[01].json.gz", "--format", "json"]
    assert main(asked) == 0
    command = [sys.executable, "-W", "error", "-m", "deepprof", *asked, "--cluster", "local", "--jobs", "1"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert capsysbinary.readouterr() == (done.stdout, b"")
    assert done.stderr == b""
    assert json.loads(done.stdout)["trace"]["paths"][0] == "rank0.json.gz"
