"""The unit as systemd itself judges it, and the settings that go with it as the daemon reads them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from deepprof.live.service.config import load_config
from deepprof.live.service.config.default_paths import find_store

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "systemd"
UNIT = FOLDER / "deepprof.service"
PROGRAM = "/opt/deepprof/bin/deepprof"
MOST_EXPOSED = 2.0
MIB = 1 << 20


def tool(name: str, *arguments: str | Path) -> str:
    """Return what a tool of systemd states on both channels; it must be content."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed (apt-get install systemd)")
    done = subprocess.run([name, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def install(folder: Path, *, network: bool) -> Path:
    """Copy the unit, with a program that is there, and its drop-in if asked for."""
    program = folder / "deepprof"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (folder / UNIT.name).write_text(UNIT.read_text().replace(PROGRAM, str(program)))
    if network:
        (folder / f"{UNIT.name}.d").mkdir()
        text = (FOLDER / "network.conf").read_text().replace(PROGRAM, str(program))
        (folder / f"{UNIT.name}.d" / "network.conf").write_text(text)
    return folder / UNIT.name


@pytest.mark.parametrize("network", [False, True])
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path, network: bool) -> None:
    assert tool("systemd-analyze", "verify", "--man=no", install(tmp_path, network=network)) == ""


@pytest.mark.parametrize("network", [False, True])
def test_the_unit_is_hardly_exposed(tmp_path: Path, network: bool) -> None:
    unit = install(tmp_path, network=network)
    told = tool("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", told)
    assert found is not None, told
    assert float(found[1]) <= MOST_EXPOSED


def test_the_user_is_the_one_of_the_unit() -> None:
    told = tool("systemd-sysusers", "--dry-run", FOLDER / "deepprof.sysusers")
    assert "deepprof" in told or told == ""  # it states nothing where the user is there already
    assert section("Service")["user"] == section("Service")["group"] == "deepprof"


def test_the_daemon_takes_the_settings_of_the_unit() -> None:
    config = load_config(FOLDER / "deepprof.toml", {}, {})
    assert config.listen.addresses == ("unix:/run/deepprof/deepprof.sock",)
    assert (config.listen.socket_mode, config.listen.socket_group) == ("0660", "")  # the group is the unit's
    assert find_store(config, {"STATE_DIRECTORY": "/var/lib/deepprof"}) == Path("/var/lib/deepprof")
    assert section("Service")["runtimedirectory"] == section("Service")["statedirectory"] == "deepprof"


def test_memory_and_files_are_enough_for_the_daemons_own_limits() -> None:
    config, unit = load_config(None, {}, {}), section("Service")
    own = config.limits.queue_nbytes + config.limits.waiting_nbytes + config.examine.memory_nbytes
    assert own < nbytes(unit["memoryhigh"]) < nbytes(unit["memorymax"])
    assert config.limits.streams + config.listen.connections < int(unit["limitnofile"])


# PR_SET_MDWE, which kernels have since 6.3, forbids what systemd's filter forbids; older ones run it unconfined.
CONFINED = """
import ctypes
ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)
import deepprof
from deepprof.live.service import daemon
from deepprof.simulation import simulate
import msgspec, sys
open(sys.argv[1], "wb").write(msgspec.json.encode(simulate("healthy", iterations=5).document))
print(len(deepprof.analyze(deepprof.read(sys.argv[1])).loops))
"""


def test_the_daemons_code_runs_without_memory_that_is_written_and_executed(tmp_path: Path) -> None:
    lines = [line.partition("=")[2] for line in UNIT.read_text().splitlines() if line.startswith("Environment=")]
    environment = os.environ | dict(line.split("=", 1) for line in lines)
    command = [sys.executable, "-c", CONFINED, str(tmp_path / "a.json")]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


def section(name: str) -> dict[str, str]:
    """Return a section of the unit; of keys that come twice, the last."""
    unit = RawConfigParser(strict=False)
    unit.read(UNIT)
    return dict(unit[name])


def nbytes(text: str) -> int:
    assert text.endswith("G")
    return int(text[:-1]) * 1024 * MIB
