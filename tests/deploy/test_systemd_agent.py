"""The agent's unit as systemd itself judges it, and its command line as the agent reads it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from deepprof.collectors.live.identity import find_socket
from deepprof.commands import prepare_parser
from deepprof.live.agent.node_agent import default_spool

from .test_systemd import FOLDER, MOST_EXPOSED, PROGRAM, tool

UNIT = FOLDER / "deepprof-agent.service"


def install(folder: Path) -> Path:
    """Copy the unit, with a program that is there."""
    program = folder / "deepprof"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (folder / UNIT.name).write_text(UNIT.read_text().replace(PROGRAM, str(program)))
    return folder / UNIT.name


def settings() -> dict[str, str]:
    """The unit's settings; of keys that come twice, the last."""
    lines = UNIT.read_text().replace("\\\n", " ").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    assert tool("systemd-analyze", "verify", "--man=no", install(tmp_path)) == ""


def test_the_unit_is_hardly_exposed(tmp_path: Path) -> None:
    told = tool("systemd-analyze", "security", "--offline=true", "--no-pager", install(tmp_path))
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", told)
    assert found is not None, told
    assert float(found[1]) <= MOST_EXPOSED


def test_the_agent_takes_the_command_line_of_the_unit() -> None:
    program, *words = shlex.split(settings()["ExecStart"])
    args = prepare_parser().parse_args(words)
    assert program == PROGRAM
    assert (args.for_all, args.until_idle) == (True, False)
    assert args.to == "unix:/run/deepprof/deepprof.sock"


def test_jobs_look_where_the_unit_listens(tmp_path: Path) -> None:
    (tmp_path / "deepprof").mkdir()
    (tmp_path / "deepprof/agent.sock").touch()
    assert find_socket({"HOME": "/home/x"}, tmp_path).relative_to(tmp_path) == Path("deepprof/agent.sock")
    assert "--socket /run/deepprof/agent.sock" in settings()["ExecStart"]
    assert settings()["RuntimeDirectory"] == "deepprof"


def test_what_waits_is_where_the_unit_lets_the_agent_write() -> None:
    folder = f"/var/lib/{settings()['StateDirectory']}"
    assert f"--spool {folder}" in settings()["ExecStart"]
    assert not default_spool({"HOME": "/nonexistent"}).is_relative_to(folder)  # it must be stated


def test_both_units_leave_the_folder_of_their_sockets_to_each_other() -> None:
    for name in ("deepprof.service", UNIT.name):
        assert "RuntimeDirectoryPreserve=yes\n" in (FOLDER / name).read_text()


def test_the_agent_may_see_whose_processes_live() -> None:
    assert not {"ProtectProc", "PrivateUsers", "PrivatePIDs"} & settings().keys()
