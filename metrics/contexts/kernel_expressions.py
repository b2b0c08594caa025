"""Small expressions over the columns of a table, as users write them: `calls * mean_ns / nbytes`.

Numbers, names of columns, + - * / and parentheses are all there is: whatever else Python has is refused, and polars
evaluates what remains.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

import polars as pl

from deepprof.collectors.errors import UsageError, escaped

LONGEST = 200  # characters: what is nested in it stays within Python's stack
BINARY: Mapping[type[ast.operator], Callable[[pl.Expr, pl.Expr], pl.Expr]] = MappingProxyType(
    {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
)


def parse_expression(text: str, columns: Collection[str]) -> pl.Expr:
    """Return the expression in `text`, of type Float64; null where a column is, or where the result is no number.

    Raises `UsageError` for whatever is no number, none of `columns`, and none of + - * / ( ).
    """
    try:
        if len(text) > LONGEST:
            raise ValueError(f"it has more than {LONGEST} characters")
        with warnings.catch_warnings(action="ignore"):  # of the compiler, on what is refused anyway
            tree = ast.parse(text.strip(), mode="eval")
        result = _read(tree.body, columns)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = "it is no expression" if isinstance(error, SyntaxError) else str(error) or "it is nested too deep"
        known = ", ".join(columns)
        raise UsageError(
            f"{escaped(text[:LONGEST])!r}: {escaped(reason)}; use numbers, + - * / ( ) and the columns {known}"
        ) from error
    return pl.when(result.is_finite()).then(result)


def _read(node: ast.expr, columns: Collection[str]) -> pl.Expr:
    """Return one part of an expression; raises `ValueError` for what may not be in it."""
    match node:
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in BINARY:
            return BINARY[type(sign)](_read(left, columns), _read(right, columns))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            return -_read(operand, columns) if isinstance(sign, ast.USub) else _read(operand, columns)
        case ast.Constant(value=value) if type(value) in {int, float}:
            return pl.lit(_as_float(value), pl.Float64)
        case ast.Name(id=name) if name in columns:
            return pl.col(name).cast(pl.Float64)
        case ast.Name(id=name):
            raise ValueError(f"there is no column {name}")
    raise ValueError(f"{ast.unparse(node)} is not allowed")


def _as_float(value: object) -> float:
    """Return a number; raises `ValueError` for one that is too large."""
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError as error:
        raise ValueError("a number in it is too large") from error
