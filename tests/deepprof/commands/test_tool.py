"""`deepprof tool`: what may be asked together, and how a running job is followed: to its end, or until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import deepprof
from deepprof.commands import main
from tests.deepprof.live.service.daemons import Daemon, running, wait_for
from tests.deepprof.live.service.sending import open_client
from tests.patience import PATIENCE_S

TOOL = ["tool", "kernel-frequency"]


@pytest.fixture(scope="module")
def real() -> Iterator[Daemon]:
    with running() as daemon:
        yield daemon


@contextmanager
def sending(daemon: Daemon, path: Path, job: str) -> Iterator[None]:
    """Send a recording so slowly that it does not end."""
    command = [sys.executable, "-m", "deepprof", "send", str(path), "--to", daemon.address, "--job", job]
    process = subprocess.Popen([*command, "--speed", "0.01"], stderr=subprocess.PIPE)
    try:
        with open_client(daemon) as client:
            next(state for state in client.watch(interval_ms=100) if any(each.job == job for each in state.jobs))
        yield
    finally:
        process.kill()
        process.communicate()


def test_options_may_come_before_the_path(recorded, capsys) -> None:
    assert main([*TOOL, "--format", "json", str(recorded), "--jobs", "1", "--", "--rows", "1"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert main([*TOOL, str(recorded), "--format", "json", "--", "--rows=1"]) == 0
    assert json.loads(capsys.readouterr().out) == before
    assert len(before["report"]["kernels"]) == 1
    assert before["options"] == {"rows": 1, "share": 0.9}


def test_a_part_of_the_time_is_looked_at(recorded, capsys) -> None:
    assert main([*TOOL, str(recorded), "--to", "50ms", "--format", "json"]) == 0
    part = json.loads(capsys.readouterr().out)
    whole = deepprof.read(recorded).device_events.filter(activity="kernel").height
    assert 0 < part["report"]["calls"] < whole
    assert part["records"]["dropped"]["out-of-range"] > 0


def test_the_report_goes_to_a_file(recorded, tmp_path, capsys) -> None:
    assert main([*TOOL, str(recorded), "-o", str(tmp_path / "out.txt")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "out.txt").read_text().startswith("kernel-frequency: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*TOOL], "no trace is named; name files (PATH), or a running job (--daemon ADDRESS --job NAME)"),
        ([*TOOL, "x", "--rows", "3"], "unrecognized arguments: --rows 3 (options of the tool itself come after --)"),
        ([*TOOL, "x", "--job", "j"], "--job and --for are for running jobs; add --daemon ADDRESS"),
        ([*TOOL, "x", "--for", "3s"], "--job and --for are for running jobs; add --daemon ADDRESS"),
        ([*TOOL, "--daemon"], "with --daemon name a job and no file: deepprof tool NAME --daemon ADDRESS --job JOB"),
        ([*TOOL, "x", "--job", "j", "--daemon", "unix:/x"], "with --daemon name a job and no file"),
        ([*TOOL, "--daemon", "unix:/x", "--job", "j", "--from", "1s"], "--from, --to and --columns are for files"),
        ([*TOOL, "--daemon", "unix:/nowhere", "--job", "j"], "there is no such socket"),
        (["tool", "nosuch", "x"], "no tool 'nosuch'; there are: "),
        (["tool", "list", "x"], "deepprof tool list takes no path and no options of a tool"),
        (["tool"], "the following arguments are required: NAME, PATH; see deepprof tool --help"),
    ],
)
def test_what_cannot_be_done_is_one_line(words, said, capsys) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_the_list_as_json_has_options(capsys) -> None:
    assert main(["tool", "list", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "deepprof.tools/1"
    (options,) = [tool["options"] for tool in found["tools"] if tool["name"] == "kernel-frequency"]
    assert [option["option"] for option in options] == ["--rows", "--share"]


def test_a_job_that_the_daemon_does_not_know_is_one_line(real, capsys) -> None:
    assert main([*TOOL, "--daemon", real.address, "--job", "nosuch"]) == 2
    assert "no job 'nosuch'" in capsys.readouterr().err


def test_a_job_that_has_ended_reports_what_its_file_does(real, recorded, capsys) -> None:
    with open_client(real) as client:
        client.send(deepprof.read(recorded), "ended")
    assert main([*TOOL, "--daemon", real.address, "--job", "ended", "--format", "json"]) == 0
    live = json.loads(capsys.readouterr().out)
    assert main([*TOOL, str(recorded), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == live


def test_for_a_time_the_report_is_of_what_was_seen(real, recorded, capsys) -> None:
    with sending(real, recorded, "timed"):
        assert main([*TOOL, "--daemon", real.address, "--job", "timed", "--for", "200ms", "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
    assert found["records"]["missed"] == 0
    assert found["report"]["calls"] < deepprof.read(recorded).device_events.height


TOUCHING = """
from pathlib import Path
from deepprof.tools import Tool

class Touching(Tool):
    path: str

    def on_kernels(self, frame):
        Path(self.path).touch()

    def report(self):
        return {"touched": 1}
"""


def test_ctrl_c_ends_following_with_a_report(real, recorded, tmp_path) -> None:
    """The tool itself says that records have come: Ctrl-C is pressed after that."""
    home = tmp_path / "touching-1.dist-info"
    home.mkdir()
    (tmp_path / "touching.py").write_text(TOUCHING)
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: touching\nVersion: 1\n")
    (home / "entry_points.txt").write_text("[deepprof.tools]\ntouching = touching:Touching\n")
    touched = tmp_path / "touched"
    command = [sys.executable, "-m", "deepprof", "tool", "touching", "--daemon", real.address, "--job", "stopped"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    with sending(real, recorded, "stopped"):
        following = subprocess.Popen(
            [*command, "--format", "json", "--", "--path", str(touched)],
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environ},
        )
        wait_for(lambda: touched.exists() or following.poll() is not None, "the tool has got kernels")
        following.send_signal(signal.SIGINT)
        out, err = following.communicate(timeout=PATIENCE_S)
    assert following.returncode == 0, err
    found = json.loads(out)
    assert found["report"] == {"touched": 1}
    assert 0 < found["records"]["kept"] < deepprof.read(recorded).accounting.kept
