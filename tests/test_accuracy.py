"""No row of the committed accuracy table may get worse."""

from __future__ import annotations

from pathlib import Path

from benchmarks import accuracy

TABLE = Path(__file__).parents[1] / "docs" / "accuracy.md"


def committed() -> dict[tuple[str, str], dict[str, str]]:
    lines = [line.strip("| \n").split(" | ") for line in TABLE.read_text().splitlines() if line.startswith("|")]
    rows = [dict(zip(lines[0], cells, strict=True)) for cells in lines[2:]]
    return {(row["trace"], row["look"]): row for row in rows}


def test_no_row_gets_worse(traces: Path) -> None:
    before = committed()
    now = {(row.trace, row.look): row for row in accuracy.rows(traces)}
    assert set(now) == set(before)
    for key, row in now.items():
        _, _, _, _, period, iterations, f1, _ = row.cells()
        old = before[key]
        assert period == old["period"], key
        assert abs(int(iterations) - int(old["iterations"])) <= 1, key
        assert f1 == old["F1"] == "-" or float(f1) >= float(old["F1"]), key
