"""Real PyTorch programs with planted mistakes, trained and profiled on this machine's CPU when the cases are made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import deepprof
from benchmarks.cases.case import HEALTHY, Case
from deepprof.collectors.trace import Trace
from tests.programs.table import PROGRAMS

__all__ = ["cases"]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM_DEADLINE_S = 300  # seconds


def cases() -> Iterator[Case]:
    """Yield a case per program."""
    for name, program in PROGRAMS.items():
        yield Case("PyTorch programs on a CPU", name, program.on_cpu or HEALTHY, partial(load, name))


def load(name: str, scratch: Path) -> list[Trace]:
    """Run the program and read what it recorded."""
    path = scratch / f"{name}.json"
    command = [sys.executable, "-m", "tests.programs", name, "-o", str(path)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=PROGRAM_DEADLINE_S)
    return [deepprof.read(path)]
