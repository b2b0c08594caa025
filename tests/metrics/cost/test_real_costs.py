"""Costs on real traces: how much of the kernels' time is available, and the figures of TraceLens.

The figures are those that TraceLens (AMD-AGI/TraceLens, commit 171dd747, `generate_perf_report_pytorch`, its
`unified_perf_summary`) printed for these traces in November 2026, in 10⁹ operations of one call. It counts the bias of
`addmm`, as `flops` does here, and not that of a convolution, as `product_flops` does; causal attention counts half in
both. The rest of its report differs on purpose: it counts an operation per element for copies, where nothing is
computed, and one for every function; both gradients of a convolution whose input needs none; and reads what a broadcast
tensor would hold if it were written out.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.importers import read
from deepprof.collectors.trace import Trace
from deepprof.metrics.contexts.slices import read_slices
from deepprof.metrics.cost.call_links import read_operands
from deepprof.metrics.cost.roofs import add_roofs, find_peaks
from deepprof.metrics.cost.signatures import evaluate, number_signatures
from deepprof.metrics.cost.trace_costs import find_costs
from deepprof.metrics.names import are_named
from deepprof.metrics.streams import COLLECTIVE

pytestmark = pytest.mark.traces

FACTS: dict[str, list[tuple[str, str, float]]] = {
    "tl-h100-qwen": [
        ("aten::mm", "[[8944, 1024], [1024, 2816]]", 51.5815506),
        (
            "aten::_scaled_dot_product_flash_attention",
            "[[16, 16, 559, 64], [16, 16, 559, 64], [16, 16, 559, 64]]",
            10.2393774,
        ),
        ("aten::addmm", "[[1024], [8944, 1024], [1024, 1024]]", 18.7660861),
        ("aten::mm", "[[8944, 2816], [2816, 1024]]", 51.5815506),
        ("aten::mm", "[[8944, 1024], [1024, 1024]]", 18.7569275),
        ("aten::bmm", "[[1, 32, 1], [1, 1, 559]]", 3.5776e-05),
    ],
    "tl-resnet-ckpt": [
        ("aten::convolution_backward", "[[10, 64, 56, 56], [10, 64, 56, 56], [64, 64, 3, 3]]", 4.62422016),
        ("aten::convolution_backward", "[[10, 512, 7, 7], [10, 512, 7, 7], [512, 512, 3, 3]]", 4.62422016),
        ("aten::convolution_backward", "[[10, 128, 28, 28], [10, 128, 28, 28], [128, 128, 3, 3]]", 4.62422016),
        ("aten::convolution_backward", "[[10, 256, 14, 14], [10, 256, 14, 14], [256, 256, 3, 3]]", 4.62422016),
        ("aten::convolution", "[[10, 64, 56, 56], [64, 64, 3, 3]]", 2.31211008),
        ("aten::convolution", "[[10, 512, 7, 7], [512, 512, 3, 3]]", 2.31211008),
        ("aten::convolution", "[[10, 256, 14, 14], [256, 256, 3, 3]]", 2.31211008),
        ("aten::convolution", "[[10, 128, 28, 28], [128, 128, 3, 3]]", 2.31211008),
        ("aten::convolution_backward", "[[10, 512, 7, 7], [10, 256, 14, 14], [512, 256, 3, 3]]", 2.31211008),
        ("aten::convolution_backward", "[[10, 128, 28, 28], [10, 64, 56, 56], [128, 64, 3, 3]]", 2.31211008),
        ("aten::convolution_backward", "[[10, 256, 14, 14], [10, 128, 28, 28], [256, 128, 3, 3]]", 2.31211008),
        ("aten::convolution_backward", "[[10, 256, 14, 14], [10, 128, 28, 28], [256, 128, 1, 1]]", 0.25690112),
        ("aten::convolution_backward", "[[10, 128, 28, 28], [10, 64, 56, 56], [128, 64, 1, 1]]", 0.25690112),
        ("aten::convolution_backward", "[[10, 64, 112, 112], [10, 3, 224, 224], [64, 3, 7, 7]]", 4.72055808),
        ("aten::convolution", "[[10, 3, 224, 224], [64, 3, 7, 7]]", 2.36027904),
        ("aten::convolution", "[[10, 128, 28, 28], [256, 128, 3, 3]]", 1.15605504),
        ("aten::convolution", "[[10, 64, 56, 56], [128, 64, 3, 3]]", 1.15605504),
        ("aten::convolution_backward", "[[10, 512, 7, 7], [10, 256, 14, 14], [512, 256, 1, 1]]", 0.25690112),
        ("aten::convolution", "[[10, 256, 14, 14], [512, 256, 3, 3]]", 1.15605504),
        ("aten::convolution", "[[10, 64, 56, 56], [128, 64, 1, 1]]", 0.12845056),
        ("aten::convolution", "[[10, 256, 14, 14], [512, 256, 1, 1]]", 0.12845056),
        ("aten::convolution", "[[10, 128, 28, 28], [256, 128, 1, 1]]", 0.12845056),
        ("aten::mm", "[[10, 1000], [1000, 512]]", 0.01024),
        ("aten::mm", "[[1000, 10], [10, 512]]", 0.01024),
        ("aten::addmm", "[[1000], [10, 512], [512, 1000]]", 0.01025),
    ],
    "tl-h100-falcon": [
        ("aten::addmm", "[[768], [788, 768], [768, 768]]", 0.930167808),
        ("aten::addmm", "[[3072], [788, 768], [768, 3072]]", 3.72067123),
        ("aten::addmm", "[[768], [788, 3072], [3072, 768]]", 3.71885568),
        ("aten::convolution", "[[4, 3, 224, 224], [768, 3, 16, 16], [768]]", 0.924844032),
        (
            "aten::_scaled_dot_product_flash_attention",
            "[[4, 12, 197, 64], [4, 12, 197, 64], [4, 12, 197, 64]]",
            0.476884992,
        ),
        ("aten::addmm", "[[768], [4, 768], [768, 768]]", 0.004721664),
    ],
    "tl-flux-sage": [
        ("aten::mm", "[[512, 4096], [4096, 10240]]", 42.949673),
        ("aten::mm", "[[512, 4096], [4096, 4096]]", 17.1798692),
        ("aten::mm", "[[512, 10240], [10240, 4096]]", 42.949673),
        ("aten::convolution", "[[1, 512, 32, 32], [512, 512, 3, 3], [512]]", 4.83183821),
        ("aten::convolution", "[[1, 512, 64, 64], [512, 512, 3, 3], [512]]", 19.3273528),
        ("aten::convolution", "[[1, 128, 256, 256], [128, 128, 3, 3], [128]]", 19.3273528),
        ("aten::bmm", "[[64, 512, 64], [64, 64, 512]]", 2.14748365),
        ("aten::convolution", "[[1, 256, 128, 128], [256, 256, 3, 3], [256]]", 19.3273528),
        ("aten::bmm", "[[64, 512, 512], [64, 512, 64]]", 2.14748365),
        ("aten::addmm", "[[768], [77, 768], [768, 768]]", 0.090892032),
        ("aten::convolution", "[[1, 256, 256, 256], [256, 256, 3, 3], [256]]", 77.3094113),
        ("aten::convolution", "[[1, 512, 128, 128], [512, 512, 3, 3], [512]]", 77.3094113),
        (
            "aten::_scaled_dot_product_flash_attention",
            "[[1, 12, 77, 64], [1, 12, 77, 64], [1, 12, 77, 64]]",
            0.009106944,
        ),
        ("aten::convolution", "[[1, 256, 256, 256], [128, 256, 3, 3], [128]]", 38.6547057),
        ("aten::convolution", "[[1, 512, 128, 128], [256, 512, 3, 3], [256]]", 38.6547057),
        (
            "aten::_scaled_dot_product_flash_attention",
            "[[1, 1, 1024, 512], [1, 1, 1024, 512], [1, 1, 1024, 512]]",
            2.14748365,
        ),
        ("aten::addmm", "[[768], [77, 3072], [3072, 768]]", 0.36339072),
        ("aten::addmm", "[[3072], [77, 768], [768, 3072]]", 0.363568128),
        ("aten::convolution", "[[1, 128, 256, 256], [3, 128, 3, 3], [3]]", 0.452984832),
        ("aten::convolution", "[[1, 256, 256, 256], [128, 256, 1, 1], [128]]", 4.2949673),
        ("aten::convolution", "[[1, 512, 128, 128], [256, 512, 1, 1], [256]]", 4.2949673),
        ("aten::mm", "[[1024, 512], [512, 512]]", 0.536870912),
        ("aten::convolution", "[[1, 16, 32, 32], [512, 16, 3, 3], [512]]", 0.150994944),
        ("aten::addmm", "[[512], [1024, 512], [512, 512]]", 0.5373952),
    ],
    "tl-b200-eager": [
        ("aten::addmm", "[[640], [888, 2880], [2880, 640]]", 3.27409152),
        ("aten::addmm", "[[128], [888, 2880], [2880, 128]]", 0.654818304),
        ("aten::addmm", "[[2880], [888, 512], [512, 2880]]", 2.621376),
        ("aten::mm", "[[1, 2880], [2880, 25136]]", 0.14478336),
    ],
    "tl-sglang-prefilldecode": [
        ("aiter::gemm_a16w16", "[[15360, 4096], [24576, 4096]]", 3092.37645),
        ("aiter::gemm_a16w16", "[[15360, 12288], [4096, 12288]]", 1546.18823),
        ("aiter::gemm_a16w16", "[[15360, 4096], [6144, 4096]]", 773.094113),
        ("aiter::gemm_a16w16", "[[15360, 4096], [4096, 4096]]", 515.396076),
        ("aten::mm", "[[15, 4096], [4096, 151936]]", 18.6698957),
    ],
}
SAME_PROGRAM = {"tl-mi300-qwen": "tl-h100-qwen", "tl-mi300-falcon": "tl-h100-falcon"}
# TraceLens counts the gradient of the images, too, which this call is not asked for.
WITHOUT_INPUT = ("aten::convolution_backward", "[[10, 64, 112, 112], [10, 3, 224, 224], [64, 3, 7, 7]]")
# Bytes of one call, which TraceLens gives in units of 2²⁰.
MOVED = {
    ("aten::mm", "[[8944, 1024], [1024, 2816]]"): 71.0078125,
    ("aten::addmm", "[[1024], [8944, 1024], [1024, 1024]]"): 36.939453,
    ("aten::_scaled_dot_product_flash_attention", str([[16, 16, 559, 64]] * 3)): 69.875,
    ("aten::mul", "[[16, 559, 2816], [16, 559, 2816]]"): 144.1171875,
    ("aten::mul", "[[16, 559, 1024], [16, 559, 1]]"): 69.909119,
    ("aten::add", "[[16, 559, 1024], [16, 559, 1024]]"): 52.40625,
    ("aten::pow", "[[16, 559, 1024]]"): 69.875,
    ("aten::silu", "[[16, 559, 2816]]"): 96.078125,
    ("aten::rsqrt", "[[16, 559, 1]]"): 0.068237,
}
COVERED = {"tl-resnet-ckpt": 0.99, "tl-h100-qwen": 0.99, "tl-mi300-qwen": 0.99, "tl-sglang-prefilldecode": 0.95}
# Copies and fills that fit the last cache of the device (256 MiB on MI300X) go beyond the peak of its memory.
MAX_BEYOND = 0.01  # of the time of kernels


def trace_of(traces: Path, name: str) -> Trace:
    (path,) = (traces / name).glob("*.json.gz")
    return read(path, details=True)


def costs_of_operators(trace: Trace) -> dict[tuple[str, str], dict[str, int | None]]:
    """Return the cost of every distinct operator by its name and the shapes of its tensors."""
    _, distinct = number_signatures(read_operands(trace, read_slices(trace)))
    rows = distinct.hstack(evaluate(distinct)).drop_nulls("flops").iter_rows(named=True)
    return {(row["operator"], str([list(side) for side in json.loads(row["dims"]) if side])): row for row in rows}


@pytest.mark.parametrize("name", [*FACTS, *SAME_PROGRAM])
def test_products_cost_what_tracelens_says(traces: Path, name: str) -> None:
    found = costs_of_operators(trace_of(traces, name))
    for operator, dims, billions in FACTS[SAME_PROGRAM.get(name, name)]:
        row = found[operator, dims]
        whole = row["flops"] if "addmm" in operator else row["product_flops"]
        expected = billions / 2 if (operator, dims) == WITHOUT_INPUT else billions
        assert whole == pytest.approx(expected * 1e9, rel=1e-6), (operator, dims)


@pytest.mark.parametrize("name", ["tl-h100-qwen", "tl-mi300-qwen"])
def test_operators_move_what_tracelens_says(traces: Path, name: str) -> None:
    found = costs_of_operators(trace_of(traces, name))
    for key, units in MOVED.items():
        assert found[key]["nbytes"] == pytest.approx(units * 2**20, rel=1e-4), key


@pytest.mark.parametrize("name", COVERED)
def test_the_time_of_nearly_all_kernels_has_a_cost(traces: Path, name: str) -> None:
    trace = trace_of(traces, name)
    costs = find_costs(trace)
    known = costs.calls["flops"].is_not_null() & costs.calls["nbytes"].is_not_null()
    events = trace.device_events
    own = (events["activity"] == "kernel").to_numpy() & ~are_named(trace.names, events["name_id"], COLLECTIVE)
    length = (events["end_ns"] - events["start_ns"]).to_numpy()
    covered = own & np.append(known.to_numpy(), False)[costs.of_events]
    assert length[covered].sum() > COVERED[name] * length[own].sum()


@pytest.mark.parametrize("name", ["tl-h100-qwen", "tl-resnet-ckpt", "tl-sglang-prefilldecode"])
def test_kernels_whose_launch_is_hidden_are_told_right(traces: Path, name: str) -> None:
    trace = trace_of(traces, name)
    truth = find_costs(trace)
    known = np.append(truth.calls["host_event"].is_not_null().to_numpy(), False)[truth.of_events]
    collective = are_named(trace.names, trace.device_events["name_id"], COLLECTIVE)
    hidden = np.flatnonzero(known & ~collective)
    hidden = hidden[: len(hidden) // 2]
    marks = np.zeros(trace.device_events.height, np.bool_)
    marks[hidden] = True
    links = [pl.when(~pl.Series(marks)).then(column).alias(column) for column in ("correlation", "external_id")]
    costs = find_costs(replace(trace, device_events=trace.device_events.with_columns(links)))
    found = hidden[costs.of_events[hidden] >= 0]
    same = ("operator", "dims", "dtypes", "flops", "nbytes")
    told, real = costs.calls.select(same)[costs.of_events[found]], truth.calls.select(same)[truth.of_events[found]]
    assert len(found) > 0.9 * len(hidden)
    assert told.equals(real)


@pytest.mark.widens(3)
@pytest.mark.parametrize("name", ["tl-h100-qwen", "tl-resnet-ckpt", "tl-b200-eager", "tl-mi300-qwen", "tl-flux-sage"])
def test_no_kernel_is_faster_than_its_device(traces: Path, name: str) -> None:
    trace = trace_of(traces, name)
    peaks = find_peaks(trace.devices["name"][0])
    assert peaks is not None
    calls = find_costs(trace).calls.drop_nulls(["flops", "nbytes"]).filter(pl.col("device_ns") > 0)
    rows = add_roofs(calls, peaks)
    beyond = rows.filter(pl.col("roof_ratio") > 1)
    assert beyond["device_ns"].sum() <= MAX_BEYOND * rows["device_ns"].sum()
    assert not beyond.filter(pl.col("bound") == "compute").height
