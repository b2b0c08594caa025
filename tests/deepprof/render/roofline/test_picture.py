"""What a roofline shows: points, roofs, axes, and the time along them."""

from __future__ import annotations

from math import log10

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.cost.roofs import DevicePeaks
from deepprof.render.roofline.picture import (
    MOST_DECADES,
    MOST_POINTS,
    NO_ROOFS,
    RooflineAxis,
    RooflinePicture,
    RooflinePoint,
    RooflineRoof,
    count_beyond,
    draw_lines,
    draw_up,
    find_axes,
    list_roofs,
    sum_along,
)
from tests.deepprof.render.roofline.drawings import PEAKS, PRODUCT, SMALL, SUM, UNKNOWN, roofed


def test_points_are_rows_with_their_share_of_the_time() -> None:
    picture = draw_up(roofed(SMALL, PRODUCT, SUM, UNKNOWN), PEAKS, "title")
    assert [point.name for point in picture.points] == ["add", "mm", "relu"]
    product = picture.points[1]
    assert product.intensity == 400
    assert product.flops_per_s == pytest.approx(5e12)
    assert product.share_ratio == pytest.approx(80_000 / 401_000)
    assert (product.bound, product.roof_ratio, product.is_measured) == ("compute", pytest.approx(0.5), True)
    assert picture.notes[0] == "Roofs of made up: of the test."
    assert picture.notes[1].startswith("1 row with 49.9 % of the time not drawn")


def test_a_row_without_a_time_stands_at_its_best_and_has_no_share() -> None:
    untimed = (*PRODUCT[:5], None)
    picture = draw_up(roofed(SUM, untimed), PEAKS, "title")
    assert [(point.is_measured, point.share_ratio) for point in picture.points] == [(True, 1.0), (False, 0.0)]
    assert picture.points[1].flops_per_s == pytest.approx(10e12)


def test_without_any_time_the_ideal_ones_count() -> None:
    picture = draw_up(roofed((*PRODUCT[:5], None), (*SUM[:5], None)), PEAKS, "title")
    assert [point.name for point in picture.points] == ["add", "mm"]
    assert [point.share_ratio for point in picture.points] == pytest.approx([2 / 3, 1 / 3])  # 80 and 40 µs


def test_what_a_table_says_of_its_basis_counts() -> None:
    table = roofed(PRODUCT, SUM).with_columns(basis=__import__("polars").Series(["predicted", "measured"]))
    assert [point.is_measured for point in draw_up(table, PEAKS, "title").points] == [True, False]


def test_without_peaks_there_is_a_sentence() -> None:
    picture = draw_up(roofed(PRODUCT, peaks=DevicePeaks("nothing", "known")), None, "title")
    assert (picture.roofs, picture.notes) == ((), (NO_ROOFS,))
    assert len(picture.points) == 1


def test_points_are_capped() -> None:
    picture = draw_up(roofed(*[SUM] * (MOST_POINTS + 5)), PEAKS, "title")
    assert len(picture.points) == MOST_POINTS
    assert "5 rows" in picture.notes[1]


def test_roofs_of_the_types_that_are_used() -> None:
    peaks = DevicePeaks(
        "a",
        "b",
        vector_flops_per_s={"float32": 1e12, "float64": 0.5e12},
        matrix_flops_per_s={"float16": 8e12, "bfloat16": 8e12, "tf32": 4e12},
        memory_nbytes_per_s={"L2": 5e12, "memory": 1e12},
    )
    labels = [roof.label for roof in list_roofs(peaks, ["float16", "bfloat16", "float8_e4m3fn", "float64", "int64"])]
    assert labels == [
        "memory 1 TB/s",
        "L2 5 TB/s",
        "float32 vector 1 TFLOP/s",
        "float16, bfloat16 matrix 8 TFLOP/s",
        "float64 vector 500 GFLOP/s",
    ]


def test_axes_hold_points_and_ridges() -> None:
    picture = draw_up(roofed(PRODUCT, SUM), PEAKS, "title")
    across, upward = find_axes(picture)
    assert (across.low, across.high) == (-1, 3)  # from an eighth to 400
    assert (upward.low, upward.high) == (9, 14)  # from 8.3 GFLOP/s to 10 TFLOP/s with space above
    assert [across.place(value) for value in (0.1, 10, 1000)] == pytest.approx([0, 0.5, 1])
    assert across.place(1e-9) == 0
    assert across.place(1e9) == 1


def test_lines_meet_at_the_ridge() -> None:
    picture = draw_up(roofed(PRODUCT, SUM), PEAKS, "title")
    lines = draw_lines(picture, *find_axes(picture))
    assert [(line.start, line.end) for line in lines] == [
        ((0.1, pytest.approx(1e10)), (pytest.approx(100.0), pytest.approx(1e13))),  # of the memory
        ((pytest.approx(10.0), 1e12), (1000.0, 1e12)),
        ((pytest.approx(100.0), 1e13), (1000.0, 1e13)),
    ]


def test_time_along_an_axis() -> None:
    bars = sum_along(RooflineAxis(0, 4), [(1, 0.25), (5, 0.25), (10_000, 0.5), (1e9, 0.1)], 4)
    assert bars.shares == pytest.approx((0.5, 0, 0, 0.6))
    assert bars.most == pytest.approx(0.6)


def test_an_outlier_does_not_press_all_others_together() -> None:
    usual = [RooflinePoint(str(at), 10.0**at, 1e12, 0.1, 1.0) for at in range(-1, 4)]
    far = RooflinePoint("far", 1e16, 1e21, 1e-6, 1.0)
    picture = RooflinePicture("title", (RooflineRoof("compute", "x", 1e13),), (*usual, far))
    across, upward = find_axes(picture)
    assert across.high - across.low <= MOST_DECADES
    assert all(across.holds(point.intensity) for point in usual)
    assert upward.holds(1e13)
    assert count_beyond(picture, across, upward) == 1


VALUES = st.floats(1e-12, 1e24)


@given(st.lists(st.tuples(VALUES, VALUES, st.floats(0, 1)), max_size=30), st.lists(VALUES, max_size=4))
def test_any_points_have_axes(drawn: list[tuple[float, float, float]], rates: list[float]) -> None:
    points = tuple(RooflinePoint("p", x, y, share, 1.0) for x, y, share in drawn)
    roofs = (*(RooflineRoof("memory", "m", rate) for rate in rates), RooflineRoof("compute", "c", 1e12))
    picture = RooflinePicture("title", roofs, points)
    for axis in find_axes(picture):
        assert 2 <= axis.high - axis.low <= MOST_DECADES
    across, upward = find_axes(picture)
    for line in draw_lines(picture, across, upward):
        for x, y in (line.start, line.end):
            assert across.low - 1e-6 <= log10(x) <= across.high + 1e-6
            assert upward.low - 1e-6 <= log10(y) <= upward.high + 1e-6
            if line.roof.kind == "memory":
                assert y == pytest.approx(x * line.roof.per_s)
