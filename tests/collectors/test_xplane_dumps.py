"""Compiled programs from a folder of text, as XLA writes them, put to the operations of a profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.xla.dumps import FILE_NBYTES, attach_dump
from deepprof.collectors.trace import Trace
from tests.tables import event, launch, make_trace

PROGRAM = """HloModule jit_step, is_scheduled=true

FileNames
1 "/home/u/train.py"
2 "/home/u/a;b.py"

FunctionNames
1 "<module>"
2 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=20 end_line=20 column=0 end_column=9}
2 {file_name_id=2 function_name_id=2 line=7 end_line=7 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

%fused (p: f32[8]) -> f32[8] {
  ROOT %add.1 = f32[8]{0} add(%p, %p), metadata={op_name="jit(step)/jvp()/add" stack_frame_id=2}
}

ENTRY %main {
  %loop_fusion = f32[8]{0} fusion(%p), metadata={op_name="jit(step)/transpose(jvp({x}))/add" stack_frame_id=2}
  %old.3 = f32[8]{0} copy(%p), metadata={op_type="copy" op_name="jit(step)/copy" source_file="old.py" source_line=3}
  %bare = f32[8]{0} parameter(0)
  ROOT %far = f32[8]{0} negate(%p), metadata={stack_frame_id=99}
}
"""
STEP = "/home/u/a,b.py(7): step;/home/u/train.py(20): <module>"
NAMES = ("loop_fusion", "old.3", "bare", "add.1", "far")


def profile() -> Trace:
    host = [launch(0, at, at + 5, name) | {"category": "op", "correlation": None} for name, at in ((0, 0), (2, 10))]
    other = launch(0, 20, 25, 0) | {"correlation": None}
    return make_trace([event(name, 100 * name, 100 * name + 9) for name in range(5)], [*host, other], names=NAMES)


def stacks_of(trace: Trace) -> list[str | None]:
    """Return the stack of every device event, then of every row of the host."""
    known = dict(trace.stacks.iter_rows())
    events = dict(trace.event_stacks.iter_rows())
    rows = [*map(events.get, range(trace.device_events.height)), *trace.host_events["stack_id"]]
    return [None if number is None else known[number] for number in rows]


def test_operations_have_their_scopes_and_lines(tmp_path: Path) -> None:
    (tmp_path / "module_0001.jit_step.cpu_after_optimizations.txt").write_text(PROGRAM)
    (tmp_path / "module_0001.jit_step.before_optimizations.txt").write_text(PROGRAM.replace("line=7", "line=9"))
    fusion = f"add/;transpose(jvp({{x}}))/;jit(step)/;{STEP}"
    old = "copy/;jit(step)/;old.py(3): <unknown>"
    found = stacks_of(attach_dump(profile(), tmp_path))
    assert found == [fusion, old, None, f"add/;jvp()/;jit(step)/;{STEP}", None, fusion, None, None]


def test_names_that_mean_different_lines_have_none(tmp_path: Path) -> None:
    (tmp_path / "a.hlo").write_text(PROGRAM)
    (tmp_path / "b.hlo").write_text(PROGRAM.replace("line=7", "line=9").replace("old.3", "older.3"))
    found = stacks_of(attach_dump(profile(), tmp_path))
    assert found[:4] == [None, "copy/;jit(step)/;old.py(3): <unknown>", None, None]


def test_stacks_that_are_there_stay(tmp_path: Path) -> None:
    (tmp_path / "a.hlo").write_text(PROGRAM)
    once = attach_dump(profile(), tmp_path)
    (tmp_path / "a.hlo").write_text(PROGRAM.replace("line=7", "line=9"))
    assert stacks_of(attach_dump(once, tmp_path)) == stacks_of(once)


def test_frames_that_are_around_themselves_end(tmp_path: Path) -> None:
    circle = PROGRAM.replace("location_id=2 parent_frame_id=2", "location_id=2 parent_frame_id=3")
    (tmp_path / "a.hlo").write_text(circle)
    assert max(len(each or "") for each in stacks_of(attach_dump(profile(), tmp_path))) < 100_000


def test_a_folder_without_programs_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="holds no compiled program"):
        attach_dump(profile(), tmp_path)
    with pytest.raises(TraceError, match="holds no compiled program"):
        attach_dump(profile(), tmp_path / "absent")


def test_a_program_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "a.hlo").open("wb") as file:
        file.truncate(FILE_NBYTES + 1)
    with pytest.raises(TraceError, match="is larger than 256 MiB"):
        attach_dump(profile(), tmp_path)
