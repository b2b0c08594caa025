"""What the compiled programs of an XPlane profile state that each operation computes: `Trace.instructions`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from deepprof.collectors.importers.xla import hlo_reader, programs
from deepprof.collectors.importers.xla.xplane import XPlane
from deepprof.collectors.trace import Trace
from tests.collectors.damage import survives
from tests.collectors.hlo_programs import computation, instruction, metadata_plane, program
from tests.collectors.test_xplane_programs import ran
from tests.collectors.xplane_profile import GPU, data, event, plane, space

GEMM_CONFIG = (
    '{"gemm_backend_config":{"precision_config":{"operand_precision":["DEFAULT","HIGHEST"],"algorithm":"ALG_UNSET"},'
    '"selected_algorithm":"5"}}'
)
NOTHING = dict.fromkeys(("target", "parts", "operands", "factors", "precision", "op_name"))


@pytest.fixture(autouse=True, params=[hlo_reader.WHOLE_NBYTES, 0], ids=["at once", "one by one"])
def decoding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode small computations at once and large ones instruction by instruction: both find the same."""
    monkeypatch.setattr(hlo_reader, "WHOLE_NBYTES", request.param)


def read(tmp_path: Path, held: dict[str, bytes], *events: Any) -> Trace:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(space(metadata_plane(held), plane(GPU, {"Stream #1(Compute)": list(events)})))
    return XPlane().read(path)


def read_one(tmp_path: Path, *computations: bytes, name: str = "a") -> dict[str, Any]:
    """Return the row of the operation called `name` in a program of these computations."""
    trace = read(tmp_path, {"jit_step(7)": program("jit_step", computations)}, ran(name))
    assert trace.event_instructions.rows() == [(0, 0)]
    return trace.instructions.row(0, named=True)


def test_an_operation_has_its_program_and_its_shapes(tmp_path: Path) -> None:
    parts = [
        instruction("p", opcode="parameter", of="bf16[64,32]", id=3),
        instruction("q", opcode="parameter", of="f32[32,16] s8[9]", id=4),
        instruction("a", "jit(f)/dot_general", opcode="dot", of="bf16[64,16]", operands=[3, 4, 99], precision=(1, 0)),
    ]
    assert read_one(tmp_path, computation(*parts)) == NOTHING | {
        "instruction": 0,
        "program": "jit_step",
        "program_id": 7,
        "name": "a",
        "opcode": "dot",
        "shape": "bf16[64,16]",
        "operands": "bf16[64,32] f32[32,16] ",
        "factors": "bf16 f32",
        "precision": "HIGH",
        "op_name": "jit(f)/dot_general",
    }


@pytest.mark.parametrize(
    ("more", "precision"),
    [
        ({"config": GEMM_CONFIG}, "HIGHEST"),
        ({"config": GEMM_CONFIG.replace("ALG_UNSET", "ALG_DOT_BF16_BF16_F32_X3")}, "ALG_DOT_BF16_BF16_F32_X3"),
        ({"precision": (2, 9)}, "ALG_DOT_TF32_TF32_F32"),
        ({"precision": (0, 0)}, "DEFAULT"),
        ({"precision": (77, 2**40)}, None),
        ({"config": "{"}, None),
    ],
)
def test_a_custom_call_has_its_target_and_how_exactly_it_multiplies(
    tmp_path: Path, more: dict[str, Any], precision: str | None
) -> None:
    operands = [instruction(f"p{n}", opcode="parameter", of="f32[8,8]", id=n) for n in (3, 4)]
    call = instruction("a", opcode="custom-call", target="__cublas$gemm", of="f32[8,8]", operands=[3, 4], **more)
    found = read_one(tmp_path, computation(*operands, call))
    assert (found["target"], found["factors"], found["precision"]) == ("__cublas$gemm", "f32 f32", precision)


def test_a_fusion_has_the_opcodes_within_it_and_its_product(tmp_path: Path) -> None:
    inner = computation(
        instruction("x", opcode="parameter", of="s8[4,4]", id=11),
        instruction("y", opcode="convert", of="bf16[4,4]", id=12, operands=[11]),
        instruction("z", opcode="convert", of="bf16[4,4]", id=13, operands=[11]),
        instruction("i", opcode="add", of="s32[]", id=14),
        instruction("d", opcode="dot", of="f32[4,4]", id=15, operands=[12, 13], precision=(0, 0)),
        id=2,
        root=15,
    )
    outer = computation(
        instruction("n", of="f32[4,4]", id=21, calls=[2]),
        instruction("m", opcode="multiply", of="f32[4,4]", id=22),
        id=3,
        root=22,
    )
    config = '{"fusion_backend_config":{"kind":"__triton_gemm"}}'
    fusion = instruction("a", of="f32[4,4]", kind="kCustom", config=config, calls=[3])
    found = read_one(tmp_path, inner, outer, computation(fusion))
    assert (found["opcode"], found["target"], found["parts"]) == ("fusion", "__triton_gemm", "convert dot multiply")
    assert (found["factors"], found["precision"], found["operands"]) == ("bf16 bf16", "DEFAULT", None)


def test_what_a_reduction_calls_is_no_part_of_it_and_single_numbers_count_where_nothing_else_is(tmp_path: Path) -> None:
    add = computation(instruction("s", opcode="add", of="f32[]", id=11), id=2, root=11)
    reduce = instruction("a", opcode="reduce", of="f32[8]", calls=[2])
    assert read_one(tmp_path, add, computation(reduce))["parts"] is None
    fusion = instruction("a", of="f32[]", kind="kLoop", calls=[2])
    assert read_one(tmp_path, add, computation(fusion))["parts"] == "add"


def test_a_fusion_without_a_name_of_its_own_has_that_of_its_root(tmp_path: Path) -> None:
    inner = computation(
        *[instruction(f"v{n}", "often", opcode="add", of="f32[4]", id=n) for n in (11, 12)],
        instruction("r", "jit(f)/embed/scatter-add", 1, opcode="scatter", of="f32[4]", id=13),
        id=2,
        root=13,
    )
    held = program("jit_step", [inner, computation(instruction("a", calls=[2]))], [("a.py", "f", 3, 0)])
    trace = read(tmp_path, {"jit_step(7)": held}, ran("a"))
    assert trace.instructions["op_name"].to_list() == ["jit(f)/embed/scatter-add"]


def test_operations_of_one_name_are_told_apart_by_the_programs_number(tmp_path: Path) -> None:
    held = {
        f"jit_f({number})": program("jit_f", [computation(instruction("a", opcode=opcode, of="f32[4]"))])
        for number, opcode in ((7, "tanh"), (8, "sort"))
    }
    ends = [("a", 7, "jit_f", 0), ("a", 8, "jit_f", 10), ("a", 7, "jit_f", 20), ("a", 9, "jit_f", 30)]
    trace = read(tmp_path, held, *(ran(name, number, module, at) for name, number, module, at in ends))
    opcodes = trace.instructions["opcode"].gather(trace.event_instructions["instruction"])
    assert list(zip(trace.event_instructions["event"], opcodes, strict=True)) == [(0, "tanh"), (1, "sort"), (2, "tanh")]


def test_computations_that_call_each_other_in_a_circle_are_counted_once(tmp_path: Path) -> None:
    circle = [
        computation(
            instruction(f"f{own}", of="f32[4]", id=10 + own, calls=[other, own, 99]),
            instruction(f"t{own}", opcode=opcode, of="f32[4]", id=20 + own),
            id=own,
            root=20 + own,
        )
        for own, other, opcode in ((2, 3, "tanh"), (3, 2, "sort"))
    ]
    found = read_one(tmp_path, *circle, computation(instruction("a", calls=[2])))
    assert found["parts"] == "sort tanh"


def test_sizes_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [instruction(f"i{n}", opcode=f"op{n}", of="f32[4]", id=100 + n) for n in range(40)]
    sized = ",".join(["7"] * 50)
    fusion = instruction("a", "s" * 5000, of=f"f32[{sized}]", calls=[2], kind="k" * 500)
    found = read_one(tmp_path, computation(*many, id=2, root=100), computation(fusion))
    assert len(found["parts"].split()) == hlo_reader.OPCODES
    assert len(found["op_name"]) == hlo_reader.TEXT_CHARS
    assert found["shape"].count("7") == hlo_reader.RANK
    assert len(found["target"]) == hlo_reader.OPCODE_CHARS
    monkeypatch.setattr(programs, "INSTRUCTIONS_CHARS", 20)
    parts = [instruction("b", "jit(f)/mul", opcode="multiply", of="f32[4]"), instruction("c", "x", opcode="add")]
    held = {"jit_step(7)": program("jit_step", [computation(*parts)])}
    trace = read(tmp_path, held, ran("c"), ran("b", at=9))
    assert trace.instructions["name"].to_list() == ["c"]
    assert trace.event_instructions.rows() == [(0, 0)]


def test_a_constant_may_be_large_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hlo_reader, "WHOLE_NBYTES", 0)
    monkeypatch.setattr(hlo_reader, "DECLARED_NBYTES", 200)
    constant = instruction("a", "table", opcode="constant", of="f32[400]") + data(8, bytes(1600))
    assert read_one(tmp_path, computation(constant))["op_name"] == "table"
    wide = instruction("a", "t" * 300, opcode="constant", of="f32[400]")
    trace = read(tmp_path, {"jit_step(7)": program("jit_step", [computation(wide)])}, ran("a"))
    assert trace.instructions.is_empty()
    assert trace.notes[-1].startswith("1 compiled program cannot be read")


def test_tuples_in_tuples_end(tmp_path: Path) -> None:
    nested = b""
    for _ in range(90):
        nested = bytes([2 << 3, 13]) + data(4, nested)
    found = read_one(tmp_path, computation(instruction("a", opcode="tuple") + data(3, nested)))
    assert found["shape"] is None
    for _ in range(900):
        nested = bytes([2 << 3, 13]) + data(4, nested)
    held = {"jit_step(7)": program("jit_step", [computation(instruction("a", opcode="tuple") + data(3, nested))])}
    assert read(tmp_path, held, ran("a")).notes[-1].startswith("1 compiled program cannot be read")


def test_damaged_instructions_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    inner = computation(instruction("d", opcode="dot", of="f32[4,4]", id=15, operands=[1, 2]), id=2, root=15)
    parts = computation(
        instruction("a", "f/g", of="f32[4,4]", calls=[2], kind="kInput", config=GEMM_CONFIG, precision=(2, 3)),
        instruction("b", opcode="custom-call", target="__cublas$gemm", of="f32[4] f32[2]", operands=[1, 2, 3]),
    )
    held = {"jit_step(7)": program("jit_step", [inner, parts])}
    content = space(
        metadata_plane(held), plane(GPU, {"Stream #1(Compute)": [ran("a"), ran("b", at=9), event("c", 20, 1)]})
    )
    assert survives(XPlane(), tmp_path / "a.xplane.pb", content) > 30


def test_events_that_are_cut_off_lose_their_instructions(tmp_path: Path) -> None:
    from deepprof.collectors.time_range import cut

    held = {"jit_step(7)": program("jit_step", [computation(*[instruction(n, opcode="add") for n in "ab"])])}
    trace = read(tmp_path, held, ran("a"), event("k", 10, 5), ran("b", at=20), ran("a", at=30))
    part = cut(trace, 10, 30)
    assert part.instructions.equals(trace.instructions)
    names = part.instructions["name"].gather(part.event_instructions["instruction"])
    assert list(zip(part.event_instructions["event"], names, strict=True)) == [(1, "b")]
    assert isinstance(trace.instructions, pl.DataFrame)
