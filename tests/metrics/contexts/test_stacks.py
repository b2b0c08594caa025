"""Call stacks in the tree, against paths that are put together row by row."""

from __future__ import annotations

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deepprof.collectors.trace import EVENT_STACKS, STACKS, Trace
from deepprof.metrics.contexts.launches import NOT_LINKED, NOT_RECORDED
from deepprof.metrics.contexts.measures import measure_contexts
from deepprof.metrics.contexts.stacks import DEEPEST_STACK, LEFT_OUT
from deepprof.metrics.contexts.tree import build_tree
from tests.chance import examples
from tests.deepprof.analysis.test_real_contexts import check_sums
from tests.metrics.contexts.test_slices import op
from tests.metrics.contexts.test_tree import paths
from tests.tables import Row, event, launch, make_trace, table

TRAIN, STEP = "a.py(9): <module>", "a.py(5): step"


def with_stacks(trace: Trace, stacks: list[str], events: dict[int, int] | None = None) -> Trace:
    """Return a trace with stacks by number, and those of device events."""
    rows = [{"stack_id": number, "frames": frames} for number, frames in enumerate(stacks)]
    of_events = [{"event": row, "stack_id": number} for row, number in (events or {}).items()]
    return replace(trace, stacks=table(rows, STACKS), event_stacks=table(of_events, EVENT_STACKS))


def walk(trace: Trace) -> list[str]:
    """Return the path of every device event."""
    tree = build_tree(trace)
    check_sums(tree, measure_contexts(trace, tree))
    known = paths(tree)
    return [known[context] for context in tree.of_events.tolist()]


def test_frames_of_a_stack_stand_around_its_row() -> None:
    host = [op(1, 0, 50, 1, stack_id=0), op(1, 5, 40, 2, stack_id=1), launch(7, 10, 20, 3)]
    trace = make_trace([event(0, 60, 70, correlation=7)], host, names=("gemm", "aten::linear", "aten::addmm", "launch"))
    trace = with_stacks(trace, [f"{STEP};{TRAIN}", f"a.py(6): inner;native;{STEP};{TRAIN}"])
    assert walk(trace) == ["thread 1/<module>/step/aten::linear/native/inner/aten::addmm/launch/gemm"]
    frames = build_tree(trace).contexts.select("kind", "name", "file", "line")
    assert frames.filter(kind="python").rows() == [
        ("python", "<module>", "a.py", 9),
        ("python", "step", "a.py", 5),
        ("python", "inner", "a.py", 6),
    ]
    assert frames.filter(kind="native")["name"].to_list() == ["native"]


def test_stacks_that_begin_alike_are_one_as_far_as_they_do() -> None:
    host = [op(1, 9 * n, 9 * n + 5, 1, stack_id=n) for n in range(3)]
    trace = with_stacks(make_trace([], host), [f"a.py({n}): f;{STEP};{TRAIN}" for n in (1, 2, 1)])
    assert paths(build_tree(trace))[4:] == [
        *("thread 1", "thread 1/<module>", "thread 1/<module>/step"),
        *["thread 1/<module>/step/f"] * 2,
        *["thread 1/<module>/step/f/k1"] * 2,
    ]


def test_python_functions_that_are_slices_are_not_put_in_again() -> None:
    host = [op(1, 0, 50, 1, category="python"), op(1, 5, 40, 2, stack_id=0), op(1, 45, 46, 3, stack_id=1)]
    trace = make_trace([], host, names=("gemm", STEP, "aten::add", "dot.1"))
    found = paths(build_tree(with_stacks(trace, [f"{STEP};{TRAIN}", f"mul/;jit(f)/;{TRAIN}"])))
    assert found[-2:] == ["thread 1/step/<module>/jit(f)/mul", "thread 1/step/<module>/jit(f)/mul/dot.1"]
    assert "thread 1/step/aten::add" in found


def test_device_events_have_stacks_of_their_own() -> None:
    device = [event(0, 60, 70, correlation=7), event(0, 80, 90, correlation=7), event(0, 91, 92), event(0, 93, 99)]
    trace = make_trace(device, [launch(7, 10, 20, 1) | {"stack_id": 1}], names=("gemm", "launch"))
    trace = with_stacks(trace, [f"dot/;jit(f)/;{TRAIN}", TRAIN], {0: 0, 2: 0, 3: 9})
    assert walk(trace) == [
        "thread 1/<module>/launch/jit(f)/dot/gemm",
        "thread 1/<module>/launch/gemm",
        f"{NOT_LINKED}/<module>/jit(f)/dot/gemm",
        f"{NOT_LINKED}/gemm",  # its stack is not in the trace
    ]
    assert walk(replace(trace, host_events=trace.host_events.clear(), accounting=make_trace(device).accounting))[2] == (
        f"{NOT_RECORDED}/<module>/jit(f)/dot/gemm"
    )


def test_what_lies_below_a_transposed_scope_is_backward() -> None:
    stacks = [f"dot/;{scope}/;jit(f)/;{TRAIN}" for scope in ("jvp(Dense)", "transpose(jvp(Dense))")]
    trace = make_trace([event(0, at, at + 5) for at in (0, 10)])
    contexts = build_tree(with_stacks(trace, stacks, {0: 0, 1: 1})).contexts
    backward = contexts.filter("backward").select("kind", "name").rows()
    assert backward == [("scope", "transpose(jvp(Dense))"), ("scope", "dot"), ("kernel", "k0")]


def test_a_very_deep_stack_is_cut_and_says_so() -> None:
    stack = ";".join(f"a.py({n}): f" for n in range(DEEPEST_STACK + 5))
    contexts = build_tree(with_stacks(make_trace([event(0, 0, 5)]), [stack], {0: 0})).contexts
    python = contexts.filter(kind="python")
    assert (python.height, python["line"].max()) == (DEEPEST_STACK, DEEPEST_STACK - 1)
    assert contexts.filter(kind="native")["name"].to_list() == [LEFT_OUT]
    assert paths(build_tree(with_stacks(make_trace([event(0, 0, 5)]), [";;"], {0: 0})))[-1] == f"{NOT_RECORDED}/k0"


WORDS = st.lists(st.sampled_from(["a.py(1): f", "a.py(2): f", "s/", "native"]), max_size=4)
HOST = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12), st.integers(0, 2), st.integers(-1, 3)), max_size=16)
DEVICE = st.lists(st.tuples(st.integers(0, 17), st.integers(-1, 3)), max_size=6)


@settings(max_examples=examples(300))
@given(st.lists(WORDS, min_size=4, max_size=4), HOST, DEVICE)
def test_paths_are_those_put_together_row_by_row(
    stacks: list[list[str]], host: list[tuple[int, int, int, int]], device: list[tuple[int, int]]
) -> None:
    rows: list[Row] = [
        op(1, start, start + length, 1 + name, stack_id=None if stack < 0 else stack, external_id=number + 1)
        for number, (start, length, name, stack) in enumerate(host)
    ]
    events = [event(0, 50 + n, 60 + n, external_id=operator + 1) for n, (operator, _) in enumerate(device)]
    trace = make_trace(events, rows, names=("gemm", "aten::a", "aten::b", "aten::c"))
    of_events = {n: stack for n, (_, stack) in enumerate(device) if stack >= 0}
    trace = with_stacks(trace, [";".join(reversed(frames)) for frames in stacks], of_events)
    tree = build_tree(trace)
    check_sums(tree, measure_contexts(trace, tree))
    names = pl.Series(trace.names).gather(tree.slices.rows["name_id"]).to_list()
    known = paths(tree)
    expected, outer = list[str](), list[list[str]]()
    for row, parent in enumerate(tree.slices.parent.tolist()):
        number = tree.slices.rows["stack_id"][row]
        own = [] if number is None else stacks[number]
        around, before = ("thread 1", []) if parent < 0 else (expected[parent], outer[parent])
        expected.append("/".join([around, *beyond(own, before), names[row]]))
        outer.append(own or before)
    assert [known[context] for context in tree.of_slices.tolist()] == expected
    for n, (_, stack) in enumerate(device):
        site = int(tree.sites.row[n])
        own = stacks[stack] if stack >= 0 else []
        around, before = (known[tree.sites.reason[n] + 1], []) if site < 0 else (expected[site], outer[site])
        assert known[tree.of_events[n]] == "/".join([around, *beyond(own, before), "gemm"])
    assert tree.contexts.drop("context").is_unique().all()  # equal paths are one context


def beyond(own: list[str], outer: list[str]) -> list[str]:
    """Return the names of the frames of a stack beyond those that it has in common with the one around it."""
    common = 0
    while common < min(len(own), len(outer)) and own[common] == outer[common]:
        common += 1
    return [frame.split(": ")[-1].removesuffix("/") for frame in own[common:]]
