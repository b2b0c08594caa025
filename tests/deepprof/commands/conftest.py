"""A fake daemon, and jobs to send to it."""

from __future__ import annotations

import pytest

from deepprof.simulation import simulate, write
from tests.deepprof.live.client.conftest import address, daemon, endpoint, folder

__all__ = ["address", "daemon", "endpoint", "folder"]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory):
    """A file with a job whose graph grows."""
    path = tmp_path_factory.mktemp("job") / "growing.json.gz"
    write(simulate("graph-growth", iterations=14), path)
    return path


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    """Nothing of the environment states where a daemon is."""
    for name in ("DEEPPROF_DAEMON", "DEEPPROF_TOKEN_FILE", "DEEPPROF_CA", "DEEPPROF_CERT", "DEEPPROF_KEY"):
        monkeypatch.delenv(name, raising=False)
