"""The tables: written, read back, and compared."""

from __future__ import annotations

import pytest

from benchmarks.accuracy.tables import Table, is_worse, read_rows, worse

COLUMNS = {"case": "key", "F1": "more", "loops": "fewer", "period": "same", "iterations": "about", "seen": "any"}


def table(*rows: list[str]) -> Table:
    return Table("Some", "A note\nof two lines.", COLUMNS, list(rows))  # type: ignore[arg-type]


ROW = ["clean", "0.95", "1", "400", "30", "7"]


def test_a_written_table_is_read_back() -> None:
    document = f"# All\n\n{table(ROW, ['cut', *ROW[1:]]).markdown()}\n## Other\n\n| a |\n| --- |\n| b |\n"
    assert read_rows(document, "Some") == [ROW, ["cut", *ROW[1:]]]
    assert read_rows(document, "Other") == [["b"]]


def changes(now: list[str]) -> list[str]:
    return list(worse(table(now), "\n" + table(ROW).markdown()))


@pytest.mark.parametrize(
    "now",
    [
        ["clean", "0.95", "1", "400", "30", "7"],
        ["clean", "1.00", "0", "400", "31", "-"],
        ["clean", "0.946", "1", "400", "29", "9"],
    ],
)
def test_what_is_as_good_or_better_is_not_worse(now: list[str]) -> None:
    assert changes(now) == []


@pytest.mark.parametrize(
    ("now", "column"),
    [
        (["clean", "0.94", "1", "400", "30", "7"], "F1"),
        (["clean", "-", "1", "400", "30", "7"], "F1"),
        (["clean", "0.95", "2", "400", "30", "7"], "loops"),
        (["clean", "0.95", "1", "401", "30", "7"], "period"),
        (["clean", "0.95", "1", "-", "30", "7"], "period"),
        (["clean", "0.95", "1", "400", "28", "7"], "iterations"),
        (["clean", "0.95", "1", "400", "32", "7"], "iterations"),
    ],
)
def test_what_got_worse_is_named(now: list[str], column: str) -> None:
    (said,) = changes(now)
    assert column in said
    assert "clean" in said


def test_rows_must_stay_the_same() -> None:
    assert "other rows" in changes(["new", *ROW[1:]])[0]
    assert list(worse(table(ROW), "nothing")) == ["Some: other rows: [('clean',)]"]


def test_a_figure_where_there_was_none_is_not_worse() -> None:
    assert not is_worse("more", "-", "0.10")
    assert is_worse("same", "-", "400")
