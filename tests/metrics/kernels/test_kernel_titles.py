"""Kernels that compute different things never have one title."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from deepprof.metrics.kernels.classify import KernelKinds
from deepprof.metrics.kernels.kernel_titles import title_kernels
from deepprof.metrics.kernels.kinds import KERNEL_KINDS
from tests.tables import make_trace

Kind = tuple[str, str | None, str | None]


def title(*kernels: tuple[str, Kind]) -> list[str]:
    """Return the titles of kernels of these names and kinds, one row each."""
    rows = [(*kind, None, None, True) for _, kind in kernels]
    table = pl.DataFrame(rows, schema=dict(KERNEL_KINDS), orient="row")
    names = list(dict.fromkeys(name for name, _ in kernels))
    name_ids = [names.index(name) for name, _ in kernels]
    trace = make_trace(names=names)
    calls = pl.DataFrame({"name_id": name_ids, "kind": range(len(kernels)), "ns": [1] * len(kernels)})
    label, titles = title_kernels(calls, trace, KernelKinds(table, np.empty(0, np.int64)))
    return titles.gather(label).to_list()


HALF, SINGLE = ("matmul", "bf16", "tensor_core"), ("matmul", "fp32", "simt")


def test_one_kind_needs_no_word() -> None:
    assert title(("void gemm<1>()", HALF), ("void gemm<2>()", HALF)) == ["gemm", "gemm"]


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ((HALF, SINGLE), ("bfloat16", "float32")),
        ((SINGLE, ("convolution", "fp32", "simt")), ("matrix products", "convolutions")),
        ((SINGLE, ("matmul", "fp32", "tensor_core")), ("ordinary units", "matrix units")),
        ((HALF, ("unknown", None, None)), ("matrix products", "not known by name")),
        ((HALF, ("matmul", None, "tensor_core")), ("bfloat16", "type not known")),
        (
            (HALF, SINGLE, ("softmax", None, None)),
            ("matrix products, bfloat16", "matrix products, float32", "softmax, type not known"),
        ),
    ],
)
def test_what_differs_stands_in_parentheses(kinds: tuple[Kind, ...], words: tuple[str, ...]) -> None:
    names = [f"void gemm<{number}>()" for number in range(len(kinds))]
    assert title(*zip(names, kinds, strict=True)) == [f"gemm ({word})" for word in words]


def test_one_name_that_operators_make_two_kinds_has_two_titles() -> None:
    assert title(("sgemm", SINGLE), ("sgemm", ("convolution", "fp32", "simt"))) == [
        "sgemm (matrix products)",
        "sgemm (convolutions)",
    ]
