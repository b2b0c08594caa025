"""`deepprof watch` against a fake daemon: on a terminal, into a pipe, as JSON, and while the daemon is away."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time

import grpc
import pytest

from deepprof.commands import main
from deepprof.live.client.errors import DaemonError
from deepprof.live.client.watch_view import look_on
from deepprof.v1 import query_pb2
from tests.patience import PATIENCE_S

NOW_NS = 1_700_000_000_000_000_000
DEADLINE_S = PATIENCE_S


@pytest.fixture
def watched(daemon):
    """The daemon with two jobs."""
    jobs = [query_pb2.Job(job=name, ranks=1, connected=1, iterations=9) for name in ("one", "two")]
    state = query_pb2.DeviceState(state=2, iterations=9, last_iteration_ns=50_000_000)
    daemon.answers["Watch"] = lambda request: iter([query_pb2.WatchResponse(jobs=jobs, now_unix_ns=NOW_NS)])
    daemon.answers["ListRanks"] = lambda request: query_pb2.ListRanksResponse(
        ranks=[query_pb2.Rank(job=request.job, connected=True, devices=[state])]
    )
    return daemon


def test_a_pipe_gets_one_look(capsys, watched, address):
    for argv in (["watch", address], ["watch", address, "--once"]):
        assert main(argv) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert out.startswith(f"{address} · 2 jobs")
        assert out.count("locked") == 2


def test_one_job_is_asked_for(capsys, watched, address):
    assert main(["watch", address, "--job", "two"]) == 0
    assert [request.job for request in watched.asked["Watch"]] == ["two"]
    assert [request.job for request in watched.asked["ListRanks"]] == ["two"]
    assert "one\n" not in capsys.readouterr().out


def test_json_is_one_line_a_look(capsys, watched, address):
    assert main(["watch", address, "--once", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "deepprof.watch/1"
    assert told["now_unix_ns"] == NOW_NS
    assert [job["job"] for job in told["jobs"]] == ["one", "two"]
    (rank,) = told["jobs"][0]["rank_states"]
    assert rank["devices"][0]["state"] == "locked"
    assert rank["account"]["dropped"] == {}


def test_an_address_from_the_environment(capsys, watched, address, monkeypatch):
    monkeypatch.setenv("DEEPPROF_DAEMON", address)
    assert main(["watch"]) == 0
    assert address in capsys.readouterr().out


def test_a_daemon_that_is_not_there_is_one_line(capsys, folder):
    assert main(["watch", f"unix:{folder}/none"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "there is no such socket; start it with deepprof serve" in err
    assert err.count("\n") == 1


def test_a_job_in_the_addresss_place_is_told(capsys):
    assert main(["watch", "nightly-42"]) == 2
    assert capsys.readouterr().err.endswith("one job is watched with --job NAME\n")


@pytest.mark.parametrize("seconds", ["0", "0.01", "soon", "3601", "-1"])
def test_an_interval_that_cannot_be_meant(capsys, seconds):
    assert main(["watch", f"--interval={seconds}"]) == 2
    assert "no number of seconds" in capsys.readouterr().err


def test_while_the_daemon_is_away_the_last_look_stays(watched, endpoint):
    good = watched.answers["Watch"]
    waits = []
    scenes = look_on(endpoint, "", lambda: waits.append(1))
    first = next(scenes)
    assert first.notice == ""
    watched.answers["Watch"] = grpc.StatusCode.UNAVAILABLE
    away = [next(scenes) for _ in range(3)]
    assert all("trying again" in scene.notice and scene.jobs == first.jobs for scene in away)
    watched.answers["Watch"] = good
    assert next(scenes).notice == ""
    assert len(waits) == 4
    watched.answers["Watch"] = grpc.StatusCode.PERMISSION_DENIED
    with pytest.raises(DaemonError, match="scope"):
        next(scenes)


def test_a_job_that_is_forgotten_during_a_look_does_not_end_the_view(watched, endpoint):
    """Somebody forgets `two` between the list of jobs and its ranks."""
    ranks = watched.answers["ListRanks"]
    watched.answers["ListRanks"] = lambda request: ranks(request) if request.job == "one" else grpc.StatusCode.NOT_FOUND
    scene = next(look_on(endpoint, "", lambda: None))
    assert [job.job for job in scene.jobs] == ["one"]
    assert set(scene.ranks) == {"one"}
    with pytest.raises(DaemonError, match="knows nothing of it"):
        next(look_on(endpoint, "two", lambda: None))


def test_a_terminal_is_given_back_after_ctrl_c(watched, address):
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "deepprof", "watch", address, "--interval", "0.1"]
    environment = {**os.environ, "COLUMNS": "60", "LINES": "20", "TERM": "xterm"}
    run = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environment)
    os.close(child)
    try:
        shown = read_until(parent, b"locked")
        run.send_signal(signal.SIGINT)
        shown += read_until(parent, b"\x1b[?1049l")
        assert run.wait(DEADLINE_S) == 0
    finally:
        run.kill()
        run.wait()
        os.close(parent)
    assert shown.index(b"\x1b[?1049h") < shown.index(b"locked")
    assert b"Traceback" not in shown


def test_the_view_follows_the_terminals_size(watched, address):
    parent, child = pty.openpty()
    resize(parent, rows=20, columns=100)
    command = [sys.executable, "-m", "deepprof", "watch", address, "--interval", "3600"]
    environment = {name: text for name, text in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    run = subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=environment | {"TERM": "xterm"})
    os.close(child)
    try:
        read_screen(parent, lambda screen: screen.count(b"locked") == 2 and b"median" in screen)
        resize(parent, rows=20, columns=32)
        read_screen(parent, lambda screen: screen.count(b"locked") == 2 and b"median" not in screen)
        resize(parent, rows=20, columns=120)
        read_screen(parent, lambda screen: screen.count(b"locked") == 2 and b"median" in screen)
    finally:
        run.kill()
        run.wait()
        os.close(parent)


def resize(terminal, rows, columns):
    """Give a terminal a size, as its window does."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def read_screen(terminal, is_wanted):
    """Read until what is on the terminal since it was last drawn from its first place is what is wanted."""
    deadline, shown = time.monotonic() + DEADLINE_S, b""
    while not is_wanted(shown.rpartition(b"\x1b[H")[2]):
        assert time.monotonic() < deadline, shown
        shown += os.read(terminal, 65536)


def read_until(terminal, wanted):
    """What a terminal shows up to `wanted`."""
    deadline, shown = time.monotonic() + DEADLINE_S, b""
    while wanted not in shown:
        assert time.monotonic() < deadline, shown
        shown += os.read(terminal, 65536)
    return shown


def test_running_jobs_come_first_then_the_newest(capsys, daemon, address):
    jobs = [query_pb2.Job(job=f"j{at}", ranks=1, connected=int(at == 3), first_seen_unix_ns=at) for at in range(12)]
    daemon.answers["Watch"] = lambda request: iter([query_pb2.WatchResponse(jobs=jobs, now_unix_ns=NOW_NS)])
    assert main(["watch", address, "--once", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)["jobs"]
    assert [job["job"] for job in told] == ["j3", *(f"j{at}" for at in range(11, -1, -1) if at != 3)]
    assert [job["rank_states"] for job in told] == [[]] * 8 + [None] * 4
    assert len(daemon.asked["ListRanks"]) == 8


def test_interrupted_json_is_130(watched, address):
    command = [sys.executable, "-m", "deepprof", "watch", address, "--format", "json", "--interval", "0.1"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert run.stdout.readline()
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=DEADLINE_S)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 130
    assert err == b""
