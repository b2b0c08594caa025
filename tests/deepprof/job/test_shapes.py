"""Operands and launch shapes on the way through a job: read by any number of processes, from files and stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import deepprof
from deepprof.collectors.importers import read
from deepprof.collectors.trace import Trace
from deepprof.job.conversion import convert
from tests.collectors.access_files import END, START, encode, launch

SHAPES = {"Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]}
LAUNCH = {"grid": [3, 1, 1], "block": [128, 1, 1]}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks, each with two products."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank in range(2):
        events = []
        for number, ts in enumerate((10, 200), 1):
            op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": ts, "dur": 5}
            kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": ts + 9, "dur": 5}
            events += [
                op | {"args": {"External id": number, **SHAPES}},
                kernel | {"args": {"device": 0, "stream": 7, "External id": number, **LAUNCH}},
            ]
        document = {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": events}
        (folder / f"rank{rank}.json").write_text(json.dumps(document))
    return folder


def shapes_of(traces: list[Trace]) -> list[tuple[list[str], list[int]]]:
    """Return the operands and the grids of every rank."""
    return [(trace.operands["dims"].to_list(), trace.launch_shapes["grid"].to_list()) for trace in traces]


def expected(count: int) -> list[tuple[list[str], list[int]]]:
    """Return what this many products of each of two ranks have."""
    return [(["[[4, 8], [8, 2]]"] * count, [3] * count)] * 2


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("details", [True, None, False])
def test_shapes_are_read_whatever_the_details_unless_left_out(ranks: Path, jobs: int, details: bool | None) -> None:
    assert shapes_of(deepprof.read_job(ranks, jobs=jobs, details=details)) == expected(2)
    assert shapes_of(deepprof.read_job(ranks, jobs=jobs, details=details, shapes=False)) == expected(0)
    assert shapes_of(deepprof.read_job(ranks, jobs=jobs, details=details, between=(100_000, None))) == expected(1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_store_keeps_shapes(ranks: Path, tmp_path: Path, jobs: int) -> None:
    convert(ranks, tmp_path / "job.deepprof", jobs=jobs)
    for shapes, whole, half in ((True, 2, 1), (False, 0, 0)):
        assert shapes_of(deepprof.read_job(tmp_path / "job.deepprof", jobs=jobs, shapes=shapes)) == expected(whole)
        part = deepprof.read_job(tmp_path / "job.deepprof", jobs=jobs, shapes=shapes, between=(100_000, None))
        assert shapes_of(part) == expected(half)


def test_formats_that_always_have_launch_shapes_leave_them_out_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.accesses"
    path.write_bytes(encode([START, launch(0, 10, []), END]))
    assert read(path).launch_shapes.height == 1
    assert read(path, shapes=False).launch_shapes.is_empty()
