"""Peaks of devices by the names that recorders write, and rows against their roofs."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.cost.roofs import (
    RATE_TYPES,
    SHORTEST_KERNEL_NS,
    DevicePeaks,
    add_roofs,
    find_peaks,
    find_rate_type,
    list_devices,
)

# 1 TFLOP/s of vectors, 10 of float16 products, 100 GB/s: a microsecond is 10^6 FLOP, 10^7 FLOP and 10^5 bytes.
PEAKS = DevicePeaks(
    "made up",
    "of the test",
    vector_flops_per_s={"float32": 1e12, "float64": 0.5e12},
    matrix_flops_per_s={"float16": 10e12},
    memory_nbytes_per_s={"memory": 100e9},
)
SCHEMA = {
    "flops": pl.Int64,
    "nbytes": pl.Int64,
    "product_flops": pl.Int64,
    "product_dtype": pl.String,
    "device_ns": pl.Int64,
}


def roofs_of(*rows: tuple[object, ...], peaks: DevicePeaks | None = PEAKS) -> list[dict[str, object]]:
    return add_roofs(pl.DataFrame(list(rows), SCHEMA, orient="row"), peaks).to_dicts()


NAMES = {
    "NVIDIA H100 80GB HBM3": "NVIDIA H100 SXM5 80 GB",
    "NVIDIA H100 PCIe": "NVIDIA H100 PCIe 80 GB",
    "NVIDIA H100 NVL": "NVIDIA H100 NVL 94 GB",
    "NVIDIA H200": "NVIDIA H200 SXM 141 GB",
    "NVIDIA A100-SXM4-40GB": "NVIDIA A100 SXM4 40 GB",
    "A100-SXM4-40GB": "NVIDIA A100 SXM4 40 GB",
    "NVIDIA A100-SXM4-80GB": "NVIDIA A100 SXM4 80 GB",
    "NVIDIA A100 80GB PCIe": "NVIDIA A100 PCIe 80 GB",
    "NVIDIA A10G": "NVIDIA A10G",
    "NVIDIA A10": "NVIDIA A10",
    "NVIDIA L4": "NVIDIA L4",
    "NVIDIA L40S": "NVIDIA L40S",
    "Tesla T4": "Tesla T4",
    "Tesla V100-SXM2-16GB": "Tesla V100 SXM2",
    "Tesla V100-DGXS-32GB": "Tesla V100 of DGX Station",
    "NVIDIA GeForce RTX 3090": "NVIDIA GeForce RTX 3090",
    "GeForce GTX 1080 Ti": "GeForce GTX 1080 Ti",
    "Quadro GP100": "Quadro GP100",
    "NVIDIA B200": "NVIDIA B200",
    "AMD Instinct MI300X VF": "AMD Instinct MI300X",
    "AMD Instinct MI250X": "AMD Instinct MI250X, one die",
    "AMD Instinct MI210": "AMD Instinct MI210, or one die of MI250",
    "h100 sxm": "NVIDIA H100 SXM5 80 GB",
}


@pytest.mark.parametrize(("recorded", "name"), NAMES.items())
def test_names_as_recorders_write_them(recorded: str, name: str) -> None:
    peaks = find_peaks(recorded)
    assert peaks is not None
    assert peaks.name == name


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100",  # one of three
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",  # a part of one
        "NVIDIA GeForce RTX 4090 Laptop GPU",  # a smaller chip
        "NVIDIA A100-PG509-200",  # no data sheet states it
        "AMD Instinct MI308X",  # likewise
        "ARTEMIS",
        "Agent 1",
        "H",
        "",
    ],
)
def test_an_unknown_device_is_no_guess(name: str) -> None:
    assert find_peaks(name) is None


def test_a_device_without_a_name_is_known_by_its_size() -> None:
    mi300x, mi210 = (
        find_peaks(name, multiprocessors=units, memory_nbytes=nbytes)
        for name, units, nbytes in (("AMD", 304, 206_141_652_992), ("AMD Radeon Graphics", 104, 68_702_699_520))
    )
    assert mi300x is find_peaks("AMD Instinct MI300X")
    assert mi210 is find_peaks("AMD Instinct MI210")
    assert find_peaks("", multiprocessors=304, memory_nbytes=100_000_000_000) is None
    assert find_peaks("", multiprocessors=132, memory_nbytes=85_899_345_920) is None  # an H100's, or an H800's
    assert find_peaks("Agent 1", multiprocessors=304, memory_nbytes=206_141_652_992) is None


def test_figures_are_dense_and_of_their_product() -> None:
    sxm, pcie, nvl = (find_peaks(f"NVIDIA H100 {kind}") for kind in ("SXM", "PCIe", "NVL"))
    assert sxm is not None
    assert pcie is not None
    assert nvl is not None
    assert [round(peaks.matrix_flops_per_s["bfloat16"] / 1e12) for peaks in (sxm, pcie, nvl)] == [989, 756, 836]
    assert [peaks.memory_nbytes_per_s["memory"] for peaks in (sxm, pcie, nvl)] == [3352e9, 2039e9, 3900e9]


@pytest.mark.parametrize("peaks", list_devices(), ids=lambda peaks: peaks.name)
def test_each_file_is_consistent(peaks: DevicePeaks) -> None:
    vector, matrix = peaks.vector_flops_per_s, peaks.matrix_flops_per_s
    assert peaks.memory_nbytes_per_s["memory"] == min(peaks.memory_nbytes_per_s.values())
    rising = [rate for name in ("tf32", "float16", "float8", "float4") if (rate := matrix.get(name))]
    assert sorted(rising) == rising  # narrower types are quicker
    assert all(rate >= vector["float32"] for rate in rising)
    if "float8" in matrix:
        assert matrix["float8"] == pytest.approx(2 * matrix["float16"], rel=0.02)
    assert all(find_peaks(name) is peaks for name in (peaks.name, *peaks.names))
    if peaks.boost_clock_hz and peaks.multiprocessors:  # float32: 64 or 128 multiply-adds a clock and multiprocessor
        per_clock = vector["float32"] / peaks.boost_clock_hz / peaks.multiprocessors
        assert min(abs(per_clock / 2 / lanes - 1) for lanes in (64, 128)) < 0.02


def test_no_name_is_of_two_devices() -> None:
    names = [name for peaks in list_devices() for name in {peaks.name, *peaks.names}]
    assert len(names) == len(set(names))


def test_types_of_rates() -> None:
    assert [find_rate_type(name) for name in ("float8_e4m3fn", "float4_e2m1fn", "uint8", "int8")] == [
        "float8",
        "float4",
        "int8",
        "int8",
    ]
    assert [find_rate_type(name) for name in (None, "", "complex64", "int64", "float32x")] == [None] * 5
    assert [find_rate_type(name) for name in RATE_TYPES] == list(RATE_TYPES)


def test_a_product_at_its_roof() -> None:
    (row,) = roofs_of((400_000_000, 1_000_000, 400_000_000, "float16", 80_000))
    assert (row["intensity"], row["bound"]) == (400.0, "compute")
    assert row["ideal_ns"] == pytest.approx(40_000)  # the bytes use 10,000
    assert row["roof_ratio"] == pytest.approx(0.5)
    assert row["attainable_flops_per_s"] == pytest.approx(10e12)
    assert row["achieved_flops_per_s"] == pytest.approx(5e12)
    assert row["achieved_nbytes_per_s"] == pytest.approx(12.5e9)


def test_a_row_of_the_memory() -> None:
    (row,) = roofs_of((1_000_000, 8_000_000, 0, None, 100_000))
    assert (row["bound"], row["ideal_ns"], row["compute_ns"]) == ("memory", pytest.approx(80_000), pytest.approx(1_000))
    assert row["attainable_flops_per_s"] == pytest.approx(12.5e9)  # 1/8 FLOP a byte at 100 GB/s


def test_matrix_units_work_beside_the_others() -> None:
    beside, alone = roofs_of(
        (10_000_000 + 5_000_000, 1, 10_000_000, "float16", 10_000),  # 1 µs on the matrix units, 5 on the others
        (10_000_000 + 5_000_000, 1, 10_000_000, "float32", 10_000),  # 10 and 5 µs on the same units
    )
    assert beside["ideal_ns"] == pytest.approx(5_000)
    assert alone["ideal_ns"] == pytest.approx(15_000)
    assert alone["roof_ratio"] == pytest.approx(1.5)  # above the roof: kept


def test_doubles_use_the_units_of_doubles() -> None:
    (row,) = roofs_of((3_000_000, 1, 1_000_000, "float64", 10_000))
    assert row["ideal_ns"] == pytest.approx(6_000)


def test_what_is_short_is_bound_by_its_launch() -> None:
    rows = roofs_of(
        (100_000, 1_000, 0, None, 10_000),  # nothing to do
        (5_000_000, 1_000, 0, None, SHORTEST_KERNEL_NS),  # already as short as kernels get
        (0, 0, 0, None, 5_000),
        (5_000_000, 1_000, 0, None, SHORTEST_KERNEL_NS + 1),
    )
    assert [row["bound"] for row in rows] == ["launch", "launch", "launch", "compute"]
    assert rows[2]["intensity"] is None
    assert rows[2]["attainable_flops_per_s"] is None
    assert rows[2]["roof_ratio"] == 0


def test_a_row_of_many_kernels_takes_many_shortest_times() -> None:
    table = pl.DataFrame([(5_000_000, 1_000, 0, None, 50_000)] * 4, SCHEMA, orient="row")
    rows = add_roofs(table.with_columns(kernels=pl.Series([1, 24, 25, None])), PEAKS)  # 5 µs at best: one kernel can
    assert rows["bound"].to_list() == ["compute", "compute", "launch", "compute"]


def test_the_unknown_stays_unknown() -> None:
    added = ("intensity", "ideal_ns", "bound", "roof_ratio", "attainable_flops_per_s")
    rows = roofs_of(
        (None, 100, None, None, 10_000),
        (100, None, 100, "float16", 10_000),
        (100, 100, None, None, 10_000),
        (100, 100, 100, "int64", 10_000),  # no rate for it
        (100, 100, 100, "float16", None),
    )
    assert [rows[0][name] for name in added] == [None] * 5
    assert [rows[1][name] for name in added] == [None] * 5
    assert [rows[2][name] for name in added] == [1.0, *[None] * 4]
    assert [rows[3][name] for name in added] == [1.0, *[None] * 4]
    assert [rows[4][name] for name in ("bound", "roof_ratio", "achieved_flops_per_s")] == ["launch", None, None]


def test_without_peaks_there_is_an_intensity_alone() -> None:
    for peaks in (DevicePeaks("nothing", "of the test"), None):
        (row,) = roofs_of((400, 100, 400, "float16", 80_000), peaks=peaks)
        assert (row["intensity"], row["achieved_flops_per_s"]) == (4.0, pytest.approx(5e6))
        assert (row["ideal_ns"], row["bound"], row["roof_ratio"]) == (None, None, None)


def test_without_peaks_what_does_nothing_has_no_roof_either() -> None:
    (row,) = roofs_of((0, 0, 0, None, 80_000), peaks=None)
    assert (row["ideal_ns"], row["bound"], row["attainable_flops_per_s"]) == (None, None, None)


def test_an_empty_table() -> None:
    assert add_roofs(pl.DataFrame(schema=SCHEMA), PEAKS).is_empty()


AMOUNTS = st.none() | st.integers(0, 10**15)


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS, AMOUNTS, st.sampled_from([None, "float16", "float32", "int64"]), AMOUNTS)))
def test_rows_against_one_row_at_a_time(
    drawn: list[tuple[int | None, int | None, int | None, str | None, int | None]],
) -> None:
    rows = roofs_of(*drawn)
    for (flops, nbytes, product_flops, dtype, device_ns), row in zip(drawn, rows, strict=True):
        ideal_ns = ideal_of(flops, nbytes, product_flops, dtype)
        assert row["ideal_ns"] == (None if ideal_ns is None else pytest.approx(ideal_ns))
        known = ideal_ns is not None and device_ns
        assert row["roof_ratio"] == (pytest.approx(ideal_ns / device_ns) if known else None)  # type: ignore[operator]
        assert (row["bound"] is None) == (ideal_ns is None)


def ideal_of(flops: int | None, nbytes: int | None, product_flops: int | None, dtype: str | None) -> float | None:
    """The time that one row takes at least, in plain arithmetic."""
    if flops is None or nbytes is None or product_flops is None:
        return None
    rate = {"float16": 10e12, "float32": 1e12}.get(dtype or "")
    if product_flops and rate is None:
        return None
    product_ns = product_flops / rate * 1e9 if product_flops and rate else 0.0
    rest_ns = max(flops - product_flops, 0) / 1e12 * 1e9
    compute_ns = max(product_ns, rest_ns) if dtype == "float16" else product_ns + rest_ns
    return max(compute_ns, nbytes / 100e9 * 1e9)
