"""Names of XLA's kernels for readers: what is added to them, and what keeps its name."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from deepprof.collectors.instructions import EVENT_INSTRUCTIONS, INSTRUCTIONS
from deepprof.collectors.names.short import shorten
from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.tree import build_tree
from deepprof.metrics.kernels.classify import find_kernel_kinds
from deepprof.metrics.kernels.readable_names import name_instructions
from deepprof.metrics.top import measure_top
from tests.tables import Row, event, make_trace, table

SCATTER = "jit(train)/jit(main)/transpose(jvp(Model))/embed/scatter-add[dims=(0, 1) mode=GatherScatterMode.CLIP]"


def run(*rows: Row, names: tuple[str, ...] = ()) -> Trace:
    """Return a trace in which each of these instructions ran once, in this order, under its name or one of `names`."""
    full: list[Row] = [{"instruction": at, "program": "jit_f", "program_id": 3, **row} for at, row in enumerate(rows)]
    called = names or tuple(str(row["name"]) for row in full)
    known = list(dict.fromkeys(called))
    events = [event(known.index(name), 10 * at, 10 * at + 5) for at, name in enumerate(called)]
    links: list[Row] = [{"event": at, "instruction": at} for at in range(len(rows))]
    return replace(
        make_trace(events, names=known),
        instructions=table(full, INSTRUCTIONS),
        event_instructions=table(links, EVENT_INSTRUCTIONS),
    )


def names_of(trace: Trace) -> list[str]:
    """Return the readable name of every device event."""
    named = name_instructions(trace)
    return named.names.gather(named.device_events["name_id"]).to_list()


@pytest.mark.parametrize(
    ("op_name", "purpose"),
    [
        (SCATTER, "embed/scatter-add"),
        ("jit(f)/jit(main)/while/body/checkpoint/layers/mlp/wi_0/dot_general", "wi_0/dot_general"),
        ("jit(multiply)/mul", "multiply/mul"),
        ("jit(<lambda>)/jit(main)/tanh", "tanh"),
        ("jit(f)/vmap(jit(g))/std::exp<float>", "g/std_exp_float"),
        ("x", "x"),
        ("jit(f)/" + "y" * 300, "f/" + "y" * 40),
    ],
)
def test_the_innermost_scopes_of_the_users_program_are_added(op_name: str, purpose: str) -> None:
    (name,) = names_of(run({"name": "fusion.1", "opcode": "fusion", "target": "kLoop", "op_name": op_name}))
    assert name == f"fusion.1 [{purpose}]"
    assert shorten(name) == name


def test_what_is_for_nothing_known_keeps_its_name_and_a_custom_call_has_its_target() -> None:
    rows: list[Row] = [
        {"name": "fusion.1", "opcode": "fusion", "target": "kLoop"},
        {"name": "custom-call.2", "opcode": "custom-call", "target": "__cublas$gemm"},
    ]
    assert names_of(run(*rows)) == ["fusion.1", "custom-call.2 [__cublas$gemm]"]


def test_a_librarys_kernel_keeps_its_name() -> None:
    row: Row = {"name": "custom-call.2", "opcode": "custom-call", "op_name": "jit(f)/dot_general"}
    assert names_of(run(row, names=("ampere_sgemm_128x64_tn",))) == ["ampere_sgemm_128x64_tn"]


def test_kernels_of_one_name_in_several_programs_stay_apart() -> None:
    row: Row = {"name": "fusion.1", "opcode": "fusion", "op_name": "a/mul"}
    rows = [row, row | {"program": "jit_g", "program_id": 4}, row | {"program": "jit_h", "program_id": 5}]
    rows += [row | {"program": "jit_h", "program_id": 6}, row | {"op_name": "a/add"}]
    assert names_of(run(*rows, names=("fusion_1",) * 5)) == [
        "fusion_1 [jit_f a/mul]",
        "fusion_1 [jit_g a/mul]",
        "fusion_1 [jit_h 5 a/mul]",
        "fusion_1 [jit_h 6 a/mul]",
        "fusion_1 [a/add]",
    ]


def test_different_names_stay_different_and_the_alphabet_keeps_its_ids() -> None:
    row: Row = {"opcode": "fusion", "op_name": "a/mul"}
    trace = run(row | {"name": "fusion.1"}, row | {"name": "fusion.2"}, row | {"name": "fusion.1"})
    assert names_of(trace) == ["fusion.1 [a/mul]", "fusion.2 [a/mul]", "fusion.1 [a/mul]"]
    assert trace.device_events["name_id"].to_list() == [0, 1, 0]
    assert name_instructions(trace).names.to_list()[: len(trace.names)] == trace.names.to_list()


def test_links_to_nothing_are_passed_over() -> None:
    trace = run({"name": "fusion.1", "op_name": "a/mul"})
    lost = table([{"event": 0, "instruction": 9}, {"event": 9, "instruction": 0}], EVENT_INSTRUCTIONS)
    named = replace(trace, event_instructions=lost)
    assert name_instructions(named) is named


def test_the_table_of_kernels_and_the_contexts_have_these_names() -> None:
    trace = run({"name": "fusion.1", "op_name": "a/mul"}, {"name": "fusion.2", "op_name": "a/add"})
    top = measure_top(trace, find_kernel_kinds(trace), 0, (np.array([0]), np.array([100])), "recording")
    assert top.kernels["name"].to_list() == ["fusion.1 [a/mul]", "fusion.2 [a/add]"]
    contexts = build_tree(trace).contexts
    assert contexts.filter(contexts["kind"] == "kernel")["name"].to_list() == ["fusion.1 [a/mul]", "fusion.2 [a/add]"]
