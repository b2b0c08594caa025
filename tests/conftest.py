"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def traces() -> Path:
    """Return the directory of real traces, or skip the test where it is absent."""
    default = Path(__file__).resolve().parents[1] / "../shared/traces"
    found = Path(os.environ.get("DEEPPROF_TRACES", default))
    if not found.is_dir():
        pytest.skip(f"no real traces in {found} (set DEEPPROF_TRACES)")
    return found
