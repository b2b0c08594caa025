"""The analysis of every real trace, made once for all tests of this folder: pytest runs those of one file in a row."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepprof
from deepprof.analysis import Analysis
from tests import manifest

Analyzed = tuple[dict[str, str], Analysis | deepprof.TraceError]


@pytest.fixture(scope="session", params=manifest.rows(jobs=True))
def file(traces: Path, request: pytest.FixtureRequest) -> Analyzed:
    """Return a file's row of the manifest and its analysis, which is what costs, or the error that refuses it."""
    try:
        return request.param, deepprof.analyze(deepprof.read_job(manifest.path_of(request.param)))
    except deepprof.TraceError as refused:
        return request.param, refused
