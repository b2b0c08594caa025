"""A job of several ranks, and workers of our own to examine it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from deepprof.cluster import connect
from deepprof.simulation import simulate_ranks, write_ranks

RANKS = 4


@pytest.fixture(scope="session")
def straggling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the ranks of a job, whose clocks differ and one of which is late."""
    folder = tmp_path_factory.mktemp("cluster") / "job"
    write_ranks(simulate_ranks("straggler", ranks=RANKS, iterations=12), folder)
    return folder


@pytest.fixture(scope="package")
def client() -> Iterator[Client]:
    """Two workers; they search for work all the time, and end before other tests begin."""
    with connect("local", workers=2) as found:
        yield found
