"""Stretches of 2 MiB over time, against a walk over bytes and moments."""

from __future__ import annotations

from unittest import mock

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.metrics.memory import address_bands
from deepprof.metrics.memory.address_bands import (
    ADDRESS_BANDS,
    BAND_NBYTES,
    BAND_WINDOWS,
    classify_bands,
    cut_bands,
    measure_bands,
    spread_over_windows,
)
from deepprof.metrics.memory.block_lifetimes import BLOCKS
from tests.tables import Row, table

SPAN = (100, 200)
QUARTER = BAND_NBYTES // 4
Block = tuple[int, int, int, int]  # address and size in quarters of a section, begin and length in ns


def blocks_of(*rows: Row) -> pl.DataFrame:
    return table([{"device": 0, **row} for row in rows], BLOCKS)


def block(address: int, nbytes: int, begin: int | None, end: int | None, **more: object) -> Row:
    return {"address": address, "nbytes": nbytes, "begin_ns": begin, "end_ns": end, **more}


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12), st.integers(100, 199), st.integers(1, 60)), max_size=8),
    st.sampled_from([1, 3, 10]),
)
def test_bands_are_as_a_walk_sees_them(given_blocks: list[Block], windows: int) -> None:
    rows = [block(a * QUARTER, n * QUARTER, t, min(t + length, 200)) for a, n, t, length in given_blocks]
    pieces, left_out = cut_bands(blocks_of(*rows), SPAN)
    assert left_out == 0
    found = {row["address"] // BAND_NBYTES: row for row in classify_bands(pieces, SPAN).rows(named=True)}
    width = -(-100 // windows)
    held: dict[tuple[int, int], int] = {}
    alive: dict[int, set[int]] = {}
    filled: dict[int, int] = {}
    for a, n, t, length in given_blocks:
        end = min(t + length, 200)
        for quarter in range(a, a + n):
            band = quarter // 4
            alive.setdefault(band, set()).update(range(t, end))
            filled[band] = filled.get(band, 0) + QUARTER * (end - t)
            for window in range((t - 100) // width, (end - 1 - 100) // width + 1):
                held[band, window] = held.get((band, window), 0) + QUARTER
    assert found.keys() == alive.keys()
    for band, moments in alive.items():
        runs = runs_of(sorted(moments))
        assert found[band]["alive_ratio"] == pytest.approx(len(moments) / 100)
        assert (found[band]["longest_ns"], found[band]["periods"]) == (max(runs), len(runs))
        assert found[band]["held_ratio"] == pytest.approx(filled[band] / 100 / BAND_NBYTES)
        open_end = len(runs) == 1 and 199 in moments
        kind = "long-lived" if max(runs) >= 80 else "burst" if max(runs) <= 20 and not open_end else "mixed"
        assert found[band]["lifetime"] == kind
    spread = spread_over_windows(pieces, SPAN, windows)
    assert {(a // BAND_NBYTES, w): n for _, a, w, n in spread.rows()} == {
        place: min(nbytes, BAND_NBYTES) for place, nbytes in held.items()
    }


def runs_of(moments: list[int]) -> list[int]:
    """Return the lengths of runs of adjacent moments."""
    lengths = [0]
    for k, moment in enumerate(moments):
        if k and moment != moments[k - 1] + 1:
            lengths.append(0)
        lengths[-1] += 1
    return lengths


def test_what_was_there_before_and_what_stays_last_as_long_as_the_recording() -> None:
    pieces, _ = cut_bands(blocks_of(block(0, 5, None, 190), block(BAND_NBYTES, 5, 110, None)), SPAN)
    found = classify_bands(pieces, SPAN)
    assert found.select("longest_ns", "lifetime").rows() == [(90, "long-lived"), (90, "long-lived")]


def test_what_was_allocated_late_and_is_not_released_is_no_burst() -> None:
    pieces, _ = cut_bands(blocks_of(block(0, 5, 190, None), block(BAND_NBYTES, 5, 185, 195)), SPAN)
    assert classify_bands(pieces, SPAN)["lifetime"].to_list() == ["mixed", "burst"]


def test_the_operator_is_the_one_that_allocated_most() -> None:
    blocks = blocks_of(block(0, 5, 100, 110), block(8, 3, 120, 130), block(16, 3, 140, 150))
    pieces, _ = cut_bands(blocks.with_columns(operator=pl.Series(["aten::mm", "aten::add", "aten::add"])), SPAN)
    assert classify_bands(pieces, SPAN)["operator"].to_list() == ["aten::add"]


def test_blocks_without_a_place_and_blocks_beyond_the_limit_are_counted() -> None:
    most = (1 << 63) - 1
    strange = blocks_of(block(0, 1, 100, 101), block(5, most, 100, 101), {"nbytes": 5}, block(9, 0, 100, 101))
    pieces, left_out = cut_bands(strange, SPAN)
    assert (pieces.height, left_out) == (1, 3)
    high = blocks_of(block((1 << 64) - 1, 1, 100, 101))
    assert classify_bands(cut_bands(high, SPAN)[0], SPAN)["address"].to_list() == [(1 << 64) - BAND_NBYTES]
    with mock.patch.object(address_bands, "MAX_ROWS", 3):
        pieces, left_out = cut_bands(blocks_of(*(block(0, BAND_NBYTES * 2, 100 + k, 200) for k in range(4))), SPAN)
    assert (pieces.height, left_out) == (2, 3)


def test_fewer_windows_where_there_would_be_too_many_rows() -> None:
    blocks = blocks_of(*(block(k * BAND_NBYTES, 5, 100, None) for k in range(4)))
    assert measure_bands(blocks, SPAN, 10).window_ns == 10
    with mock.patch.object(address_bands, "MAX_ROWS", 8):
        few = measure_bands(blocks, SPAN, 10)
    assert (few.window_ns, few.windows.height, few.left_out) == (50, 8, 0)


def test_nothing_and_a_recording_without_length() -> None:
    pieces, left_out = cut_bands(blocks_of(), SPAN)
    assert (left_out, classify_bands(pieces, SPAN).schema) == (0, pl.Schema(ADDRESS_BANDS))
    assert spread_over_windows(pieces, SPAN, 4).schema == pl.Schema(BAND_WINDOWS)
    moment, _ = cut_bands(blocks_of(block(0, 5, 7, 7)), (7, 7))
    assert classify_bands(moment, (7, 7))["lifetime"].to_list() == ["mixed"]
    assert spread_over_windows(moment, (7, 7), 4)["window"].to_list() == [0]
