"""What a model costs: a row for every operator, sums by layer, operator or type, and how much of it has a rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

import polars as pl
from msgspec import Struct

from deepprof.collectors.errors import UsageError
from deepprof.collectors.models.graph import ModelGraph, ModelNode
from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.cost.onnx.node_costs import cost_of_node

LARGEST = 1 << 62  # of a whole model; a table's numbers have 63 bits
NUMBER, TEXT = pl.Int64(), pl.String()
COSTS: TableSchema = TableSchema.of(
    "an operator of a model, in the order of execution",
    {
        "node": (TEXT, "its name"),
        "kind": (TEXT, "its type, behind its domain where that is not ONNX's own"),
        "layer": (TEXT, "the path of the module that it belongs to, empty for the model itself"),
        "flops": (NUMBER, "its floating-point operations, a multiplication and its addition as two; null: unknown"),
        "product_flops": (NUMBER, "those of them that belong to matrix products, convolutions and attention"),
        "product_dtype": (TEXT, "the type of the operands of its products, null without products"),
        "read_nbytes": (NUMBER, "the bytes that it reads, each operand once; null: unknown"),
        "written_nbytes": (NUMBER, "the bytes that it writes; null: unknown"),
        "weight_nbytes": (NUMBER, "the bytes of its weights, which are among those that it reads"),
        "parameters": (NUMBER, "the elements of its weights that no operator before it has"),
        "tensor_nbytes": (NUMBER, "the bytes of all its operands and results, known without a rule, too"),
    },
)
SUMMED = ("parameters", "flops", "product_flops", "read_nbytes", "written_nbytes", "weight_nbytes")
Grouping = Literal["layer", "operator", "kind"]
GROUPINGS: tuple[Grouping, ...] = get_args(Grouping)
COLUMN_OF: Mapping[str, str] = MappingProxyType({"layer": "layer", "operator": "node", "kind": "kind"})
SUMS: TableSchema = TableSchema.of(
    "a layer, an operator or a type of operators, in the order in which it begins",
    {
        "name": (TEXT, "the path of the layer, empty for the model itself; or the operator's name, or the type"),
        "nodes": (pl.UInt32(), "how many operators it has"),
        "nodes_without_rule": (pl.UInt32(), "how many of them have unknown costs: the sums leave them out"),
        **{name: (NUMBER, f"sum of `{name}`; null where none is known") for name in SUMMED},
    },
)
PARAMETER_TYPES = ("float", "bfloat", "complex", "int8", "uint8", "int4", "uint4")  # how their names begin


class ModelTotals(Struct, frozen=True):
    """What a whole model costs.

    Sums leave out operators whose types have no rule (`unknown_kinds`, with how many there are of each); they are None
    where there is no other. `node_coverage_ratio` is the share of operators with a rule, `nbytes_coverage_ratio` that
    of the bytes of all operators' tensors.
    """

    nodes: int
    parameters: int
    weight_nbytes: int
    flops: int | None
    product_flops: int | None
    read_nbytes: int | None
    written_nbytes: int | None
    node_coverage_ratio: float | None
    nbytes_coverage_ratio: float | None
    unknown_kinds: Mapping[str, int]


def measure_model(graph: ModelGraph) -> pl.DataFrame:
    """Return what each operator of a model costs (`COSTS`).

    Raises `UsageError` where a number is too large to count.
    """
    counted = set[str]()
    rows = [_measure_node(node, graph, counted) for node in graph.nodes]
    _refuse_large(graph, rows)
    return pl.DataFrame(rows, schema=COSTS, orient="row")


def _refuse_large(graph: ModelGraph, rows: list[tuple[Any, ...]]) -> None:
    """Raise `UsageError` where the sum of a column has no room, which polars would not state."""
    sums = [0] * len(COSTS)
    for node, row in zip(graph.nodes, rows, strict=True):
        for place, each in enumerate(row):
            sums[place] += each if isinstance(each, int) else 0
        if max(sums) > LARGEST:
            raise UsageError(f"{node.name[-80:]}: what it costs is too large to count; check --shape and --batch")


def _measure_node(node: ModelNode, graph: ModelGraph, counted: set[str]) -> tuple[Any, ...]:
    """Return the row of a node; `counted` are the weights whose parameters belong to a node before it."""
    cost = cost_of_node(node, graph)
    weights = [name for name in dict.fromkeys(node.inputs) if name in graph.weights]
    parameters = [name for name in weights if name not in counted and _is_parameter(name, graph)]
    counted.update(weights)
    own: tuple[Any, ...] = (None,) * 5
    if cost is not None:
        own = (cost.flops, cost.product_flops, cost.product_dtype, cost.read_nbytes, cost.written_nbytes)
    sizes = (
        sum(graph.tensors[name].nbytes for name in weights),
        sum(graph.tensors[name].elements for name in parameters),
        sum(graph.tensors[name].nbytes for name in {*node.inputs, *node.outputs} if name),
    )
    return (node.name, node.kind, node.layer, *own, *sizes)


def _is_parameter(name: str, graph: ModelGraph) -> bool:
    """Return whether a weight is one that training changes, or a buffer: no single number, and no index."""
    spec = graph.tensors[name]
    return bool(spec.shape) and spec.dtype.startswith(PARAMETER_TYPES)


def sum_costs(costs: pl.DataFrame, by: Grouping) -> pl.DataFrame:
    """Return the sums of rows of `COSTS` for every layer, operator or type (`SUMS`); an operator is one row."""
    column = COLUMN_OF[by]
    keys = [pl.col(column)] if by != "operator" else [pl.col(column), pl.int_range(pl.len()).alias("row")]
    found = costs.group_by(keys, maintain_order=True).agg(
        pl.len().alias("nodes"),
        pl.col("flops").null_count().alias("nodes_without_rule"),
        *(pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name) for name in SUMMED),
    )
    return found.rename({column: "name"}).select(SUMS.names()).cast(SUMS)


def total_costs(graph: ModelGraph, costs: pl.DataFrame) -> ModelTotals:
    """Return what a model costs in all, of its rows of `COSTS`; weights that several operators share count once."""
    known = costs.filter(pl.col("flops").is_not_null())
    unknown = Counter(costs.filter(pl.col("flops").is_null())["kind"].to_list())
    sums = {name: int(known[name].sum()) if len(known) else None for name in SUMMED}
    used = {name for node in graph.nodes for name in node.inputs} & graph.weights
    nbytes = int(costs["tensor_nbytes"].sum())
    return ModelTotals(
        nodes=len(costs),
        parameters=int(costs["parameters"].sum()),
        weight_nbytes=sum(graph.tensors[name].nbytes for name in used),
        flops=sums["flops"],
        product_flops=sums["product_flops"],
        read_nbytes=sums["read_nbytes"],
        written_nbytes=sums["written_nbytes"],
        node_coverage_ratio=len(known) / len(costs) if len(costs) else None,
        nbytes_coverage_ratio=int(known["tensor_nbytes"].sum()) / nbytes if nbytes else None,
        unknown_kinds=dict(unknown.most_common()),
    )
