"""The manifest of the real traces, as test parameters; empty where the traces are absent."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

TRACES = Path(os.environ.get("DEEPPROF_TRACES", Path(__file__).resolve().parents[1] / "../shared/traces")).resolve()
MORE = TRACES.with_name("more_traces")  # files that were judged before anybody had seen them


ARCHIVE = ".tar.gz"  # of the ranks of a job, which are several traces


def rows(*formats: str, jobs: bool = False) -> list[pytest.ParameterSet]:
    """Return one parameter per file of the given formats (all without) in `TRACES`, and in `MORE` where that is.

    `path_of` states where the file is. Without `TRACES` there is one parameter, which is skipped. Archives of several
    ranks are among them only with `jobs`.
    """
    more = rows_in(MORE, *formats) if (MORE / "manifest.csv").is_file() else []
    return [each for each in (*rows_in(TRACES, *formats), *more) if jobs or not is_job(each)]


def is_job(parameter: pytest.ParameterSet) -> bool:
    """Return whether the file of a parameter contains several traces."""
    row = parameter.values[0]
    return isinstance(row, dict) and row.get("file", "").endswith(ARCHIVE)


def rows_in(folder: Path, *formats: str) -> list[pytest.ParameterSet]:
    """Return the parameters of one folder; a skipped one where it is absent."""
    manifest = folder / "manifest.csv"
    if not manifest.is_file():
        reason = f"no real traces in {folder} (set DEEPPROF_TRACES)"
        return [pytest.param({}, id="absent", marks=pytest.mark.skip(reason=reason))]
    with manifest.open(newline="") as lines:
        listed = [row for row in csv.DictReader(lines) if not formats or row["format"] in formats]
    placed = [row | {"folder": str(folder)} for row in listed]
    return [pytest.param(row, id=row["file"].split("/")[0] + "/" + row["file"].split("/")[1][:12]) for row in placed]


def path_of(row: dict[str, str]) -> Path:
    """Return where the file of a row is: in `TRACES` where it does not state its folder."""
    return Path(row.get("folder", TRACES), row["file"])
