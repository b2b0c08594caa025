"""The table of what shapes cost comes out, of a file whose operators have them."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

import deepprof
from benchmarks import shapes


def test_the_quick_table_comes_out() -> None:
    console = Console(file=io.StringIO(), width=100)
    shapes.run(console, quick=True)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    for what in ("reading", "a whole diagnosis"):
        row = next(line for line in printed.splitlines() if what in line)
        assert all(float(cell) > 0 for cell in row.split("│")[2:5])


def test_the_generated_file_is_a_loop_with_operands(tmp_path: Path) -> None:
    shapes.write_trace(tmp_path / "a.json", shapes.QUICK_ITERATIONS)
    analysis = deepprof.analyze(deepprof.read(tmp_path / "a.json"))
    (loop,) = analysis.loops
    assert loop.roofline is not None
    assert loop.roofline.mfu_ratio is not None
    operators = shapes.QUICK_ITERATIONS * shapes.LAYERS * len(shapes.OPERATORS)
    assert (analysis.traces[0].operands.height, analysis.traces[0].launch_shapes.height) == (operators, operators)
