"""The costs of a model for scripts: JSON `deepprof.model/1`, and its rows as CSV."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import msgspec
import polars as pl
from msgspec import Struct
from msgspec.structs import asdict

from deepprof.collectors.models.graph import ModelGraph
from deepprof.metrics.cost.model_costs import Grouping, ModelTotals, sum_costs
from deepprof.render.tabular import write_table

SCHEMA = "deepprof.model/1"


class ModelReport(Struct, frozen=True, eq=False):
    """What is known of a model: its file, its graph, the cost of every operator (`COSTS`), in all, and `fused`."""

    path: str
    graph: ModelGraph
    costs: pl.DataFrame
    totals: ModelTotals
    fused: pl.DataFrame

    def select_rows(self, by: Grouping) -> pl.DataFrame:
        """Return the rows: operators with all that is known of them, or sums of layers or types."""
        return self.costs if by == "operator" else sum_costs(self.costs, by)

    @property
    def fused_nbytes(self) -> int | None:
        """Return what moves when pointwise operators are fused, without groups that have no rule."""
        known = self.fused.filter(pl.col("flops").is_not_null())
        return int(known["read_nbytes"].sum()) + int(known["written_nbytes"].sum()) if len(known) else None


def write_model_json(report: ModelReport, by: Grouping) -> str:
    """Return the report as JSON. Keys are never renamed without a new schema number."""
    graph = report.graph
    content = {
        "schema": SCHEMA,
        "path": report.path,
        "name": graph.name,
        "inputs": [_describe_tensor(name, graph) for name in graph.inputs],
        "outputs": [_describe_tensor(name, graph) for name in graph.outputs],
        "totals": asdict(report.totals) | {"fused_groups": len(report.fused), "fused_nbytes": report.fused_nbytes},
        "by": by,
        "rows": report.select_rows(by).to_dicts(),
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def _describe_tensor(name: str, graph: ModelGraph) -> dict[str, Any]:
    spec = graph.tensors[name]
    return {"name": name, "shape": list(spec.shape), "dtype": spec.dtype}


def write_model_csv(report: ModelReport, by: Grouping) -> str:
    """Return the rows as CSV, with nulls as empty cells."""
    file = BytesIO()
    write_table(report.select_rows(by), file, "csv")
    return file.getvalue().decode()
