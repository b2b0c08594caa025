"""The cost of every distinct call of an operator, by its name and the operands that were recorded.

Calls repeat in every iteration: each distinct one is evaluated once, however often it ran.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import polars as pl

from deepprof.collectors.trace import OPERANDS
from deepprof.metrics.cost.framework.fused_kernels import is_fused
from deepprof.metrics.cost.framework.operator_call import read_call
from deepprof.metrics.cost.framework.operator_rules import RULES, cost_of_call

CostRow = tuple[int | str | None, ...]
BASES = ("rule", "source operators")
SIGNATURE = ("operator", *(column for column in OPERANDS if column != "event"))
COSTS: Mapping[str, pl.DataType] = {
    "flops": pl.Int64(),
    "nbytes": pl.Int64(),
    "product_flops": pl.Int64(),
    "product_dtype": pl.String(),
    "basis": pl.String(),
}
# The type of elements in the template arguments of PyTorch's kernels, and the sizes of types that they copy unseen.
ELEMENT = re.compile(
    r"(?P<bfloat16>c10::BFloat16|__(?:nv_|hip_)bfloat16)|(?P<float16>c10::Half|__half)|OpaqueType<(?P<size>\d+)u>"
    r"|\b(?P<float64>double)\b|\b(?P<float32>float)\b|\b(?P<int64>long)\b|\b(?P<int32>int)\b"
)
BY_SIZE = {"1": "uint8", "2": "bfloat16", "4": "float32", "8": "float64"}  # any type of that size does
LISTS = r"TensorList|GenericList"


def find_element_type(kernel: str | None) -> str | None:
    """Return the type of elements that a kernel's name states first among its template arguments, None for none."""
    arguments = (kernel or "").partition("<")[2]
    found = ELEMENT.search(arguments)
    if not found:
        return None
    return BY_SIZE.get(found["size"]) if found["size"] else found.lastgroup


def number_signatures(calls: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """Return the number of every call's signature, and the distinct signatures in that order.

    `calls` has the columns `SIGNATURE`, and more by which signatures differ.
    """
    groups = calls.with_row_index("row").group_by(calls.columns, maintain_order=True).agg("row")
    numbers = np.empty(calls.height, np.uint32)
    if calls.height:
        numbers[groups["row"].explode().to_numpy()] = np.repeat(np.arange(groups.height), groups["row"].list.len())
    return pl.Series("signature", numbers), groups.drop("row")


def evaluate(signatures: pl.DataFrame, known: dict[tuple[str | None, ...], CostRow] | None = None) -> pl.DataFrame:
    """Return `COSTS` of each of the `signatures`; null: unknown. Their `element` is the type of lists' elements.

    `known` are rows of costs found before, to which the new ones are added.
    """
    found = {} if known is None else known
    unknown = () if "element" in signatures.columns else (pl.lit(None, pl.String).alias("element"),)
    rows = signatures.with_columns(*unknown).select("operator", "element", *SIGNATURE[1:]).iter_rows()
    listed = list(rows)
    for row in listed:
        if row not in found:
            name, element, *columns = row
            found[row] = _evaluate_one(name, columns, element)
    return pl.DataFrame([found[row] for row in listed], schema=dict(COSTS), orient="row")


def _evaluate_one(name: str | None, columns: list[str | None], element: str | None) -> CostRow:
    """Return a row of `COSTS`; `columns` are the texts of the operands."""
    nothing = (None,) * len(COSTS)
    if name is None or not (name in RULES or is_fused(name)):
        return nothing
    call = read_call(name, columns, element)
    cost = cost_of_call(call) if call else None
    if call is None or cost is None:
        return nothing
    nbytes = cost.nbytes if call.has_sizes else None
    return cost.flops, nbytes, cost.product_flops, cost.product_dtype, BASES[name not in RULES]
