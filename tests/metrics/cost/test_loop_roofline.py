"""The rooflines of loops whose calls, costs and peaks are round numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import msgspec
import numpy as np
import polars as pl
import pytest

from deepprof.collectors.trace import empty_table
from deepprof.metrics.cost.loop_roofline import (
    CACHED,
    FITTING,
    MISJUDGED,
    WorkSources,
    _doubt_recomputation,
    measure_roofline,
    rate_roofline,
)
from deepprof.metrics.cost.roofline_rows import By, list_rows
from deepprof.metrics.cost.roofline_tables import CALL_GROUPS, PRODUCTS, USED_IN_ITERATIONS
from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.metrics.iteration import ITERATIONS
from tests.metrics.cost.worked_loops import PEAKS, OperatorCall, build_worked, measure, of, product


def test_calls_with_the_same_operands_are_one_group_of_means() -> None:
    found = measure(
        [product(2_000, 10_000_000), product(3_000, 10_000_000), OperatorCall("aten::add", [100], 50, 5_000, 0)]
    )
    group = of(found, "aten::mm")
    assert (group["calls"], group["kernels"], group["device_ns"]) == (2, 2, 5_000)
    assert (group["flops"], group["nbytes"], group["product_flops"]) == (20_000_000, 200, 20_000_000)
    assert (group["ideal_ns"], group["headroom_ns"], group["roof_ratio"]) == (2_000, 3_000, pytest.approx(0.4))
    assert (group["bound"], group["intensity"]) == ("compute", 100_000)
    assert group["achieved_flops_per_s"] == pytest.approx(4e12)
    add = of(found, "aten::add")
    assert (add["ideal_ns"], add["bound"], add["headroom_ns"]) == (50, "memory", 50)


def test_utilisation_is_the_time_at_the_peak_over_the_iteration() -> None:
    found = measure(
        [product(2_000, 10_000_000), product(900, 500_000, dtype="float32"), OperatorCall("aten::add", [9], 9, 9, 0)]
    )
    assert found is not None
    # 1,000 ns of bfloat16 and 500 ns of float32 in 10,000 ns.
    assert found.hfu_ratio == found.mfu_ratio == pytest.approx(0.15)
    assert found.iterations.schema == USED_IN_ITERATIONS
    assert found.iterations["mfu_ratio"].to_list() == pytest.approx([0.15, 0.15])
    assert found.iterations["product_flops"].to_list() == [10_500_000, 10_500_000]
    assert (found.coverage_ratio, found.product_coverage_ratio) == (1, 1)
    assert (found.why_no_mfu, found.why_no_hfu) == (None, None)
    assert (found.groups.schema, found.products.schema) == (CALL_GROUPS, PRODUCTS)


def test_what_runs_again_is_hardware_utilisation_only() -> None:
    trace, loop, costs = build_worked([product(2_000, 10_000_000), product(2_000, 10_000_000, dims="[[8]]")])
    found = measure_roofline(trace, loop, WorkSources(costs, None, None), PEAKS)
    assert found is not None
    again = found.products.with_columns(recomputed_flops=pl.col("product_flops") / 2)
    rated = rate_roofline(msgspec.structs.replace(found, products=again), PEAKS)
    assert (rated.mfu_ratio, rated.hfu_ratio) == (pytest.approx(0.1), pytest.approx(0.2))
    untold = rate_roofline(msgspec.structs.replace(found, untold="nobody knows"), PEAKS)
    assert (untold.mfu_ratio, untold.hfu_ratio) == (None, pytest.approx(0.2))
    assert (untold.why_no_mfu, untold.why_no_hfu) == ("nobody knows", None)
    assert untold.iterations["mfu_ratio"].to_list() == [None, None]


def test_a_kernel_of_unknown_cost_that_may_be_a_product_makes_utilisation_unknown() -> None:
    mystery = OperatorCall(None, [200], kernel="fancy_kernel")
    found = measure([product(1_000, 5_000_000), mystery])
    assert found is not None
    assert found.product_coverage_ratio == pytest.approx(1_000 / 1_200)
    assert (found.mfu_ratio, found.hfu_ratio) == (None, None)
    assert found.why_no_hfu == found.why_no_mfu == "the cost of 17 % of the time of products is not known"
    assert found.iterations["hfu_ratio"].to_list() == [None, None]
    small = measure([product(1_000, 5_000_000), replace(mystery, kernels=[100])])
    assert small is not None
    assert small.hfu_ratio == pytest.approx(0.05)


@pytest.mark.parametrize("kernel", ["vectorized_elementwise_kernel", "triton_poi_fused_1", "batch_norm_backward"])
def test_a_kernel_that_is_no_product_by_its_name_does_not(kernel: str) -> None:
    found = measure([product(1_000, 5_000_000), OperatorCall(None, [2_000], kernel=kernel)])
    assert found is not None
    assert (found.product_coverage_ratio, found.mfu_ratio) == (1, pytest.approx(0.05))
    assert found.coverage_ratio == pytest.approx(1 / 3)
    assert found.groups["kernel"].to_list() == [kernel, "gemm"]
    assert found.groups["headroom_ns"].to_list() == [None, 500]
    assert found.headroom_ns == 500


def test_unknown_peaks_and_types_are_named() -> None:
    calls = [product(1_000, 5_000_000)]
    for peaks, why in (
        (None, "the peaks of Round are not known"),
        (
            DevicePeaks(name="Other", source="x", vector_flops_per_s={"float32": 1}),
            "the peak of Other in bfloat16 is not known",
        ),
    ):
        found = measure(calls, peaks=peaks)
        assert found is not None
        assert (found.mfu_ratio, found.hfu_ratio, found.why_no_hfu) == (None, None, why)
        assert found.groups["ideal_ns"].to_list() == found.groups["headroom_ns"].to_list() == [None]
        assert found.headroom_ns is None
        assert rate_roofline(found, PEAKS).mfu_ratio == pytest.approx(0.05)


def test_without_peaks_nothing_is_beyond_them_even_where_nothing_is_computed() -> None:
    found = measure([product(1_000, 5_000_000), OperatorCall("aten::view", [500], 0, 0, 0)], peaks=None)
    group = of(found, "aten::view")
    assert [group[name] for name in ("ideal_ns", "bound", "roof_ratio", "headroom_ns")] == [None] * 4
    assert found is not None
    assert found.headroom_ns is None


def test_kernels_that_take_no_time_have_no_shares() -> None:
    found = measure([OperatorCall("aten::add", [0], 50, 5_000, 0), OperatorCall(None, [0])])
    assert found is not None
    for by in get_args(By):
        rows = list_rows(found.groups, by)
        assert rows["share_ratio"].to_list() == rows["known_ratio"].to_list() == [None] * rows.height


def test_a_device_without_a_name_has_no_peaks() -> None:
    trace, loop, costs = build_worked([product(1_000, 5_000_000)])
    nameless = msgspec.structs.replace(trace, devices=trace.devices.clear())
    found = measure_roofline(nameless, loop, WorkSources(costs, None, None), None)
    assert found is not None
    assert (found.device, found.why_no_mfu) == (None, "the recording does not name the device")


def test_float32_on_a_tf32_kernel_counts_as_tf32() -> None:
    found = measure([product(2_000, 5_000_000, dtype="float32", kernel="ampere_sgemm_tf32_128x128_tn")])
    assert of(found, "aten::mm")["product_dtype"] == "tf32"
    assert found is not None
    assert found.mfu_ratio == pytest.approx(0.1)


def test_iterations_that_the_host_did_not_record_are_left_out() -> None:
    first = product(2_000, 10_000_000, recorded=False, kept=[0])
    found = measure([first, product(2_000, 10_000_000, kept=[1, 2])], iterations=4)
    assert found is not None
    assert found.iterations["index"].to_list() == [1, 2]
    assert of(found, "aten::mm")["calls"] == 1


def test_no_product_is_no_utilisation_of_zero() -> None:
    found = measure([OperatorCall("aten::add", [100], 50, 5_000, 0)])
    assert found is not None
    assert (found.mfu_ratio, found.hfu_ratio, found.product_coverage_ratio) == (None, None, None)
    assert found.why_no_mfu == "no matrix product, convolution or attention is known"


def test_collectives_copies_and_other_devices_are_no_work_of_it() -> None:
    trace, loop, costs = build_worked(
        [product(1_000, 5_000_000), OperatorCall(None, [50], kernel="ncclDevKernel_AllReduce")]
    )
    assert (found := measure_roofline(trace, loop, WorkSources(costs, None, None), PEAKS)) is not None
    assert found.groups["kernel"].to_list() == ["gemm"]
    elsewhere = msgspec.structs.replace(loop, device=1)
    assert measure_roofline(trace, elsewhere, WorkSources(costs, None, None), PEAKS) is None


@pytest.mark.parametrize("iterations", [1, 2])
def test_one_iteration_that_none_follows_has_nothing(iterations: int) -> None:
    found = measure([product(1_000, 5_000_000)], iterations=iterations)
    assert (found is None) == (iterations == 1)


def test_nothing_recorded_is_no_roofline() -> None:
    trace, loop, costs = build_worked([])
    empty = msgspec.structs.replace(loop, iterations=empty_table(ITERATIONS))
    for each in (loop, empty):
        assert measure_roofline(trace, each, WorkSources(costs, None, None), PEAKS) is None
    assert np.array_equal(costs.of_events, [])


def test_what_runs_again_is_not_told_where_launches_are_missing() -> None:
    rows = {"product_flops": [1, 1], "recomputed": [True, False], "device_ns": [80, 20], "host_event": [1, None]}
    assert "launches" in str(_doubt_recomputation(pl.DataFrame(rows)))
    assert _doubt_recomputation(pl.DataFrame(rows | {"recomputed": [False, False]})) is None
    assert _doubt_recomputation(pl.DataFrame(rows | {"device_ns": [90, 10]})) is None


def test_utilisation_is_compared_with_the_fastest_type_of_the_device() -> None:
    calls = [product(2_000, 10_000_000), product(900, 500_000, dtype="float32")]
    found = measure(calls)
    assert found is not None
    # 1,000 ns of bfloat16, and the float32 products in bfloat16: 50 ns in place of 500.
    assert (found.fastest_dtype, found.mfu_fastest_ratio) == ("bfloat16", pytest.approx(0.105))
    faster = measure([product(500, 10_000_000, dtype="float8")], peaks=with_rates(float8=2e13))
    assert faster is not None
    assert faster.mfu_fastest_ratio == faster.mfu_ratio == pytest.approx(0.05)
    for rates in ({"float64": 1e12}, {}):
        plain = measure([calls[1]], peaks=replace_rates(rates))
        assert plain is not None
        assert (plain.fastest_dtype, plain.mfu_fastest_ratio, plain.mfu_ratio) == (None, None, pytest.approx(0.05))
    unknown = measure([product(1_000, 5_000_000)], peaks=None)
    assert unknown is not None
    assert (unknown.fastest_dtype, unknown.mfu_fastest_ratio) == (None, None)


def with_rates(**rates: float) -> DevicePeaks:
    """Return the peaks with further rates of matrix units."""
    return replace_rates({**PEAKS.matrix_flops_per_s, **rates})


def replace_rates(rates: dict[str, float]) -> DevicePeaks:
    """Return the peaks with other rates of matrix units."""
    return msgspec.structs.replace(PEAKS, matrix_flops_per_s=rates)


def test_of_equal_rates_bfloat16_is_named_and_float16_alone_on_a_device_without_it() -> None:
    assert replace_rates({"tf32": 1e12, "float16": 2e12, "bfloat16": 2e12}).find_fastest_type() == "bfloat16"
    assert replace_rates({"float16": 2e12}).find_fastest_type() == "float16"
    assert replace_rates({"float8": 4e12, "int8": 4e12}).find_fastest_type() is None


def test_what_is_above_its_roof_says_why_and_is_no_headroom() -> None:
    calls = [
        OperatorCall("aten::add", [40], 50, 5_000, 0),  # 50 ns at the memory's rate
        OperatorCall("aten::mul", [200], 50, 5_000, 0),
        product(800, 10_000_000),  # 1,000 ns in bfloat16
    ]
    found = measure(calls)
    assert found is not None
    told = {
        row["operator"]: (row["roof_ratio"], row["above_roof"], row["headroom_ns"]) for row in found.groups.to_dicts()
    }
    assert told == {
        "aten::add": (pytest.approx(1.25), CACHED, 0),
        "aten::mul": (pytest.approx(0.25), None, 150),
        "aten::mm": (pytest.approx(1.25), MISJUDGED, 0),
    }
    assert found.headroom_ns == 150


def test_operands_that_fit_in_the_cache_are_named() -> None:
    peaks = msgspec.structs.replace(PEAKS, cache_nbytes=1 << 20)
    for nbytes, why in ((1_000_000, FITTING.format(size=1)), (1_100_000, CACHED)):
        found = measure([OperatorCall("aten::add", [8_000], 50, nbytes, 0)], peaks=peaks)
        assert of(found, "aten::add")["above_roof"] == why


def test_a_sum_leaves_out_what_is_above_its_roof_unless_there_is_nothing_else() -> None:
    calls = [OperatorCall("aten::add", [40], 50, 5_000, 0), OperatorCall("aten::mul", [200], 50, 5_000, 0)]
    found = measure(calls)
    assert found is not None
    (one,) = list_rows(found.groups, "kernel").to_dicts()
    assert (one["roof_ratio"], one["above_roof"], one["headroom_ns"]) == (pytest.approx(0.25), None, 150)
    assert one["ideal_ns"] == 100
    rows = {row["name"]: row for row in list_rows(found.groups, "operator").to_dicts()}
    assert (rows["aten::add"]["roof_ratio"], rows["aten::add"]["above_roof"]) == (pytest.approx(1.25), CACHED)


def test_no_peaks_explain_nothing() -> None:
    found = measure([product(800, 10_000_000)], peaks=None)
    assert of(found, "aten::mm")["above_roof"] is None
