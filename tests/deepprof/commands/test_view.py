"""`deepprof view` as a process: one line with the address, the page behind it, and an end at Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from deepprof.commands import main
from tests.deepprof.commands.test_missing_libraries import run_without
from tests.deepprof.web.asking import ask
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("view") / "demo.json.gz"
    assert main(["simulate", "copy-bound", "-o", str(path)]) == 0
    return path


@contextmanager
def viewing(*args: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "deepprof", "view", *args]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_it_prints_the_address_and_serves_until_it_is_told_to_end(trace: Path, number: int, code: int) -> None:
    with viewing(str(trace)) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = urlsplit(line)
        assert (url.scheme, url.hostname, line.count("\n")) == ("http", "127.0.0.1", 1)
        assert url.port is not None
        address = url.hostname or "", url.port
        assert ask(address, "/")[0] == 403
        cookie = ask(address, f"/?{url.query.strip()}")[2]["Set-Cookie"].partition(";")[0]
        status, session, _ = ask(address, "/api/documents/session", Cookie=cookie)
        assert status == 200
        assert '"server":true' in session
        assert ask(address, "/api/region/0/3", Cookie=cookie)[0] == 200
        process.send_signal(number)
        out, error = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out, error) == (code, "", "")


def test_without_its_server_it_says_what_to_install(trace: Path) -> None:
    for module in ("starlette", "uvicorn"):
        done = run_without([module], ["view", str(trace)])
        needed = f'deepprof: the page\'s server needs {module}; pip install "deepprof[view]"\n'
        assert (done.returncode, done.stdout, done.stderr) == (2, "", needed)


@pytest.mark.parametrize("port", ["-1", "65536", "x", "\u0661", "9" * 5000])
def test_a_port_that_is_none_is_one_line(trace: Path, port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(trace), f"--port={port}"]) == 2
    assert "is no port" in capsys.readouterr().err
