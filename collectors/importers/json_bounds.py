"""Refusal of JSON that would take far more memory than its size, before it is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.collectors.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

# A list of empty objects uses three bytes for each, and a hundred when it is decoded. In real traces there are 60 to
# 100 bytes for every object and 17 to 25 for every comma, or at least 5 with the longest names of kernels.
NBYTES_PER_OBJECT, NBYTES_PER_COMMA = 12, 4
FLOOR_NBYTES = 4 * 1024**2  # smaller files are not checked


def check_values(path: Path, content: bytes | bytearray) -> None:
    """Raise `TraceError` when `content`, the JSON in `path`, contains more values than a trace of its size has."""
    if len(content) <= FLOOR_NBYTES:
        return
    limits = {b"}": NBYTES_PER_OBJECT, b",": NBYTES_PER_COMMA, b"]": NBYTES_PER_OBJECT}
    if any(content.count(mark) * nbytes > len(content) for mark, nbytes in limits.items()):
        problem = f"is no trace: its {len(content)} bytes hold little but empty values"
        raise TraceError(path, problem, "give a file written by a profiler")
