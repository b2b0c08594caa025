"""The processes that are measured: what they are built from, their environment, and how they are led from step to step.

A program states `{"step": NAME}` and waits for a line; at its end it prints its result, one object of JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu.reader import Reader, Session
from deepprof.collectors.live.hook import find_hook
from deepprof.collectors.live.packets import CollectionLevel
from deepprof.live.agent.injection import InjectionPlan, inject

__all__ = [
    "Failed",
    "OutOfTime",
    "Plan",
    "Program",
    "await_level",
    "build",
    "build_calls",
    "build_mock",
    "environment",
    "run",
    "start",
    "start_collected",
    "wait_until",
]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "collectors/live/inject"
LOOPS = ("launch", "compute", "graph")
ITERATIONS = {"launch": 40, "compute": 50, "graph": 800}  # some 80 ms
GOALS = {"launch": 0.03, "compute": 0.01, "graph": 0.03}  # of the time; the host has less to spare where it is late
BUDGET = "DEEPPROF_CONTEXTS_BUDGET"
OURS = ("DEEPPROF_", "CUDA_INJECTION", "NVTX_INJECTION", "INTEL_LIBITT", "KINETO_")


class Failed(Exception):  # noqa: N818
    """A program did not run."""


class OutOfTime(Failed):
    """A program would have run longer than all of it may."""


@dataclass(frozen=True)
class Plan:
    """What is run, and how much of it. `until_s` is the time of `time.monotonic` when all of it has to be over."""

    folder: Path
    library: Path
    cupti: Path | None = None  # the stand-in's
    mock: str = ""
    variables: dict[str, str] = field(default_factory=dict)  # of the collected programs, beside those of `deepprof run`
    calls: Path | None = None  # the library that writes down the calls of CUPTI
    until_s: float = float("inf")
    checks: int = 50  # iterations of a check
    rounds: int = 9
    repeats: int = 3
    graphs: str = "nodes"
    contexts: str = "off"
    graph_records: int = 30_000_000
    graph_s: float = 110.0
    share_s: float = 3.0
    shares: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0)
    patience_s: float = 20.0  # for collecting to begin
    hidden_s: float = 3.0
    retry_ms: int = 1000  # the longest pause between two tries next to a profiler that no one shows of
    timeout_s: float = 180.0  # of one program
    iterations: dict[str, int] = field(default_factory=lambda: dict(ITERATIONS))
    goals: dict[str, float] = field(default_factory=lambda: dict(GOALS))

    @property
    def left_s(self) -> float:
        """Seconds until all of it has to be over."""
        return self.until_s - time.monotonic()


def build(folder: Path) -> Path:
    """Compile the injected library as the package does; raises `Failed`."""
    return compile_library(sorted(SOURCES.glob("*.c")), folder / "libdeepprof_inject.so", "-fvisibility=hidden")


def build_mock(folder: Path) -> Path:
    """Compile the tests' mock of CUPTI, which is the driver too, with operators that a program can be in."""
    tests = ROOT / "tests/collectors/live"
    sources = [tests / "mock_cupti.c", tests / "mock_device.c", tests / "programs/made_operators.c"]
    return compile_library(sources, folder / "libcupti_mock.so", "-Wl,-soname,libcuda.so.1")


def build_calls(folder: Path) -> Path:
    """Compile what writes down the calls of CUPTI; raises `Failed`."""
    return compile_library([Path(__file__).with_name("calls.c")], folder / "libcalls.so")


def compile_library(sources: list[Path], library: Path, *flags: str) -> Path:
    """Compile `sources`; raises `Failed`."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise Failed("no C compiler")
    command = [compiler, "-O3", "-std=c11", "-fPIC", "-shared", "-pthread", *flags, *map(str, sources)]
    command += ["-Wl,-z,nodelete", "-ldl", "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{library.name} does not compile: {done.stderr.strip().splitlines()[-1]}")
    return library


def environment(plan: Plan, socket: Path | None, *, hook: bool = True) -> dict[str, str]:
    """Return the environment of a program: as `deepprof run` makes it where there is a socket, else without us."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), variables.get("PYTHONPATH")]))
    if socket is None:
        return variables
    asked = InjectionPlan(plan.library, find_hook(), socket, "gpu-overhead", contexts=plan.contexts, graphs=plan.graphs)
    told, _ = inject(variables, asked)
    told |= {BUDGET: "100"} if plan.contexts != "off" else {}  # no iteration is left out
    told["PYTHONPATH"] = told["PYTHONPATH"] if hook else variables["PYTHONPATH"]
    if plan.calls is not None:
        told |= {"DEEPPROF_CUPTI": str(plan.calls), "LD_PRELOAD": str(plan.calls)}
    return told | ({"DEEPPROF_CUPTI": str(plan.cupti)} if plan.cupti is not None else {}) | plan.variables


class Program:
    """`python -m benchmarks.gpu.loops` with arguments; everything raises `Failed` with the program's last words."""

    def __init__(self, plan: Plan, arguments: list[str], variables: dict[str, str]) -> None:
        self.plan, self.name = plan, " ".join(arguments)
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        command = [sys.executable, "-m", "benchmarks.gpu.loops", *arguments, "--mock", plan.mock]
        self.popen = subprocess.Popen(
            command,
            env=variables,
            cwd=plan.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        self.limit_s = max(1.0, min(plan.timeout_s, plan.left_s))
        self.is_late = False
        self.timer = threading.Timer(self.limit_s, self.stop)
        self.timer.daemon = True
        self.timer.start()

    def stop(self) -> None:
        """Kill it: its time is over."""
        self.is_late = True
        self.popen.kill()

    def read(self) -> dict[str, Any]:
        """Return the next object that it prints; other lines are its libraries' business."""
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            with suppress(ValueError):
                if isinstance(said := json.loads(line), dict):
                    return said
        raise self.failure()

    def failure(self) -> Failed:
        """Return why it is gone."""
        text = f"{self.name}: {self.explain()}"
        return OutOfTime(text) if self.is_late and self.limit_s < self.plan.timeout_s else Failed(text)

    def explain(self) -> str:
        """Return why it is gone."""
        code = self.popen.wait()
        if self.is_late:
            return f"it took longer than {self.limit_s:.0f} s"
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return f"exit status {code}: {lines[-1] if lines else 'it printed nothing'}"

    def reach(self, step: str) -> None:
        """Wait until it is at `step`."""
        said = self.read()
        if said.get("step") != step:
            raise Failed(f"{self.name}: it was to reach {step!r} and said {str(said)[:200]}")

    def go(self, word: str = "") -> None:
        """Let it go on."""
        assert self.popen.stdin is not None
        with suppress(BrokenPipeError):  # it is gone, which reading shows
            self.popen.stdin.write(f"{word}\n")
            self.popen.stdin.flush()

    def take_turn(self, loop: str) -> list[float]:
        """Let it time one loop, and return the seconds of every repetition."""
        self.go(loop)
        said = self.read()
        if said.get("step") != "timed":
            raise Failed(f"{self.name}: it was to time {loop!r} and said {str(said)[:200]}")
        return list(said["seconds"])

    def result(self) -> dict[str, Any]:
        """Return what it printed at its end, once it has ended well."""
        said = self.read()
        if self.popen.wait() != 0:
            raise self.failure()
        return said

    def close(self) -> None:
        """End it, whatever it does."""
        self.timer.cancel()
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout, self.errors):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


@contextmanager
def start(plan: Plan, arguments: list[str], variables: dict[str, str]) -> Iterator[Program]:
    """Start a program, and end it afterwards."""
    program = Program(plan, arguments, variables)
    try:
        yield program
    finally:
        program.close()


def start_collected(plan: Plan, arguments: list[str], reader: Reader, **options: bool) -> Any:
    """Start a program that `reader` listens to."""
    return start(plan, arguments, environment(plan, reader.path, **options))


def wait_until(is_so: Callable[[], object], patience_s: float) -> bool:
    """Wait until something is so; returns whether it came to be."""
    until_s = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.002)
    return True


def await_level(plan: Plan, reader: Reader, program: Program, level: CollectionLevel) -> Session:
    """Return a program's session once the library has stated, after now, that it collects or not; raises `Failed`."""
    now_ns, pid = time.monotonic_ns(), program.popen.pid

    def is_there() -> bool:
        session = reader.of(pid)
        return session.tick_ns > now_ns and session.level == level

    if wait_until(is_there, plan.patience_s):
        return reader.of(pid)
    notices, what = reader.of(pid).notices, "begin" if level == CollectionLevel.ON else "end"
    raise Failed(f"collecting did not {what} in {plan.patience_s:g} s: {notices[-1] if notices else 'not a word'}")


def run(plan: Plan, arguments: list[str], *, reader: Reader | None = None) -> dict[str, Any]:
    """Run a program without other steps than its start, and return its result; raises `Failed`."""
    with start(plan, arguments, environment(plan, reader.path if reader else None)) as program:
        program.reach("started")
        if reader is not None:
            await_level(plan, reader, program, reader.level)
        program.go()
        return program.result()
