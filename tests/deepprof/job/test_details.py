"""Details on the way through a job: read by any number of processes, from files and stores, whole or in part."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepprof
from deepprof.collectors.importers import read
from deepprof.collectors.trace import Trace
from deepprof.job.conversion import convert
from tests.collectors.hlo_programs import computation, instruction, metadata_plane, program
from tests.collectors.xplane_profile import GPU, event, plane, space

STACK = "dot/;jit(f)/;train.py(3): step"
OPERATORS = """{"schemaVersion": 1, "traceEvents": [
{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 5,
 "args": {"External id": 1, "Call stack": "train.py(3): step"}},
{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 5,
 "args": {"device": 0, "stream": 7, "External id": 1}}
]}"""


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Profiles of two hosts, with a compiled program each."""
    folder = tmp_path_factory.mktemp("job")
    held = program("f", [computation(instruction("dot.1", "jit(f)/dot", 1))], [("train.py", "step", 3, 0)])
    events = [event("dot.1", at, 5, hlo_op="dot.1", hlo_module="f", program_id=7) for at in (0, 100)]
    for host in "ab":
        content = space(metadata_plane({"f(7)": held}), plane(GPU, {"Stream #1(Compute)": events}))
        (folder / f"{host}.xplane.pb").write_bytes(content)
    return folder


def stacks_of(traces: list[Trace]) -> list[list[str]]:
    """Return for every rank the stacks of its device events."""
    joined = (trace.event_stacks.join(trace.stacks, on="stack_id", maintain_order="left") for trace in traces)
    return [rows["frames"].to_list() for rows in joined]


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(("details", "count"), [(True, 2), (None, 2), (False, 0)])
def test_details_are_read_where_asked_for(profiles: Path, jobs: int, details: bool | None, count: int) -> None:
    assert stacks_of(deepprof.read_job(profiles, jobs=jobs, details=details)) == [[STACK] * count] * 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_store_keeps_the_details_that_are_cheap_to_read(profiles: Path, tmp_path: Path, jobs: int) -> None:
    convert(profiles, tmp_path / "job.deepprof", jobs=jobs)
    for details, count in ((None, 2), (False, 0)):
        found = deepprof.read_job(tmp_path / "job.deepprof", jobs=jobs, details=details)
        assert stacks_of(found) == [[STACK] * count] * 2
        part = deepprof.read_job(tmp_path / "job.deepprof", jobs=jobs, details=details, between=(50, None))
        assert stacks_of(part) == [[STACK] * (count // 2)] * 2


def test_the_call_stacks_of_operators_are_read_unless_they_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(OPERATORS)
    heights = [read(path, details=details).stacks.height for details in (True, None, False)]
    assert heights == [1, 1, 0]
