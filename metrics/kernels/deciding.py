"""What kernels compute, given what their names show and which operators launched them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.kernels.kinds import KERNEL_KINDS, PRECISIONS, PRODUCTS
from deepprof.metrics.kernels.launch_rules import OperatorRule, read_rules
from deepprof.metrics.kernels.launching import LaunchOperators
from deepprof.metrics.kernels.name_matching import find_first, search, search_each

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

PLACES = ("name", "nearest", "deciding", "operands", "telling")
LONGEST_TYPES = 500  # characters of the types of an operator's operands that are searched


def decide(
    names: pl.Series, kinds: pl.DataFrame, number: Int64s, launched: LaunchOperators | None
) -> tuple[pl.DataFrame, Int64s]:
    """Return the table of kernels (`name`, `operator`, `KERNEL_KINDS`), and the row for every event.

    `kinds` is what `names` show, `number` the place of every event's name.
    """
    if launched is None:
        operator = pl.Series([None] * len(names), dtype=pl.String)
        return pl.DataFrame({"name": names, "operator": operator}).hstack(kinds), number
    places = {name: number if name == "name" else getattr(launched, name) for name in PLACES}
    events = pl.DataFrame(places).with_columns(launched.dtypes.str.slice(0, LONGEST_TYPES).alias("dtypes"))
    pairs = events.unique(maintain_order=True)
    table = _decide_pairs(names, kinds, pairs, launched)
    rows = table.unique(maintain_order=True).with_row_index("row")
    of_pairs = table.join(rows, on=table.columns, how="left", nulls_equal=True, maintain_order="left")["row"]
    numbered = pairs.with_columns(row=of_pairs.cast(pl.Int64))
    of_events = events.join(numbered, on=events.columns, how="left", nulls_equal=True, maintain_order="left")["row"]
    return rows.drop("row"), of_events.to_numpy()


def _decide_pairs(
    names: pl.Series, kinds: pl.DataFrame, pairs: pl.DataFrame, launched: LaunchOperators
) -> pl.DataFrame:
    """Return a row of the table for every distinct kernel and operators around it."""
    name = pairs["name"].to_numpy()
    operators = launched.names.extend_constant(None, 1)
    deciding, telling = pairs["deciding"].to_numpy(), pairs["telling"].to_numpy()
    known = kinds[name]
    rule = _find_rules(names.gather(name), known, operators.gather(deciding), pairs["operands"].to_numpy())
    open_ = (known["library"].is_null() | (known["category"] == "unknown")).to_numpy()
    by_operator = (rule < 0) & open_ & (telling >= 0)
    operator = np.where(rule >= 0, deciding, np.where(by_operator, telling, pairs["nearest"].to_numpy()))
    category = [*(each.category for each in read_rules().rules), None]
    told = pl.concat([launched.kinds["category"], pl.Series([None], dtype=launched.kinds.schema["category"])])
    decided = pl.Series("category", category, dtype=KERNEL_KINDS["category"])[rule]
    decided = decided.zip_with(pl.Series(~by_operator), told.gather(telling))
    rows = known.with_columns(
        category=decided.fill_null(known["category"]),
        sure=known["sure"] & pl.Series((rule < 0) & ~by_operator),
    )
    return pl.DataFrame({"name": names.gather(name), "operator": operators.gather(operator)}).hstack(
        _fill_precision(rows, pairs["dtypes"])
    )


def _find_rules(names: pl.Series, kinds: pl.DataFrame, operators: pl.Series, operands: Int64s) -> Int64s:
    """Return the number of the rule that decides on every kernel, -1 for none."""
    found = np.full(len(names), -1, np.int64)
    rules, category, sure = read_rules().rules, kinds["category"].to_numpy(), kinds["sure"].to_numpy()
    named = search_each(operators.fill_null(""), [rule.operator for rule in rules])
    is_known = operators.is_not_null().to_numpy()
    for number, rule in enumerate(rules):
        fits = is_known & (found < 0) & named[number] & _fits(rule, category, sure, operands)
        some = np.flatnonzero(fits)
        if rule.kernel is not None and len(some):
            some = some[search(names.gather(some), [rule.kernel])]
        found[some] = number
    return found


def _fits(rule: OperatorRule, category: npt.NDArray[np.object_], sure: Bools, operands: Int64s) -> Bools:
    fits = np.ones(len(category), np.bool_)
    if rule.kinds:
        fits &= np.isin(category, rule.kinds)
    if rule.doubtful:
        fits &= ~sure
    if rule.operands is not None:
        fits &= operands == ("equal", "different").index(rule.operands) + 1
    return fits


def _fill_precision(rows: pl.DataFrame, dtypes: pl.Series) -> pl.DataFrame:
    """Return the rows with the precision of products by the types of operands where the name does not show it."""
    is_product = rows["category"].is_in(PRODUCTS)
    open_ = np.flatnonzero((is_product & rows["precision"].is_null() & dtypes.is_not_null()).to_numpy())
    given = [each for each in read_rules().types if each.precision is not None]
    found = find_first(dtypes.gather(open_), [each.match for each in given])
    codes = rows["precision"].to_physical().cast(pl.Int64).fill_null(-1).to_numpy().copy()
    codes[open_[found >= 0]] = [PRECISIONS.index(given[each].precision) for each in found[found >= 0]]
    codes[~is_product.to_numpy()] = -1
    precision = pl.Series("precision", [*PRECISIONS, None], dtype=KERNEL_KINDS["precision"])[codes]
    unit = pl.when(pl.Series(is_product)).then("unit").alias("unit")
    return rows.with_columns(precision, unit)
