"""Two runs step by step: the differences add up, and behind each step is what it is made of."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

import deepprof
from deepprof.comparison import compare
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.results.comparison_result import (
    CodeLine,
    Comparison,
    ContextChange,
    CopyChange,
    KernelChange,
    LayerChange,
    LayersInBoth,
    Measure,
    PartChange,
    StagesInBoth,
)
from deepprof.web.documents.diff import MOST_BEHIND, DiffDocument, write_diff
from deepprof.web.documents.schema import CodePlace
from tests.deepprof.builders import build_analysis
from tests.deepprof.web.documents.columns import again
from tests.tables import copy, event, make_trace

NAMES = ["copy", "gemm", "norm", "ncclDevKernel_AllReduce"]
HOSTILE = ("</script><script>alert(1)</script>", "a\0b\u202ec", "x" * 10_000)


def compare_runs(longer: int = 0, copied: int = 1_000) -> Comparison:
    """Compare jobs of kernels and copies, of which the second one's first kernel lasts longer."""
    return compare(run_of(0, 1_000), run_of(longer, copied))


def run_of(longer: int, copied: int) -> deepprof.Analysis:
    rows, now = [], 1_000_000
    for _ in range(8):
        rows.append(copy(now, now + copied, 4_096))
        now += copied + 500
        for name, length in ((1, 50_000 + longer), (2, 80_000), (1, 30_000), (3, 20_000), (2, 10_000)):
            rows.append(event(name, now, now + length))
            now += length
        now += 90_000
    return deepprof.analyze(make_trace(rows, names=NAMES))


@pytest.fixture(scope="module")
def slower() -> Comparison:
    return compare_runs(longer=40_000, copied=5_000)


def test_steps_add_up_to_the_difference_of_the_means(slower: Comparison) -> None:
    document = again(write_diff(slower))
    assert isinstance(document, DiffDocument)
    assert (document.a_title, document.verdict) == ("made by hand", "slower")
    assert sum(step.a_ns for step in document.steps) == document.a_ns
    assert sum(step.b_ns for step in document.steps) == document.b_ns
    assert document.b_ns - document.a_ns == 44_000
    names = [step.name for step in document.steps]
    assert names == [name for name in PART_NAMES if name in names]
    assert [(step.title, step.b_ns - step.a_ns) for step in document.steps if step.b_ns != step.a_ns] == [
        ("compute", 40_000),
        ("copies from host, exposed", 4_000),
    ]
    assert all(step.a_ns or step.b_ns for step in document.steps)


def test_behind_a_step_is_what_it_is_made_of(slower: Comparison) -> None:
    steps = {step.name: step for step in write_diff(slower).steps}
    (kernel,) = steps["compute_ns"].behind
    assert (kernel.title, kernel.b_ns - kernel.a_ns, kernel.status) == ("gemm", 40_000, "changed")
    (copies,) = steps["exposed_htod_ns"].behind
    assert (copies.title, copies.a_ns, copies.b_ns) == ("copies from host", 1_000, 5_000)
    assert steps["exposed_communication_ns"].behind == []


def edited(comparison: Comparison, **changes: object) -> DiffDocument:
    """Return the document of a comparison whose first pair is changed."""
    pair = replace(comparison.pairs[0], **changes)  # type: ignore[arg-type]
    return write_diff(replace(comparison, pairs=(pair,)))


def test_new_and_gone_kernels_and_collectives_apart(slower: Comparison) -> None:
    kernels = (
        KernelChange("fused", 0.0, 2.0, 0, 90),
        KernelChange("ncclDevKernel_AllReduce", 1.0, 1.0, 10, 70),
        KernelChange("gelu", 1.0, 0.0, 50, 0),
    )
    document = edited(slower, kernels=kernels)
    steps = {step.name: [(row.title, row.status) for row in step.behind] for step in document.steps}
    assert steps["compute_ns"] == [("fused", "new"), ("gelu", "gone")]
    assert steps["exposed_communication_ns"] == [("ncclDevKernel_AllReduce", "changed")]
    assert [row.title for row in document.kernels] == ["fused", "ncclDevKernel_AllReduce", "gelu"]


def context(
    name: str, measure: Measure = "host", a: CodeLine | None = None, b: CodeLine | None = None
) -> ContextChange:
    return ContextChange(status="changed", measure=measure, kind="python", path=(name,), a=a, b=b, a_ns=10, b_ns=90)


def test_behind_waits_is_code_on_the_host(slower: Comparison) -> None:
    line = CodeLine("load", "data.py", 12)
    found = (context("load", b=line), context("forward", "device", a=line))
    document = edited(slower, contexts=found, parts=(PartChange("idle_input_ns", 0, 80),))
    (step,) = document.steps
    assert (step.title, step.idle) == ("idle: data loading", True)
    assert [(row.title, row.measure, row.source) for row in step.behind] == [
        ("load data.py:12", "host", CodePlace(file="data.py", line=12, function="load"))
    ]
    assert [row.measure for row in document.contexts] == ["host", "device"]


def test_few_rows_are_behind_a_step_the_largest_first(slower: Comparison) -> None:
    kernels = tuple(KernelChange(f"k{k}", 1.0, 1.0, 0, k) for k in range(100))
    behind = edited(slower, kernels=kernels).steps[0].behind
    assert [row.b_ns for row in behind] == list(range(99, 99 - MOST_BEHIND, -1))


def test_copies_of_every_direction_are_in_one_step(slower: Comparison) -> None:
    ways = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "unknown", "memset")
    copies = tuple(CopyChange(way, 1.0, 1.0, 5, 9, 0, 0) for way in ways)
    parts = tuple(PartChange(name, 1, 2) for name in PART_NAMES)
    steps = edited(slower, copies=copies, parts=parts).steps
    shown = {step.name: [row.title for row in step.behind] for step in steps if step.name.startswith("exposed_")}
    assert shown == {
        "exposed_communication_ns": [],
        "exposed_htod_ns": ["copies from host"],
        "exposed_dtoh_ns": ["copies to host"],
        "exposed_dtod_ns": ["copies on device"],
        "exposed_ptop_ns": ["copies to peers"],
        "exposed_copy_ns": ["copies between hosts", "copies direction unknown"],
        "exposed_memset_ns": ["memset"],
    }


def test_what_cannot_be_compared_is_said(slower: Comparison) -> None:
    document = edited(slower, stages=StagesInBoth(problem="none is known"), layers=LayersInBoth(problem="others"))
    assert document.missing == ["not compared by stage: none is known", "not compared by layer: others"]


def test_names_stay_text(slower: Comparison) -> None:
    for name in HOSTILE:
        layers = LayersInBoth(rows=(LayerChange(name, 1, 2, 0, 0, 0, 0),), changed=1)
        line = CodeLine(name, name, None)
        document = edited(
            slower, kernels=(KernelChange(name, 1.0, 1.0, 1, 2),), layers=layers, contexts=(context(name, b=line),)
        )
        document = again(document)
        assert document.kernels[0].title.startswith(name[:400])
        assert document.layers[0].title.startswith(name[:400])
        assert len(document.kernels[0].title) <= 1_000
        assert document.contexts[0].source is not None
        assert document.contexts[0].source.line == 0


def test_the_answers_of_both_runs_are_in_it(slower: Comparison) -> None:
    document = again(write_diff(slower))
    assert (document.a_answer, document.b_answer) == (slower.a_answer.summary, slower.b_answer.summary)
    assert document.a_answer.startswith("A loop of 8 iterations, ")
    for name in HOSTILE:
        named = replace(slower, a_answer=msgspec.structs.replace(slower.a_answer, summary=name))
        assert again(write_diff(named)).a_answer.startswith(name[:400])


def test_runs_are_named_by_their_files(slower: Comparison) -> None:
    named = replace(slower, a_paths=("/runs/before/",), b_paths=("C:\\runs\\after.json", "b", "c"))
    document = write_diff(named)
    assert (document.a_title, document.b_title) == ("before", "after.json and 2 more")


def test_nothing_to_compare() -> None:
    document = again(write_diff(compare(build_analysis(loops=()), build_analysis(loops=()))))
    assert document.steps == document.kernels == []
    assert (document.verdict, document.a_ns, document.b_ns) == ("unclear", 0, 0)
