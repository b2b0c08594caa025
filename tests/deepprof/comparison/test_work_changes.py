"""What the device computes in two runs: a program in float32, and the same in bfloat16."""

from __future__ import annotations

import io
import json
from functools import cache
from typing import Any

from rich.console import Console

import deepprof
from deepprof.comparison import compare
from deepprof.render.comparison_json import encode
from deepprof.render.comparison_text import print_comparison
from deepprof.results.comparison_result import Comparison
from tests.tables import event, make_trace

US, MS = 1_000, 1_000_000
SGEMM, HALF = "ampere_sgemm_128x64_tn", "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_tn"
SOFTMAX = "void softmax_warp_forward<float, float, float, 8, false, false>(float*, float const*, int, int, int)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
Kernels = tuple[tuple[str, int], ...]


@cache
def run(*kernels: tuple[str, int]) -> deepprof.Analysis:
    """A job of eight equal iterations of kernels (name, µs) back to back, then 1 ms of nothing."""
    names, rows, now = list(dict.fromkeys(name for name, _ in kernels)), [], 0
    for _ in range(8):
        for name, length in kernels:
            stream = 20 if name == NCCL else 7
            rows.append(event(names.index(name), now, now + length * US, stream=stream))
            now += length * US
        now += MS
    return deepprof.analyze(make_trace(rows, names=names))


SINGLE: Kernels = ((SGEMM, 6_000), (SOFTMAX, 500), (SGEMM, 7_000), (NCCL, 300))
BFLOAT: Kernels = ((HALF, 900), (SOFTMAX, 500), (HALF, 1_100), (NCCL, 300))


def draw(comparison: Comparison, width: int = 80) -> list[str]:
    text = io.StringIO()
    print_comparison(comparison, Console(file=text, width=width))
    lines = text.getvalue().splitlines()
    if not any(line.startswith("What the device computes") for line in lines):
        return []
    first = next(number for number, line in enumerate(lines) if line.startswith("What the device computes"))
    return lines[first : first + lines[first:].index("")]


def test_products_that_changed_their_type_are_one_row() -> None:
    assert draw(compare(run(*SINGLE), run(*BFLOAT))) == [
        "What the device computes, per mean iteration",
        "                                             A        B  difference",
        "  matrix products, float32 → bfloat16  13.0 ms  2.00 ms    -11.0 ms",
        "  all other kinds                       500 µs   500 µs        0 ns",
        "  together                             13.5 ms  2.50 ms    -11.0 ms",
        "  matrix units have 0 % → 100 % of the time of products",
    ]


def test_products_that_changed_in_part_are_two_rows() -> None:
    both: Kernels = ((HALF, 900), (SOFTMAX, 500), (SGEMM, 7_000), (NCCL, 300))
    lines = draw(compare(run(*SINGLE), run(*both)))
    assert [line.split("  ")[1] for line in lines[2:5]] == [
        "matrix products, float32 on ordinary units",
        "matrix products, bfloat16 on matrix units",
        "all other kinds",
    ]
    assert lines[2].split()[-6:] == ["13.0", "ms", "7.00", "ms", "-6.00", "ms"]
    assert lines[-1] == "  matrix units have 0 % → 11.4 % of the time of products"  # 900 of 7,900 µs


def test_the_same_run_has_no_such_table() -> None:
    assert draw(compare(run(*SINGLE), run(*SINGLE))) == []


def test_no_line_is_wider_than_the_page() -> None:
    for width in (40, 60, 80):
        assert max(map(len, draw(compare(run(*SINGLE), run(*BFLOAT)), width))) <= width


def read(a: Kernels, b: Kernels) -> dict[str, Any]:
    (pair,) = json.loads(encode(compare(run(*a), run(*b))))["pairs"]
    return dict(pair)


def test_json_has_all_kinds_which_add_up_to_the_parts() -> None:
    pair = read(SINGLE, BFLOAT)
    work, parts = pair["work"], pair["parts"]
    assert (work["a_matrix_unit_ratio"], work["b_matrix_unit_ratio"]) == (0.0, 1.0)
    assert [list(row.values()) for row in work["rows"]] == [
        ["matmul", "fp32", "simt", 13 * MS, 0, -13 * MS],
        ["matmul", "bf16", "tensor_core", 0, 2 * MS, 2 * MS],
        ["softmax", None, None, 500 * US, 500 * US, 0],
        ["communication", None, None, 300 * US, 300 * US, 0],
    ]
    for run_ns in ("a_ns", "b_ns"):
        whole = parts["compute_ns"][run_ns] + parts["exposed_communication_ns"][run_ns]
        assert sum(row[run_ns] for row in work["rows"]) == whole
