"""A daemon as its own process, for tests: started, asked, stopped, killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.deploy.prometheus_server import wait_for
from tests.patience import PATIENCE_S

__all__ = ["Daemon", "launch", "running", "wait_for"]

DEADLINE_S = PATIENCE_S


@dataclass
class Daemon:
    """A running daemon: its process, where it listens, and what it has logged."""

    process: subprocess.Popen[str]
    folder: Path
    log: list[dict[str, Any]] = field(default_factory=list)
    reader: threading.Thread | None = None

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def address(self) -> str:
        return f"unix:{self.folder}/d/s"

    def event(self, name: str) -> dict[str, Any] | None:
        """Return the first event of this name in the log."""
        return next((line for line in list(self.log) if line.get("event") == name), None)

    @property
    def metrics(self) -> str:
        """Return HOST:PORT of the exporter."""
        return str(wait_for(lambda: self.event("listening"), "the daemon says where it listens")["metrics"])

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of a page."""
        try:
            with urllib.request.urlopen(f"http://{self.metrics}{path}", timeout=DEADLINE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait_ready(self) -> Daemon:
        """Wait until it takes records."""

        def ready() -> bool:
            assert self.process.poll() is None, f"the daemon ended with {self.process.returncode}: {self.log[-5:]}"
            return self.event("listening") is not None and self.get("/readyz")[0] == 200

        wait_for(ready, "the daemon is ready")
        return self

    def kill(self) -> None:
        """End it as a power failure of the process would."""
        self.process.kill()
        self.process.wait(DEADLINE_S)
        self.close()

    def stop(self) -> int:
        """Ask it to stop, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DEADLINE_S)
        self.close()
        return code

    def close(self) -> None:
        """Read the rest of its log."""
        if self.reader is not None:
            self.reader.join(DEADLINE_S)


def launch(
    folder: Path,
    *args: str,
    environ: dict[str, str] | None = None,
    before: Sequence[str] = (),
    program: Sequence[str] = ("-m", "deepprof"),
) -> Daemon:
    """Start a daemon whose store and socket are in `folder`, which may have one already; `before` is before it.

    `program` is what Python is given to be `deepprof`.
    """
    (folder / "d").mkdir(mode=0o700, exist_ok=True)
    command = [*before, sys.executable, *program, "serve", "--listen", f"unix:{folder}/d/s"]
    command += ["--metrics", "127.0.0.1:0", "--store", str(folder / "store"), "--log-format", "json", *args]
    env = {**os.environ, **(environ or {})}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=env)
    daemon = Daemon(process, folder)
    daemon.reader = threading.Thread(target=follow, args=(daemon,), daemon=True)
    daemon.reader.start()
    return daemon


def follow(daemon: Daemon) -> None:
    """Gather the lines of the log."""
    assert daemon.process.stderr is not None
    with daemon.process.stderr as lines:
        for line in lines:
            try:
                daemon.log.append(json.loads(line))
            except ValueError:
                daemon.log.append({"event": "raw", "text": line})


@contextmanager
def running(*args: str, settings: Sequence[str] = ()) -> Iterator[Daemon]:
    """Give a daemon that is ready, in its own folder; a socket's path must be short."""
    folder = Path(tempfile.mkdtemp(prefix="dp-"))
    daemon = launch(folder, *args, *(word for setting in settings for word in ("--set", setting)))
    try:
        yield daemon.wait_ready()
    finally:
        daemon.kill()
        shutil.rmtree(folder, ignore_errors=True)
