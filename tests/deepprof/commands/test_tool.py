"""`deepprof tool`: what may be asked together, and how a running job is followed: to its end, or until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

import deepprof
from deepprof.commands import main
from deepprof.commands.tool_live import _Following
from deepprof.live.client.daemon import JobRecords
from deepprof.live.client.errors import DaemonError
from deepprof.tools import Tool, ToolRun, find_tool
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


def test_a_selected_part_is_looked_at(recorded, capsys) -> None:
    assert main([*TOOL, str(recorded), "--grid", "10:50", "--format", "json"]) == 0
    part = json.loads(capsys.readouterr().out)
    assert part["report"]["calls"] == 40
    records = part["records"]
    assert records["read"] == records["kept"] + sum(records["dropped"].values())
    assert records["notes"][0].startswith("only a part is looked at: kernels 10:50; ")


def test_a_part_that_there_is_not_is_one_line(recorded, capsys) -> None:
    assert main([*TOOL, str(recorded), "--range", "nosuch"]) == 2
    assert "range 'nosuch': there is none of this name" in capsys.readouterr().err


def test_iterations_are_those_of_a_selected_part(recorded, capsys, monkeypatch) -> None:
    monkeypatch.setattr("deepprof.tools.find_tool", lambda _: LoopsAndIterations)
    assert main(["tool", "mine", str(recorded), "--iterations", "2:9", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["report"]["iterations"]) == 7


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
        (
            [*TOOL, "--daemon", "unix:/x", "--job", "j", "--grid", "1:2"],
            "--grid is for files; leave it out",
        ),
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


class Ended(Tool):
    """Be asked to end while a hook runs."""

    def on_kernels(self, _) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_request_to_end_is_no_failure_of_the_tool(recorded, monkeypatch) -> None:
    monkeypatch.setattr("deepprof.tools.find_tool", lambda _: Ended)
    with pytest.raises(SystemExit) as ended:
        main([*TOOL, str(recorded)])
    assert ended.value.code == 128 + signal.SIGTERM


class LoopsAndIterations(Tool):
    """Count loops, and keep the iterations."""

    def begin(self) -> None:
        self.frames: list[pl.DataFrame] = []

    def on_iterations(self, frame) -> None:
        self.frames.append(frame)

    def on_analysis(self, analysis) -> None:
        self.loops = len(analysis.loops)

    def report(self):
        return {"loops": self.loops, "iterations": pl.concat(self.frames)}


def test_iterations_of_a_job_that_has_ended_are_those_of_its_file(real, recorded, capsys, monkeypatch) -> None:
    monkeypatch.setattr("deepprof.commands.tool_live.SETTLE_S", PATIENCE_S)
    monkeypatch.setattr("deepprof.tools.find_tool", lambda _: LoopsAndIterations)
    with open_client(real) as client:
        client.send(deepprof.read(recorded), "settling")
    assert main([*TOOL, "--daemon", real.address, "--job", "settling", "--format", "json"]) == 0
    live = json.loads(capsys.readouterr().out)
    assert main([*TOOL, str(recorded), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == live["report"]
    assert len(live["report"]["iterations"]) >= 14


class Away:
    """Records of a daemon that answers once and is away from then on; `passing`: it might come back."""

    def __init__(self, trace: deepprof.Trace, *, passing: bool = True, absent: bool = False) -> None:
        self.trace, self.passing, self.absent = trace, passing, absent
        self.ended, self.missed, self.dropped = False, 0, Counter()
        self.ranks: dict[int, object] = {}

    def read(self) -> Iterator[deepprof.Trace]:
        if self.ranks:
            words = "is about to stop", "try again when it is back"
            raise DaemonError("unix:/x", *words, passing=self.passing, absent=self.absent)
        self.ranks[0] = object()
        yield self.trace

    def rest(self) -> list[deepprof.Trace]:
        return []

    def notes(self) -> list[str]:
        return []


def test_when_the_daemon_stays_away_the_report_is_of_what_was_seen(recorded, monkeypatch) -> None:
    monkeypatch.setattr("deepprof.commands.tool_live.PATIENCE_S", 0)
    monkeypatch.setattr("deepprof.commands.tool_live.INTERVAL_S", 0)
    trace, tool = deepprof.read(recorded), find_tool("kernel-frequency")()
    following = _Following(Away(trace), ToolRun(tool))
    following.follow(None)
    described = following.describe()
    assert described.kept == trace.accounting.kept
    assert described.notes == [
        "the job was not followed to its end: daemon at unix:/x: is about to stop; try again when it is back"
    ]
    assert tool.report()["calls"] == trace.device_events.filter(activity="kernel").height


FORGOTTEN = "the daemon no longer knows the job: the report is of what was seen until then"


def test_of_a_job_that_the_daemon_forgets_the_report_is_of_what_was_seen(recorded) -> None:
    trace, tool = deepprof.read(recorded), find_tool("kernel-frequency")()
    following = _Following(Away(trace, passing=False, absent=True), ToolRun(tool))
    following.follow(None)
    described = following.describe()
    assert (described.kept, described.notes) == (trace.accounting.kept, [FORGOTTEN])
    assert tool.report()["calls"] == trace.device_events.filter(activity="kernel").height


@pytest.mark.parametrize("tool", ["kernel-frequency", "seen"])
def test_a_job_that_is_forgotten_while_a_tool_follows_it_is_reported(real, recorded, capsys, monkeypatch, tool) -> None:
    """The daemon forgets the job once the first records came; nothing that the tool would ask later is known."""

    class Seen(Tool):
        """Count kernels, iterations and analyses."""

        def begin(self) -> None:
            self.counts = Counter()

        def on_kernels(self, frame) -> None:
            self.counts["kernels"] += frame.height

        def on_iterations(self, frame) -> None:
            self.counts["iterations"] += frame.height

        def on_analysis(self, _) -> None:
            self.counts["analyses"] += 1

        def report(self):
            return {name: self.counts[name] for name in ("kernels", "iterations", "analyses")}

    if tool == "seen":
        monkeypatch.setattr("deepprof.tools.find_tool", lambda _: Seen)
    trace = deepprof.read(recorded)
    with open_client(real) as client:
        client.send(trace, "forgotten")
        wait_for(lambda: all(rank.settled for rank in client.ranks("forgotten")), "the job is analysed")
        read = JobRecords.read

        def read_and_forget(records: JobRecords) -> Iterator[deepprof.Trace]:
            yield from read(records)
            client.forget("forgotten")
            records.ended = False

        monkeypatch.setattr(JobRecords, "read", read_and_forget)
        assert main(["tool", tool, "--daemon", real.address, "--job", "forgotten", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["records"]["kept"] == trace.accounting.kept
    assert found["records"]["notes"][0] == FORGOTTEN
    kernels = trace.device_events.filter(activity="kernel").height
    if tool == "seen":
        assert found["report"] == {"kernels": kernels, "iterations": 0, "analyses": 0}
        assert found["records"]["notes"][1].startswith("the tool got no iterations and no analysis: daemon at ")
    else:
        assert found["report"]["calls"] == kernels
        assert len(found["records"]["notes"]) == 1


def test_an_error_that_does_not_pass_ends_the_command(recorded) -> None:
    away = Away(deepprof.read(recorded), passing=False)
    with pytest.raises(DaemonError):
        _Following(away, ToolRun(find_tool("kernel-frequency")())).follow(None)


def test_for_a_time_the_report_is_of_what_was_seen(real, recorded, capsys) -> None:
    with sending(real, recorded, "timed"):
        assert main([*TOOL, "--daemon", real.address, "--job", "timed", "--for", "200ms", "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
    assert found["records"]["missed"] == 0
    assert found["report"]["calls"] < deepprof.read(recorded).device_events.height


class Interrupted(Tool):
    """Press Ctrl-C twice in a hook."""

    def on_kernels(self, _) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_a_second_ctrl_c_ends_the_command(recorded) -> None:
    following = _Following(Away(deepprof.read(recorded)), ToolRun(Interrupted()))
    with pytest.raises(KeyboardInterrupt):
        following.follow(None)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


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
    """The tool itself states that records have come: Ctrl-C is pressed after that."""
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
