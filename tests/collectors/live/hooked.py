"""Runs a real Python script as `deepprof run` does, and states what a listening agent heard of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

from deepprof.collectors.live.hook import find_hook
from tests.collectors.live.listener import Heard, Listener
from tests.patience import PATIENCE_S, UNHURRIED

PROGRAMS = Path(__file__).resolve().parent / "programs"
TIMEOUT_S = PATIENCE_S


@dataclass(frozen=True, slots=True)
class Done:
    """A finished process, and the connections that brought records."""

    process: subprocess.CompletedProcess[bytes]
    heard: list[Heard]

    def counts(self, category: int | None = None, connection: int = 0) -> dict[str, int]:
        """How often each name came, in `category` or in all."""
        ranges = self.heard[connection].ranges
        chosen = ranges if category is None else ranges[ranges["category"] == category]
        texts = self.heard[connection].texts(chosen)
        return {text: texts.count(text) for text in texts}


def hooked_environment(library: Path, socket: Path) -> dict[str, str]:
    settings = dict.fromkeys(("DEEPPROF_INJECT", "INTEL_LIBITTNOTIFY64", "NVTX_INJECTION64_PATH"), str(library))
    own = {"DEEPPROF_SOCKET": str(socket), "PYTHONPATH": str(find_hook())}
    return plain_environment() | settings | UNHURRIED | own


def plain_environment() -> dict[str, str]:
    """One compute thread, so that tests side by side do not wait for each other; no coverage in the child."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}


@contextmanager
def start(script: str, *words: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(PROGRAMS / script), *words]
    environment = plain_environment() | variables
    with subprocess.Popen(command, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def finish(process: subprocess.Popen[bytes]) -> subprocess.CompletedProcess[bytes]:
    """Let it go on: the programs that wait, wait for a line."""
    out, err = process.communicate(b"\n", timeout=TIMEOUT_S)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def run_plain(script: str, *words: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    with start(script, *words, **variables) as process:
        return finish(process)


def run_hooked(
    library: Path, listener: Listener, script: str, *words: str, processes: int = 1, **variables: str
) -> Done:
    """Run a program that waits for a line on its standard input until `processes` of it are collected from."""
    before = len(listener.connections)
    with start(script, *words, **hooked_environment(library, listener.path) | variables) as process:
        listener.wait(lambda _: sum(map(is_on, listener.connections[before:])) >= processes)
        done = finish(process)
    connections = listener.connections[before:]
    listener.wait(lambda _: all(heard.gone for heard in connections))
    return Done(done, [heard for heard in connections if len(heard.ranges) or len(heard.sums)])


def is_on(heard: Heard) -> bool:
    return any(tick["level"] == 1 for tick in heard.ticks)
