"""The manifest of the real traces, as test parameters; empty where the traces are absent."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

TRACES = Path(os.environ.get("DEEPPROF_TRACES", Path(__file__).resolve().parents[1] / "../shared/traces")).resolve()


MORE = TRACES.with_name("more_traces")  # files that were judged before anybody here had seen them


def rows(*formats: str, folder: Path = TRACES) -> list[pytest.ParameterSet]:
    """Return one parameter per file of the given formats (all without); a skipped one where there are no traces."""
    manifest = folder / "manifest.csv"
    if not manifest.is_file():
        reason = f"no real traces in {folder} (set DEEPPROF_TRACES)"
        return [pytest.param({}, id="absent", marks=pytest.mark.skip(reason=reason))]
    with manifest.open(newline="") as lines:
        listed = [row for row in csv.DictReader(lines) if not formats or row["format"] in formats]
    return [pytest.param(row, id=row["file"].split("/")[0] + "/" + row["file"].split("/")[1][:12]) for row in listed]
