"""Millions of records through a daemon: every one accounted for, and its memory flat after the first million."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.serving import load, write_store
from benchmarks.serving import running as benchmarked

MILLION, CEILING_MIB = 1_001_500, 400
# Millions and the drift from one half to the other: 8 bytes a record, of which one uses 25 or more, and 4 in the long.
SOAKS = [(5, 16), pytest.param(26, 48, marks=pytest.mark.slow)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_store(tmp_path, 500)


@pytest.mark.parametrize(("millions", "drift_mib"), SOAKS)
def test_memory_is_flat_over_a_soak(millions: int, drift_mib: int, store: Path) -> None:
    with benchmarked(None) as daemon:
        found = load(daemon, store, millions, None)
        assert found.records == millions * MILLION
        assert daemon.mined() == found.records
    first, *rest = found.rss_mib[len(found.rss_mib) // millions + 1 :]
    assert max(first, *rest) < CEILING_MIB
    half = len(rest) // 2
    assert sorted(rest[half:])[len(rest[half:]) // 2] < sorted(rest[:half])[half // 2] + drift_mib
