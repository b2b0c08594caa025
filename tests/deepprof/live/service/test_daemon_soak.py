"""26 million records through a daemon: every one accounted for, and its memory flat after the first million."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.serving import load, write_store
from benchmarks.serving import running as benchmarked

REPEAT, MILLION = 26, 1_001_500
CEILING_MIB, DRIFT_MIB = 400, 48


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_store(tmp_path, 500)


def test_memory_is_flat_over_a_soak(store: Path) -> None:
    with benchmarked(None) as daemon:
        found = load(daemon, store, REPEAT, None)
        assert found.records == REPEAT * MILLION
        assert daemon.mined() == found.records
    first, *rest = found.rss_mib[len(found.rss_mib) // REPEAT + 1 :]
    assert max(first, *rest) < CEILING_MIB
    half = len(rest) // 2
    assert sorted(rest[half:])[len(rest[half:]) // 2] < sorted(rest[:half])[half // 2] + DRIFT_MIB
