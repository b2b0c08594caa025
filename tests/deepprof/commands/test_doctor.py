"""`deepprof doctor` on this machine and on real processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from deepprof.commands import main
from tests.deepprof.live.agent.fake_agent import answer, answering, process
from tests.patience import PATIENCE_S


@pytest.fixture
def doctor(capsys, monkeypatch, folder):
    """Runs the doctor next to an agent that answers; gives the exit code and the parsed report."""
    monkeypatch.delenv("DEEPPROF_SOCKET", raising=False)

    def run(*words, **said):
        with answering(socket_of(folder), lambda: answer(**said)):
            code = main(["doctor", "--agent", str(socket_of(folder)), "--format", "json", *map(str, words)])
        report = json.loads(capsys.readouterr().out)
        return code, report, {each["what"]: each for each in report["findings"]}

    return run


def socket_of(folder):
    return Path(folder) / "a.sock"


@pytest.fixture
def living():
    """Starts programs that wait, and ends them."""
    started = []

    def start(*command, **variables):
        environ = {"PATH": os.environ["PATH"], **variables}
        child = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(child)
        child.stdout.readline()  # it has been executed
        return child.pid

    yield start
    for child in started:
        child.communicate()


def test_this_machine(doctor):
    code, report, found = doctor()
    assert code == (0 if report["healthy"] else 1)
    assert found["agent"]["state"] == "ok"
    assert found["daemon"]["why"] == "unix:/d takes what the agent sends"
    assert report["pid"] is None


def test_the_text(capsys, folder):
    code = main(["doctor", "--agent", str(socket_of(folder)), "--to", f"unix:{folder}/none"])
    said = " ".join(capsys.readouterr().out.split())
    assert code == 1
    assert said.startswith(("one thing stands in the way of collecting on this machine: ", "2 things stand in the way"))
    assert f"nobody answers at unix:{folder}/none" in said
    assert "deepprof run starts one" in said


def test_a_daemon_that_listens(capsys, folder):
    with socket.create_server(("127.0.0.1", 0)) as endpoint:
        main(
            [
                "doctor",
                "--agent",
                f"{folder}/a.sock",
                "--to",
                f"127.0.0.1:{endpoint.getsockname()[1]}",
                "--format",
                "json",
            ]
        )
    found = {each["what"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert found["daemon"] == {"state": "ok", "what": "daemon", "why": "it answers", "advice": ""}


CODE = "import os, sys; os.write(1, b'up\\n'); sys.stdin.read()"


def test_a_process_without_us(doctor, living):
    pid = living(sys.executable, "-c", CODE)
    code, report, found = doctor(pid)
    assert (code, report["pid"]) == (1, pid)
    assert found["started"]["state"] == "wrong"
    assert found["process"]["state"] == "ok"


def test_a_process_that_was_started_with_us(doctor, living, folder):
    library = next(line.split()[5] for line in Path("/proc/self/maps").read_text().splitlines() if "libc.so" in line)
    told = {"DEEPPROF_SOCKET": str(socket_of(folder)), "DEEPPROF_INJECT": library, "DEEPPROF_JOB": "demo"}
    pid = living(sys.executable, "-c", CODE, PYTHONPATH="/x/hook", **told)
    code, _, found = doctor(pid, processes=[process(pid=pid, ended=False)])
    assert (code, found["library"]["why"]) == (0, "loaded into the process")
    assert found["records"]["state"] == "ok"


def test_python_that_ignores_us(doctor, living, folder):
    told = {"DEEPPROF_SOCKET": str(socket_of(folder)), "DEEPPROF_INJECT": "/l.so"}
    _, _, found = doctor(living(sys.executable, "-I", "-c", CODE, PYTHONPATH="/x/hook", **told))
    assert found["hook"]["why"].startswith("-I makes Python ignore")
    assert found["library file"]["state"] == "wrong"


def test_a_process_that_ended(doctor):
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert f"{child.pid} (true) has ended" in doctor(child.pid)[1]["verdict"]
    child.wait()
    assert f"there is no process {child.pid} here" in doctor(child.pid)[1]["verdict"]


@pytest.mark.parametrize("words", [["x"], ["0"], ["-1"], ["1", "2"], ["--agent", ""], ["--to", "nonsense"]])
def test_arguments_that_make_no_sense(words, capsys, folder):
    agent = [] if "--agent" in words else ["--agent", f"{folder}/none"]
    assert main(["doctor", *agent, *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_terminal_without_our_signs(folder):
    done = subprocess.run(
        [sys.executable, "-m", "deepprof", "doctor", "--agent", f"{folder}/a.sock"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.stdout.isascii()
    assert b"- agent - none at" in done.stdout
    assert done.stderr == b""
