"""Which processes a command has left behind, among real ones and made-up ones."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from deepprof.live.agent.remaining import find_remaining

SOCKET = Path("/run/x/agent.sock")
OURS = {"DEEPPROF_JOB": "demo", "DEEPPROF_SOCKET": str(SOCKET), "DEEPPROF_RUN": "8-9"}


@pytest.fixture
def start():
    """Starts programs that wait, in our group unless told otherwise, and ends them."""
    started = []

    def start(variables, **options):
        environ = {"PATH": os.environ["PATH"], **variables}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        child = subprocess.Popen(["sh", "-c", "echo up; read x"], env=environ, **pipes, **options)
        started.append(child)
        child.stdout.readline()  # it has been executed
        return child.pid

    yield start
    for child in started:
        child.communicate()


def test_those_of_the_command_are_found(start):
    pid = start(OURS)
    start(OURS, start_new_session=True)
    start({**OURS, "DEEPPROF_JOB": "demo2"})
    start({**OURS, "DEEPPROF_SOCKET": "/run/y/agent.sock"})
    start({**OURS, "DEEPPROF_RUN": "8-99"})  # of another run of the same job, in the same script
    start({})
    assert find_remaining("demo", SOCKET, "8-9") == [pid]


def test_one_that_is_over_is_not(tmp_path):
    group = os.getpgrp()
    for pid, stat in ((7, f"7 (a) b) S 1 {group} 1"), (8, f"8 (x) Z 1 {group} 1"), (9, "9 (x)"), (10, "")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat)
        (tmp_path / str(pid) / "environ").write_text("".join(f"{name}={text}\0" for name, text in OURS.items()))
    (tmp_path / "11").mkdir()
    (tmp_path / "self").mkdir()
    assert find_remaining("demo", SOCKET, "8-9", tmp_path) == [7]
