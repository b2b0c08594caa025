"""docs/client.md is true: its Python runs against a daemon, and its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deepprof.commands import prepare_parser
from deepprof.live.client.credentials import VARIABLES
from deepprof.live.client.daemon import Daemon
from deepprof.simulation import simulate, write
from deepprof.v1 import query_pb2

TEXT = (Path(__file__).resolve().parents[4] / "docs" / "client.md").read_text()


@pytest.mark.parametrize("code", re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE))
def test_its_python_runs(daemon, address, monkeypatch, tmp_path, code):
    daemon.answers["ListJobs"] = query_pb2.ListJobsResponse(jobs=[query_pb2.Job(job="j", ranks=1)])
    daemon.answers["ListRanks"] = query_pb2.ListRanksResponse(ranks=[query_pb2.Rank(devices=[query_pb2.DeviceState()])])
    monkeypatch.setenv("DEEPPROF_DAEMON", address)
    monkeypatch.delenv("DEEPPROF_TOKEN_FILE", raising=False)
    monkeypatch.chdir(tmp_path)
    write(simulate("healthy", iterations=6), "demo.json.gz")
    exec(compile(code, "client.md", "exec"), {})  # noqa: S102 - our own document


def test_every_method_is_in_the_table():
    named = set(re.findall(r"`(\w+)\(", TEXT.split("gives a `Daemon`")[1].split("Send a trace")[0]))
    plumbing = {"close", "pages", "ask", "stream", "read_table", "explaining"}
    assert named == {name for name in vars(Daemon) if not name.startswith("_")} - plumbing


def test_its_commands_can_be_typed():
    for line in re.findall(r"^    deepprof (.*?)(?:#.*)?$", TEXT, re.MULTILINE):
        prepare_parser().parse_args(line.split())


def test_every_variable_is_named():
    assert set(VARIABLES.values()) < set(re.findall(r"DEEPPROF_\w+", TEXT))
