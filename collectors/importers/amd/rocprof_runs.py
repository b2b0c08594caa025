"""Which files of a directory belong to one run of rocprofv3: their names have the same prefix.

One run may be written in several formats at once, and in CSV it is several files: it counts as one trace.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Ends of the names of one run's CSV files; the first file that exists represents the run.
ENDS = (
    "kernel_trace",
    "counter_collection",
    "memory_copy_trace",
    "hip_api_trace",
    "hip_trace",
    "hsa_api_trace",
    "marker_api_trace",
    "rccl_api_trace",
    "memory_allocation_trace",
    "scratch_memory_trace",
    "agent_info",
)
SUFFIXES = (".csv", ".csv.gz", ".csv.zst")
RESULTS = ("results.db", "results.json", "results.pftrace")  # each contains the whole run; the first that exists counts


def _split_name(path: Path) -> tuple[str, str, str] | None:
    """Return the name of `path` as the prefix of its run, the kind of CSV file and the suffix; None for other files."""
    suffix = next((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), None)
    stem = path.name.removesuffix(suffix or "")
    end = next((end for end in ENDS if stem == end or stem.endswith(f"_{end}")), None)
    return None if suffix is None or end is None else (stem.removesuffix(end), end, suffix)


def run_of(path: Path) -> list[Path]:
    """Return the CSV files of the run of `path` in the order of ENDS, `path` among them; regular files only."""
    parts = _split_name(path)
    if parts is None:
        return [path]
    names = [path.with_name(f"{parts[0]}{end}{parts[2]}") for end in ENDS]
    return [name for name in names if name == path or is_regular(name)]


def lists_agents(path: Path) -> bool:
    """Return whether `path`, judged by its name, lists the processors of its run."""
    parts = _split_name(path)
    return parts is not None and parts[1] == "agent_info"


def list_same_run(path: Path) -> list[Path]:
    """Return the regular files next to `path` that need not be read separately: other parts or copies of its run."""
    return [file for file in _beside(path) if file != path and is_regular(file)]


def _beside(path: Path) -> Iterator[Path]:
    """Yield the possible paths of the files that `path` represents."""
    result = next((at for at, name in enumerate(RESULTS) if path.name == name or path.name.endswith(f"_{name}")), None)
    if result is not None:
        prefix = path.name.removesuffix(RESULTS[result])
        yield from (path.with_name(f"{prefix}{name}") for name in RESULTS[result + 1 :])
        yield from (path.with_name(f"{prefix}{end}.csv") for end in ENDS)
    parts = _split_name(path)
    if parts is not None and run_of(path)[0] == path:
        yield from run_of(path)
        yield path.with_name(f"{parts[0]}{RESULTS[-1]}")


def is_regular(path: Path) -> bool:
    """Return whether `path` is a regular file and no link, which could lead out of the directory."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False
