"""Plans of the benchmark for GPUs, on its stand-in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import gpu_overhead
from benchmarks.gpu.programs import Plan
from benchmarks.gpu.rows import Row, Verdict
from tests.collectors.live.building import build


@pytest.fixture
def plan(tmp_path: Path) -> Callable[[str], Plan]:
    """Return what makes a plan for a stand-in with a fault of a kind."""
    built = build("plain")
    return lambda mock: gpu_overhead.shrink(Plan(tmp_path, built.library, mock=mock), built.mock)


def failed(rows: list[Row]) -> list[str]:
    """Return the checks that failed."""
    return [row.check for row in rows if row.verdict is Verdict.FAILED]
