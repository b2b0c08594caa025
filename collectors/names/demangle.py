"""C++ names made readable: mangled ones spelled out, and long ones cut to the part that people use for a kernel."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import polars as pl
from msgspec.structs import replace

from deepprof.collectors.names.short import shorten

if TYPE_CHECKING:
    from deepprof.collectors.trace import Trace

__all__ = ["demangle", "shorten", "with_readable_names"]

MANGLED = r"^_Z[0-9A-Za-z_.$]+$"
LENGTH_LIMIT = 4096  # the longest of real kernels have about 2,000
KERNEL_DESCRIPTOR = ".kd"  # what AMD's compiler appends to the name of the same kernel
SECONDS = 10.0
ATTEMPTS = 4  # a name that ends the worker stays as it is, and another worker takes the next names
PACKAGE = "pydemumble"
WORKER = Path(__file__).with_name("worker.py")
MISSING = "names of C++ functions are shown mangled (_Z…): `pip install 'deepprof[names]'` spells them out"


def with_readable_names(trace: Trace) -> Trace:
    """Return `trace` with its mangled names spelled out, or with a note on how to enable that."""
    if not _find_mangled(trace.names).len():
        return trace
    if _package_directory() is None:
        return replace(trace, notes=(*trace.notes, MISSING))
    return replace(trace, names=demangle(trace.names))


def demangle(names: pl.Series) -> pl.Series:
    """Return `names` with the Itanium-mangled ones (`_Z…`) as full C++ names.

    A name stays as it is if it is not mangled, is longer than 4,096 characters or cannot be demangled within the
    limits of `worker`; all names stay if pydemumble is not installed (`pip install 'deepprof[names]'`). The work is
    done in a separate process and uses at most 10 seconds: demanglers follow back references, so that a short
    hostile name can expand to terabytes.
    """
    mangled, directory = _find_mangled(names), _package_directory()
    if directory is None or mangled.is_empty():
        return names
    texts = _ask_workers(mangled.str.strip_suffix(KERNEL_DESCRIPTOR).to_list(), directory)
    found = pl.Series([text or None for text in texts], dtype=pl.String)
    return names.replace(mangled, found.fill_null(mangled))


def _find_mangled(names: pl.Series) -> pl.Series:
    """Return the distinct mangled names among `names` that are not too long to try."""
    mangled = names.str.contains(MANGLED) & (names.str.len_bytes() <= LENGTH_LIMIT)
    return names.filter(mangled.fill_null(value=False)).unique(maintain_order=True)


def _package_directory() -> Path | None:
    """Return the directory that contains the demangler's package, or None if it is not installed."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]


def _ask_workers(names: list[str], directory: Path) -> list[str]:
    """Return the C++ name of each of `names`, "" where there is none."""
    texts: list[str] = []
    end = monotonic() + SECONDS
    for _ in range(ATTEMPTS):
        texts += ask_worker(names[len(texts) :], directory, end - monotonic())
        if len(texts) >= len(names) or monotonic() > end:
            break
        texts.append("")  # the name at which the worker stopped
    return (texts + [""] * len(names))[: len(names)]


def ask_worker(names: list[str], directory: Path, seconds: float) -> list[str]:
    """Return the answers of one worker, fewer than `names` if it ended early."""
    # Isolated and without `site`: no start-up file of the user runs, and it starts in half the time.
    command = [sys.executable, "-I", "-S", "-X", "utf8", str(WORKER), str(directory)]
    questions = "".join(f"{name}\n" for name in names).encode()
    try:
        done = subprocess.run(
            command, input=questions, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds, check=False
        )
        answers = done.stdout
    except subprocess.TimeoutExpired as late:
        answers = late.stdout or b""
    except (OSError, ValueError):  # no Python to start, as in an embedded interpreter
        return []
    lines = answers.decode("utf-8", "replace").replace("\r", "").split("\n")
    return lines[:-1]  # the last line is incomplete, or empty
