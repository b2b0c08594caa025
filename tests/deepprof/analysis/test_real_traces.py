"""Every real trace: the true iteration where there is one, a reason where there is none, one line where unreadable."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import deepprof
from deepprof.diagnosis.engine import rules_on_work
from deepprof.metrics.sequence import main_sequence
from tests import manifest
from tests.deepprof.analysis.conftest import Analyzed
from tests.deepprof.diagnosis.books import check_books
from tests.hidden import without_ranges

# Kernels per iteration on the main stream, complete iterations in the trace. Periods of the streams that repeat
# exactly are checked against brute force below; the others were counted between annotations.
TRUE_LOOPS = {
    "tb-resnet50-nw0": (1476, 6),
    "tb-resnet50-nw4": (1452, 6),
    "tb-resnet50-nw0-c": (1462, 6),
    "tb-resnet50-nw4-d": (1478, 6),
    "tb-resnet50-autograd-nw0": (1455, 6),
    "hta-nccl-parser": (893, 3),
    "hta-negqueue": (1001, 5),
    "hta-gpu-annot": (26, 5),
    "hta-cpu-only": (346, 5),  # operators, which represent kernels
    "param-linear": (220, 40),
    "tl-resnet-ckpt": (742, 3),
    "tl-flux-sage": (1573, 4),
    "cs336-zx-base": (692, 4),
    "cs336-zx-2_7B": (1832, 4),
    "cs336-zx-2_7B-nvtx": (1832, 4),
    "cs336-zx-2_7B-clean": (1832, 10),
    "cs336-zx-2_7B-compile": (4, 10),  # three kernels and a graph launch, which is one event
    "hta-diff-test": (1510, 6),
    "param-resnet": (321, 30),
    "tl-ddp-resnet18-nopool": (472, 5),
}
TWO_LOOPS = {"cs336-jsun": ((1978, 5), (692, 10))}  # training steps, then forward passes
OTHER_LOOPS = {  # recorded by other tools, and not annotated by PyTorch
    "tl-jax-conv-08": (5, 5),  # on each of 8 devices
    "tl-jax08-attention": (29, 3),
    "jaxtb-maxtext-fsdp4": (985, 5),  # on each of 4 devices
    "tl-jax-conv-legacy": (5, 5),
    "nvprof-csv-bh": (8, 150),
    "rpd-raptor": (404, 20),
    "tl-rocprof-json": (746, 50),
    "nvprof-csv-pagerank": (12, 46),
    "nvprof-csv-cg": (9, 8),
    "nvprof-csv-stencil2d": (1, 11_000),  # of single precision; those of double precision follow
    "rocprofv3-csv-llamacpp/decode_kernel_trace.csv": (24, 5),
    "pipit-saxpy": (1, 5),  # only the user's five ranges show them
}
ONLY_MARKED = {"pipit-saxpy"}
# Layers of one forward pass, which was replayed as a single graph: nothing in the file states that it was one pass.
MISTAKEN = {"rocprofv3-csv-llamacpp/prefill_kernel_trace.csv": 0.6}
INEXACT = {"tb-resnet50-autograd-nw0", "hta-cpu-only", "param-linear", "tl-flux-sage", "hta-diff-test", "param-resnet"}
EXACT = set(TRUE_LOOPS) - INEXACT
PYTORCH_OR_NSYS = ("kineto-json", "nsys-sqlite")
REFUSED = ("pyprof-csv", "nsys-rep (binary)")


def true_loops(file: str) -> tuple[tuple[int, int], ...]:
    """Return period and iterations of every loop of a file, the one with most kernels first."""
    known, case = TRUE_LOOPS | OTHER_LOOPS, file.split("/", maxsplit=1)[0]
    one = known.get(file, known.get(case))
    return TWO_LOOPS.get(case, () if one is None else (one,))


def test_every_file_is_reported_or_refused_in_one_line(file: Analyzed) -> None:
    row, found = file
    assert isinstance(found, deepprof.TraceError) == (row["format"] in REFUSED), found
    if isinstance(found, deepprof.TraceError):
        assert "\n" not in str(found)
        assert row["file"].split("/")[-1] in str(found)
        return
    report = json.loads(found.to_json())
    assert (report["no_loop_reason"] is None) == bool(report["loops"])
    accounting = report["trace"]["accounting"]
    assert accounting["read"] == accounting["kept"] + sum(accounting["dropped"].values()) > 0
    assert report["trace"]["busy_ns"] + report["trace"]["idle_ns"] == report["trace"]["span_ns"]


def test_the_findings_of_every_file_keep_the_books(file: Analyzed) -> None:
    _, found = file
    if not isinstance(found, deepprof.TraceError):
        check_books(found)


def test_the_true_iteration_is_found_and_nothing_else(file: Analyzed) -> None:
    row, found = file
    if isinstance(found, deepprof.TraceError):
        return
    expected = true_loops(row["file"])
    if not expected:
        assert all(loop.confidence < MISTAKEN.get(row["file"], 0) for loop in found.loops)
        return
    devices = 4 if row["format"].startswith("nsys-jax") else int(row["ranks_or_devices"])  # four H100s, states its note
    assert len(found.loops) == devices * len(expected)
    for loop, (period, iterations) in zip(found.loops, expected * devices, strict=True):
        assert loop.period == period
        assert abs(int(loop.iterations["complete"].sum()) - iterations) <= 1


@pytest.mark.widens(6)
@pytest.mark.parametrize("row", manifest.rows(*PYTORCH_OR_NSYS))
def test_the_same_is_found_when_nobody_annotated_anything(traces: Path, row: dict[str, str]) -> None:
    case = row["file"].split("/")[0]
    loops = deepprof.analyze(without_ranges(deepprof.read(manifest.path_of(row)))).loops
    assert [loop.period for loop in loops] == [period for period, _ in true_loops(case) if case not in ONLY_MARKED]
    assert all(loop.boundary_source == "mined" for loop in loops)


@pytest.mark.widens(4)
@pytest.mark.parametrize(
    "row", [p for p in manifest.rows(*PYTORCH_OR_NSYS) if str(p.id).split("/")[0] in EXACT | {"absent"}]
)
def test_periods_agree_with_brute_force(traces: Path, row: dict[str, str]) -> None:
    trace = deepprof.read(manifest.path_of(row))
    (loop,) = deepprof.analyze(trace).loops
    symbols = main_sequence(trace, loop.device, loop.stream).symbols
    smallest = next(p for p in range(1, len(symbols)) if np.array_equal(symbols[p:], symbols[:-p]))
    assert loop.period == smallest


def test_single_process_loading_shows_and_workers_do_not(traces: Path) -> None:
    slow = deepprof.analyze(deepprof.read(traces / "tb-resnet50-nw0/worker0.pt.trace.json.gz"))
    fast = deepprof.analyze(deepprof.read(traces / "tb-resnet50-nw4/worker0.pt.trace.json.gz"))
    interval, operation = (slow.metrics[c][0] for c in ("avg_interval_ns", "avg_operation_ns"))
    assert interval > 0.25 * operation
    assert slow.metrics["avg_overlap_ratio"][0] < 0.1
    assert slow.headline is not None
    assert slow.headline.rule == "input-bound"
    assert str((slow.headline.location or {}).get("range", "")).startswith("enumerate(DataLoader)")
    assert fast.metrics["avg_interval_ns"][0] < 0.1 * interval + 1e6
    assert "input-bound" not in {finding.rule for finding in fast.findings}
    assert fast.headline is not None
    assert fast.headline.rule in rules_on_work()


def test_the_papers_mode_finds_the_same_iterations(traces: Path) -> None:
    trace = deepprof.read(traces / "tb-resnet50-nw0-c/worker0.1623143089861.pt.trace.json.gz")
    (paper,) = deepprof.analyze(trace, counts=[6]).loops
    (mined,) = deepprof.analyze(trace).loops
    assert paper.period == mined.period
    assert paper.iterations.height == mined.iterations.filter("complete").height
