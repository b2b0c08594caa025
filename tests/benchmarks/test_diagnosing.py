"""The table of what a diagnosis costs comes out."""

from __future__ import annotations

import io

from rich.console import Console

from benchmarks import diagnosing


def test_the_quick_table_comes_out() -> None:
    console = Console(file=io.StringIO(), width=100)
    diagnosing.run(console, quick=True)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    row = next(line for line in printed.splitlines() if "import, analysis and report" in line)
    assert float(row.split("│")[3]) > 0
    assert "failed" not in printed
