"""docs/service.md is true: its commands print what it shows, and its tables name what there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deepprof.commands import prepare_parser
from deepprof.live.service.config import describe_config
from deepprof.live.service.views import HISTORY
from tests.deepprof.live.service.daemons import Daemon, running, wait_for
from tests.deepprof.live.service.sending import check_accounts, open_client, wait_settled
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "service.md").read_text()
# What differs from machine to machine and from run to run.
VARYING = (
    (r"unix:\S*/(?:deepprof\.sock|d/s)", "ADDRESS"),
    (r"in [\d.,]+ s, [\d,]+ records/s", "in TIME"),
    (r"(?<=66\.7 %) +[\d.]+ (?:ms|s|min) +(\d) +\S+", r" TIME \1 HOST"),
    (r"(?m)^( +rank .* heard .*)$", lambda found: " ".join(found[1].split())),
)


def blocks() -> list[tuple[str, str]]:
    """Return the page's commands, with what it states they print."""
    found = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [(command, shown) for command, shown in found]


def steady(text: str) -> str:
    for pattern, instead in VARYING:
        text = re.sub(pattern, instead, text)
    return text.rstrip()


def run(command: str, daemon: Daemon) -> str:
    """Return what a command prints, on stdout or stderr."""
    tools = {"deepprof": f"{sys.executable} -m deepprof", "http://127.0.0.1:7601": f"http://{daemon.metrics}"}
    for tool, real in tools.items():
        command = command.replace(f"{tool} ", f"{real} ", 1) if tool == "deepprof" else command.replace(tool, real)
    environment = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", "DEEPPROF_DAEMON": daemon.address}
    told = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=daemon.folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return told.stdout


def test_the_five_minutes_print_what_the_page_shows() -> None:
    if not any(os.access(Path(folder) / "curl", os.X_OK) for folder in os.environ["PATH"].split(os.pathsep)):
        pytest.skip("curl is not installed")
    with running(settings=["examine.every=1s"]) as daemon, open_client(daemon) as client:
        for command, shown in blocks():
            assert steady(run(command, daemon)) == steady(shown), command
            if " send " in command:
                wait_settled(client, "demo")
                wait_for(lambda: not client.jobs()[0].connected, "its stream is gone")
                wait_for(lambda: client.jobs()[0].active_findings, "the rules have looked at the job")
        check_accounts(client)


def test_its_commands_can_be_typed() -> None:
    commands = re.findall(r"^    deepprof (.*)$", PAGE, re.MULTILINE)
    assert commands
    for line in commands:
        prepare_parser().parse_args(line.split())


def test_every_key_it_names_is_one() -> None:
    named = set(re.findall(r"`((?:journal|history|captures|examine)\.\w+)`", PAGE))
    section, known = "", set()
    for line in describe_config().splitlines():
        section = line.strip("[]") if line.startswith("[") else section
        known |= {f"{section}.{key}" for key in re.findall(r"^#? ?(\w+) = ", line)}
    assert named
    assert named - {"history.db"} <= known


def test_every_column_of_an_iteration_is_named() -> None:
    assert set(HISTORY.names()) <= set(re.findall(r"`(\w+)`", PAGE))


def test_every_reason_to_drop_a_record_is_named() -> None:
    sources = [*(ROOT / "deepprof/live/service").glob("*.py"), *(ROOT / "deepprof/live/service/session").glob("*.py")]
    text = "".join(source.read_text() for source in sources)
    given = set(re.findall(r"drop\([^)\"]*\"([\w-]+)\"", text)) | {
        reason for group in re.findall(r"drop\(\{(.*?)\}\)", text) for reason in re.findall(r'"([\w-]+)":', group)
    }
    assert {"late", "gap", "time", "device", "journal-failed"} <= given
    assert given | {"mining-failed"} <= set(re.findall(r"dropped `([\w-]+)`", PAGE))
