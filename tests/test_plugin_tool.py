"""The page on tools is true: its tool, installed apart, reports the same of a file, a store, two ranks and a job."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import deepprof
from deepprof import simulation
from deepprof.commands import main
from deepprof.tools.hooks import RECORD_HOOKS
from deepprof.tools.registry import BUILTIN_TOOLS, installed_tools
from tests.deepprof.live.service.daemons import running
from tests.deepprof.live.service.sending import open_client
from tests.once import make_once
from tests.plugin_packages import deepprof_with, install_package

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "tools.md").read_text()
FILES = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
FAULTY = (
    FILES["pyproject.toml"]
    .replace("deepprof-copies", "deepprof-faulty")
    .replace(
        'copied-bytes = "deepprof_copies:CopiedBytes"',
        'absent = "faulty:Absent"\nbad = "faulty:Bad"\nending = "no_such_module:Tool"\nplain = "faulty:plain"',
    )
    .replace("deepprof_copies", "faulty")
)
MODULES = (name.partition(":")[0].rpartition(".")[2] for name in BUILTIN_TOOLS)
NAMES = ", ".join(sorted(["bad", *(module.replace("_", "-") for module in MODULES)]))
FAULTY_MODULE = """
from deepprof.tools import Tool


class Bad(Tool):
    how: str = "raise"

    def on_kernels(self, frame):
        if self.how == "raise":
            raise ValueError("no such\\nthing")
        if self.how == "exit":
            raise SystemExit(0)

    def report(self):
        return {"frame": object()} if self.how == "object" else [1]


def plain():
    pass
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory into which the package of the page is installed, as its own distribution."""
    assert set(FILES) == {"pyproject.toml", "deepprof_copies.py"}
    return make_once(tmp_path_factory, "copied-bytes", functools.partial(install_package, FILES)) / "target"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = {"pyproject.toml": FAULTY, "faulty.py": FAULTY_MODULE}
    return make_once(tmp_path_factory, "faulty-tools", functools.partial(install_package, files)) / "target"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the traces of two ranks that copy different amounts."""
    folder = tmp_path_factory.mktemp("job") / "ranks"
    simulation.write_ranks(simulation.simulate_ranks("straggler", ranks=2, iterations=6), folder)
    return folder


def report_of(installed: Path, *words: str | Path) -> tuple[dict, dict]:
    done = deepprof_with(installed, "tool", "copied-bytes", "--format", "json", *words, "--", "--at-least", "1024")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["schema"], found["tool"], found["options"]) == ("deepprof.tool/1", "copied-bytes", {"at_least": 1024})
    return found["report"], found["records"]


def test_a_tool_reports_the_same_of_files_a_store_and_a_running_job(installed: Path, job: Path, tmp_path: Path) -> None:
    traces = deepprof.read_job(job)
    wanted: dict[str, int] = {}
    for trace in traces:
        for kind, nbytes in trace.device_events.filter(activity="memcpy").select("copy_kind", "nbytes").rows():
            if nbytes >= 1024:
                name = f"rank {trace.rank} {kind} nbytes"
                wanted[name] = wanted.get(name, 0) + nbytes
    assert {name[:6] for name in wanted} == {"rank 0", "rank 1"}

    report, records = report_of(installed, job)
    assert report == wanted
    assert (records["ranks"], records["missed"]) == ([0, 1], 0)
    assert records["read"] == sum(trace.accounting.read for trace in traces)
    assert main(["convert", str(job), "-o", str(tmp_path / "store")]) == 0
    assert report_of(installed, tmp_path / "store")[0] == wanted
    one = report_of(installed, sorted(job.iterdir())[1])[0]
    assert one == {name: nbytes for name, nbytes in wanted.items() if name.startswith("rank 1")}
    with running() as daemon:
        with open_client(daemon) as client:
            client.send(traces, "j")
        live, live_records = report_of(installed, "--daemon", daemon.address, "--job", "j")
        assert live == wanted
        assert live_records | {"notes": []} == records | {"notes": []}


def test_a_tool_follows_a_job_while_it_runs(installed: Path, job: Path) -> None:
    whole = report_of(installed, job)[0]
    with running() as daemon:
        command = [sys.executable, "-m", "deepprof", "send", str(job), "--to", daemon.address, "--job", "j"]
        sending = subprocess.Popen([*command, "--speed", "0.2"], stderr=subprocess.PIPE, text=True)
        try:
            with open_client(daemon) as client:
                next(state for state in client.watch(interval_ms=100) if state.jobs and state.jobs[0].ranks == 2)
            live, records = report_of(installed, "--daemon", daemon.address, "--job", "j")
        finally:
            assert sending.wait() == 0, sending.communicate()
            sending.communicate()
    assert live == whole
    assert records["missed"] == 0


def test_installed_tools_are_listed(installed: Path) -> None:
    done = deepprof_with(installed, "tool", "list")
    assert done.returncode == 0, done.stderr
    assert "copied-bytes: Sum up what copies of at least so many bytes" in done.stdout
    assert "kernel-frequency: " in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bad"], "deepprof: tool bad: on_kernels raised ValueError: no such thing"),
        (["bad", "--how", "exit"], "deepprof: tool bad: on_kernels raised SystemExit: 0"),
        (["bad", "--how", "object"], "deepprof: tool bad: 'frame' of its report is object, not a table, a number or"),
        (["bad", "--how", "list"], "deepprof: tool bad: report returned list, not values by name"),
        (
            ["ending"],
            f"deepprof: no tool 'ending'; there are: {NAMES}; plug-in absent of deepprof-faulty raised "
            "AttributeError: module 'faulty' has no attribute 'Absent'; uninstall or report it to its author; plug-in "
            "ending of deepprof-faulty raised ModuleNotFoundError: No module named 'no_such_module'; uninstall or "
            "report it to its author; plug-in plain of deepprof-faulty raised TypeError: this is no tool",
        ),
    ],
)
def test_a_broken_tool_is_one_line(faulty: Path, job: Path, words: list[str], said: str) -> None:
    done = deepprof_with(faulty, "tool", words[0], job, "--", *words[1:])
    assert (done.returncode, done.stdout) == (2, "")
    *warned, last = done.stderr.splitlines()
    assert last.startswith(said), last
    assert "Traceback" not in done.stderr
    assert [line[:26] for line in warned] == ["deepprof: warning: plug-in"] * (3 if words[0] == "bad" else 0)


def test_a_broken_tool_spoils_no_other(faulty: Path, job: Path) -> None:
    done = deepprof_with(faulty, "tool", "kernel-frequency", job)
    assert done.returncode == 0
    assert done.stdout.startswith("kernel-frequency: ")
    assert done.stderr.count("deepprof: warning: plug-in") == done.stderr.count("\n") == 3


def test_the_page_names_every_tool_and_every_hook() -> None:
    assert set(re.findall(r"^\| `([a-z-]+)` \| ", PAGE, re.MULTILINE)) == set(installed_tools())
    assert len(BUILTIN_TOOLS) == len(installed_tools())
    hooks = set(re.findall(r"^\| `(on_\w+)` \| `(on_\w+)` \| `(\w+)`", PAGE, re.MULTILINE))
    assert hooks >= {(hook.batches, hook.each, hook.table) for hook in RECORD_HOOKS}
    assert len(hooks) == len(RECORD_HOOKS) + 1


def test_the_example_is_short() -> None:
    assert sum(bool(line.strip()) for line in FILES["deepprof_copies.py"].splitlines()) <= 15
