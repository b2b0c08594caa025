"""Real profiles of JAX: what their compiled programs add to the names of kernels."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from deepprof.collectors.importers import read
from deepprof.metrics.kernels.classify import find_kernel_kinds
from tests import manifest


def kinds_of(name: str) -> pl.DataFrame:
    """Return the kernels of a file with their kinds and `ns`, the sum of their times."""
    path = next(manifest.path_of(row.values[0]) for row in manifest.rows() if name in row.values[0]["file"])
    trace = read(path)
    found = find_kernel_kinds(trace)
    ns = pl.col("end_ns") - pl.col("start_ns")
    events = trace.device_events.select(ns=ns, row=pl.Series(found.of_events)).filter(pl.col("row") >= 0)
    sums = events.group_by("row").agg(pl.col("ns").sum())
    return found.table.with_row_index("row").cast({"row": pl.Int64}).join(sums, on="row")


@pytest.mark.traces
def test_the_archive_of_maxtext_has_products_of_bf16_and_the_embedding_as_a_scatter(traces: Path) -> None:
    kinds = kinds_of("maxtext_fsdp4")
    calls = kinds.filter(pl.col("name").str.contains(r"^(custom-call|cublas-gemm)\."))
    assert calls.height > 60
    found = calls.select("category", "precision", "unit", "library", "sure").unique().rows()
    assert found == [("matmul", "bf16", "tensor_core", "cuBLAS", True)]
    scatter = kinds.filter(pl.col("name") == "input_scatter_fusion")
    assert scatter.select("category", "sure").rows() == [("embedding_index", True)]
    assert kinds.filter(pl.col("category") == "unknown").is_empty()


@pytest.mark.traces
def test_a_fusion_named_after_a_conversion_is_what_it_computes(traces: Path) -> None:
    kinds = kinds_of("tl-jax08-attention")
    fused = kinds.filter(pl.col("name") == "loop_convert_fusion")
    assert fused.select("category", "sure").rows() == [("elementwise", True)]
    assert kinds.filter(pl.col("name") == "wrapped_convert")["category"].to_list() == ["cast"]
    triton = kinds.filter(pl.col("name").str.contains("^gemm_fusion"))
    assert triton.select("category", "precision", "unit").rows() == [("matmul", "bf16", "tensor_core")]
