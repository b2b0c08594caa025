"""The compiled programs of an XPlane profile: the line and the scopes of every operation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from deepprof.collectors.importers.xla import hlo_reader, programs
from deepprof.collectors.importers.xla.name_scopes import split_scopes
from deepprof.collectors.importers.xla.xplane import XPlane
from deepprof.collectors.trace import Trace
from tests.collectors.damage import survives
from tests.collectors.hlo_programs import computation, instruction, metadata_plane, program
from tests.collectors.xplane_profile import GPU, HOST, event, plane, space

FRAMES = [("a.py", "<module>", 30, 0), ("a.py", "step", 20, 1), ("b;c.py", "layer", 10, 2)]
MODULE, STEP, LAYER = "a.py(30): <module>", "a.py(20): step", "b,c.py(10): layer"
DOT = instruction("dot.1", "jit(step)/jvp(Dense)/dot_general", 3)


@dataclass(frozen=True)
class _DetailedXPlane(XPlane):
    """The importer, asked for details."""

    def read(self, path: Path, *, details: bool = True) -> Trace:
        return super().read(path, details=details)


def ran(operation: str, number: int = 7, module: str = "jit_step", at: int = 0, **more: object) -> object:
    return event(operation, at, 5, hlo_op=operation, hlo_module=module, program_id=number, **more)


def read(tmp_path: Path, held: dict[str, bytes], *events: object, details: bool = True) -> Trace:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(space(metadata_plane(held), plane(GPU, {"Stream #1(Compute)": list(events)})))
    return XPlane().read(path, details=details)


def stacks_of(trace: Trace) -> list[str | None]:
    """Return the stack of every device event."""
    rows = trace.device_events.with_row_index("event").join(trace.event_stacks, on="event", how="left")
    return rows.join(trace.stacks, on="stack_id", how="left", maintain_order="left")["frames"].to_list()


def test_operations_have_their_scopes_and_then_the_lines_of_python_the_innermost_first(tmp_path: Path) -> None:
    held = {"jit_step(7)": program("jit_step", [computation(DOT)], FRAMES)}
    trace = read(tmp_path, held, ran("dot.1"), ran("dot.1", at=9), event("memset", 20, 1), ran("lost", at=30))
    assert stacks_of(trace) == [f"dot_general/;jvp(Dense)/;jit(step)/;{LAYER};{STEP};{MODULE}"] * 2 + [None] * 2
    assert trace.stacks.height == 1
    assert trace.event_stacks["event"].to_list() == [0, 1]
    plain = read(tmp_path, held, ran("dot.1"), details=False)
    assert (plain.stacks.height, plain.event_stacks.height) == (0, 0)


def test_operations_of_the_host_have_them_too(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    held = {"jit_step(7)": program("jit_step", [computation(DOT)], FRAMES)}
    host = plane(HOST, {"tf_XLAEigen/1": [ran("dot.1"), event("other", 9, 2)]})
    path.write_bytes(space(host, metadata_plane(held, "hlo_proto")))  # in any order
    trace = XPlane().read(path, details=True)
    assert trace.host_events["stack_id"].to_list() == [0, None]


def test_a_place_without_a_stack_is_one_frame_and_without_scopes_the_program_is_one(tmp_path: Path) -> None:
    parts = [
        instruction("a", "mul", place=("t.py", 3)),
        instruction("b", frame=2),
        instruction("c"),
        instruction("d", "x"),
    ]
    trace = read(tmp_path, {"jit_step(7)": program("jit_step", [computation(*parts)], FRAMES)}, *map(ran, "abcd"))
    assert stacks_of(trace) == ["mul/;t.py(3): <unknown>", f"jit_step/;{STEP};{MODULE}", "jit_step/", "x/"]


def test_a_fusion_without_a_source_has_that_of_its_root_else_that_of_most(tmp_path: Path) -> None:
    rooted = computation(instruction("p", "far", 1), instruction("q", "near", 2, id=5), id=11, root=5)
    voted = computation(
        *[instruction(f"v{n}", "often", 3, id=n) for n in (1, 2)], instruction("w", "seldom", 1, id=3), id=12, root=9
    )
    entry = computation(
        instruction("own", "own", 1, calls=[11]),
        instruction("of_root", calls=[11]),
        instruction("named", "mine", calls=[11]),
        instruction("of_most", calls=[12]),
        instruction("lost", calls=[99]),
    )
    held = {"jit_step(7)": program("jit_step", [rooted, voted, entry], FRAMES)}
    trace = read(tmp_path, held, *map(ran, ("own", "of_root", "named", "of_most", "lost")))
    assert stacks_of(trace) == [
        f"own/;{MODULE}",
        f"near/;{STEP};{MODULE}",
        f"mine/;{STEP};{MODULE}",
        f"often/;{LAYER};{STEP};{MODULE}",
        "jit_step/",
    ]


def test_a_program_is_found_by_its_number_else_by_a_name_that_no_other_has(tmp_path: Path) -> None:
    held = {
        f"{name}({number})": program(name, [computation(instruction("dot.1", f"{name}{number}"))])
        for name, number in (("jit_step", 7), ("jit_step", 8), ("jit_eval", 2**64 - 3))
    }
    asked = [("jit_step", 8), ("jit_step", 9), ("jit_eval", 9), ("jit_eval", 2**64 - 3), ("jit_lost", 9)]
    trace = read(tmp_path, held, *(ran("dot.1", number, name) for name, number in asked))
    assert stacks_of(trace) == ["jit_step8/", None, f"jit_eval{2**64 - 3}/", f"jit_eval{2**64 - 3}/", None]


def test_a_damaged_program_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    sound = program("jit_step", [computation(DOT)], FRAMES)
    held = {"jit_step(7)": sound[:40], "jit_eval(8)": sound}
    trace = read(tmp_path, held, ran("dot.1"), ran("dot.1", 8, "jit_eval"))
    assert [stack is None for stack in stacks_of(trace)] == [True, False]
    assert trace.notes[-1] == "1 compiled program cannot be read: only names of kernels are known"


def test_frames_that_call_each_other_in_a_circle_end(tmp_path: Path) -> None:
    frames = [("a.py", "f", 1, 2), ("a.py", "g", 2, 1), ("a.py", "h", 3, 99)]
    parts = [instruction("a", "m", 1), instruction("b", "m", 3), instruction("c", "m", 77)]
    trace = read(tmp_path, {"jit_step(7)": program("jit_step", [computation(*parts)], frames)}, *map(ran, "abc"))
    circle, *others = stacks_of(trace)
    assert circle is not None
    assert circle.count(";") == hlo_reader.CALLERS
    assert others == ["m/;a.py(3): h", "m/"]


@pytest.mark.parametrize(("limit", "value"), [("INSTRUCTIONS", 1), ("HEAD_NBYTES", 20), ("INSTRUCTION_NBYTES", 30)])
def test_a_program_larger_than_any_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    held = {"jit_step(7)": program("jit_step", [computation(DOT, DOT)], FRAMES)}
    monkeypatch.setattr(hlo_reader, "WHOLE_NBYTES", 0)
    monkeypatch.setattr(hlo_reader, limit, value)
    trace = read(tmp_path, held, ran("dot.1"))
    assert stacks_of(trace) == [None]
    assert trace.notes[-1].startswith("1 compiled program cannot be read")


def test_stacks_are_of_a_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"jit_step(7)": program("jit_step", [computation(DOT, instruction("b", "m", 1))], FRAMES)}
    monkeypatch.setattr(programs, "STACKS_NBYTES", 90)
    trace = read(tmp_path, held, ran("dot.1"), ran("b"))
    assert stacks_of(trace).count(None) == 1


@pytest.mark.parametrize(
    ("name", "scopes"),
    [
        ("jit(f)/transpose(jvp(Dense_0))/dot_general", ["jit(f)", "transpose(jvp(Dense_0))", "dot_general"]),
        ("jit(f)/jvp(a/b[c/d])/mul", ["jit(f)", "jvp(a/b[c/d])", "mul"]),
        ("a)/b(/c", ["a)", "b(/c"]),
        ("//x/", ["x"]),
        ("", []),
    ],
)
def test_scopes_lie_between_slashes_outside_brackets(name: str, scopes: list[str]) -> None:
    assert split_scopes(name) == scopes


def test_damaged_profiles_with_programs_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    fused = computation(instruction("q", "near", 2, id=5), id=11, root=5)
    held = {"jit_step(7)": program("jit_step", [computation(DOT, instruction("f", calls=[11])), fused], FRAMES)}
    content = space(metadata_plane(held), plane(GPU, {"Stream #1(Compute)": [ran("dot.1"), ran("f", at=9)]}))
    assert survives(_DetailedXPlane(), tmp_path / "a.xplane.pb", content) > 30
