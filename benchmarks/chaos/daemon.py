"""The daemon of a trial: its own process with tokens, on a socket and on TCP, that is killed and started again."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from benchmarks.chaos.plan import Plan

__all__ = ["Daemon", "serving", "write_tokens"]

SCOPES = {"honest": "ingest", "hostile": "ingest,read", "judge": "read,admin"}
LOOPBACK = IPv4Address("127.0.0.0")
LINES = 20  # of its log that are kept


@dataclass
class Daemon:
    """A daemon whose store, tokens and socket are in `folder`; `deadline_s` is how long it may take to be ready."""

    folder: Path
    plan: Plan
    settings: tuple[str, ...]
    deadline_s: float
    tcp: str  # the address and port it listens at
    popen: Any = None
    log: list[dict[str, Any]] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)  # of its processes, in words
    spoken: threading.Condition = field(default_factory=threading.Condition)
    reader: threading.Thread | None = None

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def socket(self) -> str:
        return f"unix:{self.folder}/d/s"

    def launch(self) -> None:
        """Start a process; from the main thread, for the kernel ends it with the thread that has made it."""
        command = [sys.executable, "-m", "deepprof", "serve", "--log-format", "json", "--metrics", "127.0.0.1:0"]
        command += ["--listen", f"{self.socket},{self.tcp}", "--store", str(self.store)]
        command += ["--token-file", str(self.folder / "tokens")]
        command += [word for setting in self.settings for word in ("--set", setting)]
        self.log.clear()
        environ = {**os.environ, **self.plan.environ}
        self.popen = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ)
        self.reader = threading.Thread(target=self.follow, args=(self.popen.stderr,), daemon=True)
        self.reader.start()

    def follow(self, lines: Any) -> None:
        """Keep what it logs: the first event of every name, and the last lines."""
        with lines:
            for line in lines:
                with self.spoken:
                    self.log.append(read_line(line))
                    self.spoken.notify_all()
        with self.spoken:
            self.log.append({"event": "closed"})
            self.spoken.notify_all()

    def event(self, name: str) -> dict[str, Any] | None:
        return next((line for line in list(self.log) if line.get("event") == name), None)

    def wait_ready(self) -> bool:
        """Wait until it takes records; False: it has ended, or has not come so far in time."""
        with self.spoken:
            self.spoken.wait_for(lambda: self.event("ready") or self.event("closed"), self.deadline_s)
        return self.event("ready") is not None

    def start(self) -> None:
        """Start it, and wait until it takes records."""
        self.launch()
        assert self.wait_ready(), f"the daemon is not ready after {self.deadline_s:g} s: {self.last_words()}"

    @property
    def runs(self) -> bool:
        return self.popen.poll() is None

    def last_words(self) -> str:
        """Return the last lines of its log."""
        said = [line for line in self.log if line.get("event") != "closed"][-3:]
        return "; ".join(str(line.get("text") or line.get("problem") or line.get("event")) for line in said)[-300:]

    def kill(self) -> None:
        """End it as no one expects."""
        if self.runs:
            self.popen.kill()
            self.note_ending("SIGKILL")

    def stop(self) -> int:
        """Ask it to stop, and return its exit code; one that does not within the deadline is killed."""
        if self.runs:
            self.popen.send_signal(signal.SIGTERM)
        try:
            code = int(self.popen.wait(self.deadline_s))
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.note_ending(f"hung at SIGTERM for {self.deadline_s:g} s")
            return -signal.SIGKILL
        self.note_ending(f"SIGTERM, exit {code}")
        return code

    def note_ending(self, how: str) -> None:
        self.popen.wait()
        if self.reader is not None:
            self.reader.join(self.deadline_s)
        self.endings.append(how)

    def revive(self) -> bool:
        """Start it again where it has ended by itself, as systemd would; returns whether it had."""
        if self.runs:
            return False
        self.note_ending(f"by itself, exit {self.popen.returncode} ({self.last_words()})")
        self.launch()
        self.wait_ready()
        return True

    def revive_until_ready(self) -> None:
        """Start it again until it takes records."""
        until = time.monotonic() + self.deadline_s
        while not (self.runs and self.wait_ready()):
            assert time.monotonic() < until, f"the daemon does not start: {self.last_words()}"
            self.revive()

    @property
    def metrics(self) -> tuple[str, int]:
        """Where the exporter listens."""
        host, _, port = str((self.event("listening") or {})["metrics"]).rpartition(":")
        return host, int(port)

    def gauge(self, name: str) -> float:
        """Return the value of a metric without labels."""
        host, port = self.metrics
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=self.deadline_s) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line.split()[-1] for line in lines if line.startswith(f"{name} ")))


def read_line(line: str) -> dict[str, Any]:
    """Return a line of the log; one that is no JSON is text."""
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"text": line.strip()}


def write_tokens(folder: Path) -> None:
    """Write the daemon's list of tokens, and each one into its own file."""
    tokens = {name: secrets.token_urlsafe(32) for name in SCOPES}
    write_private(folder / "tokens", "".join(f"{name} {SCOPES[name]} {tokens[name]}\n" for name in SCOPES))
    for name, token in tokens.items():
        write_private(folder / f"{name}.token", token)


def write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def find_address() -> str:
    """Return a TCP address for a daemon that is started several times.

    No other program takes its port while the daemon is down: each process has a loopback its own address.
    """
    host = str(LOOPBACK + (1 << 16) + os.getpid())
    with socket.create_server((host, 0)) as server:
        return f"{host}:{server.getsockname()[1]}"


@contextmanager
def serving(folder: Path, plan: Plan, settings: tuple[str, ...], deadline_s: float) -> Iterator[Daemon]:
    """Give a daemon that takes records."""
    (folder / "d").mkdir(mode=0o700)
    write_tokens(folder)
    daemon = Daemon(folder, plan, settings, deadline_s, find_address())
    try:
        daemon.start()
        yield daemon
    finally:
        if daemon.popen is not None:
            daemon.popen.kill()
            daemon.popen.wait()
