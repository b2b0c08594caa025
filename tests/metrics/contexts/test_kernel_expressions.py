"""Expressions over columns: as Python reckons them, and nothing that is more than arithmetic."""

from __future__ import annotations

import math
import warnings

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.errors import UsageError
from deepprof.metrics.contexts.kernel_expressions import LONGEST, parse_expression

COLUMNS = ("calls", "mean_ns")
NUMBERS = st.integers(0, 99).map(str) | st.sampled_from(["0.5", "1e3", "calls", "mean_ns"])
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda inner: (
        st.tuples(inner, st.sampled_from("+-*/"), inner).map("({0[0]} {0[1]} {0[2]})".format) | inner.map("-{}".format)
    ),
    max_leaves=6,
)


@given(EXPRESSIONS, st.none() | st.integers(-5, 5), st.floats(-9, 9))
def test_it_is_what_python_reckons(text: str, calls: int | None, mean: float) -> None:
    table = pl.DataFrame({"calls": [calls], "mean_ns": [mean]}, {"calls": pl.Int64, "mean_ns": pl.Float64})
    (got,) = table.select(parse_expression(text, COLUMNS)).to_series()
    names = {"calls": None if calls is None else float(calls), "mean_ns": mean}
    if calls is None and "calls" in text:
        assert got is None
        return
    try:
        expected = float(eval(text, {"__builtins__": {}}, names))  # noqa: S307  of our own making
    except ZeroDivisionError:
        return  # IEEE goes on with infinity where Python stops
    assert got is None if not math.isfinite(expected) else got == pytest.approx(expected)


@pytest.mark.parametrize("text", ["calls / 0", "0 / 0", "-calls / 0"])
def test_what_is_no_number_is_null(text: str) -> None:
    assert pl.DataFrame({"calls": [1]}).select(parse_expression(text, COLUMNS)).to_series().to_list() == [None]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "calls;1",
            "calls =1",
            "x := 1",
            "(calls",
            "1if",
            "\0",
            "calls\n1",
            "lambda: 1",
            "yield",
            "await calls",
        ),
        *("__import__('os')", "calls.mean", "calls[0]", "[calls]", "'a'", "True", "None", "1j", "...", "f'{calls}'"),
        *("calls ** 9", "calls // 2", "calls % 2", "calls << 9", "calls @ calls", "not calls", "~calls", "calls < 1"),
        *("calls if 1 else 2", "calls and 1", "read_csv('/etc/passwd')", "cаlls", "other", "1" + "0" * 400),
        *("(" * 150 + "1" + ")" * 150, "{calls}", "*calls", "print(1)", "calls,"),
    ],
)
def test_everything_else_is_refused_in_one_line(text: str) -> None:
    with warnings.catch_warnings(action="error"), pytest.raises(UsageError) as refused:
        parse_expression(text, COLUMNS)
    assert str(refused.value).endswith("use numbers, + - * / ( ) and the columns calls, mean_ns")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 3 * LONGEST + 200


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(" * 99 + "1" + ")" * 99, 1.0),
        ("-" * 199 + "1", -1.0),
        ("9" * 190, float("9" * 190)),
        ("1e999", None),
        (" +calls ", 3.0),
    ],
)
def test_long_ones_are_reckoned(text: str, value: float | None) -> None:
    assert pl.DataFrame({"calls": [3]}).select(parse_expression(text, COLUMNS)).to_series().to_list() == [value]
