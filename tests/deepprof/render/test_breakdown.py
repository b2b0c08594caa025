"""The table of a time's parts: order, small parts, bars, and pages of any width."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.render.page import TextPage
from deepprof.render.text import print_breakdown
from deepprof.render.wording import CPU_PARTS, GPU_PARTS

MS = 1_000_000


class Written(io.StringIO):
    def __init__(self, encoding: str) -> None:
        super().__init__()
        self.kind = encoding

    @property
    def encoding(self) -> str:
        return self.kind


def show(parts: dict[str, float], width: int = 80, encoding: str = "utf-8") -> list[str]:
    written = Written(encoding)
    console = Console(file=written, width=width, color_system=None, force_terminal=False)
    print_breakdown("where the time goes", parts, TextPage(console))
    return written.getvalue().splitlines()


@pytest.mark.parametrize("words", [GPU_PARTS, CPU_PARTS])
def test_every_part_has_words_of_its_own(words: Mapping[str, str]) -> None:
    assert set(words) == set(PART_NAMES)
    assert len(set(words.values())) == len(words)


def test_the_largest_part_comes_first_with_its_time_share_and_bar() -> None:
    assert show({"idle_input_ns": 25 * MS, "compute_ns": 75 * MS, "idle_sync_ns": 0}) == [
        "",
        "  where the time goes",
        "    compute             75.0 ms   75.0 %  " + "█" * 22,
        "    idle: data loading  25.0 ms   25.0 %  " + "█" * 8,
    ]


def test_small_parts_share_a_line() -> None:
    rows = show({"compute_ns": 990_000, "idle_sync_ns": 4_999, "idle_host_ns": 5_001})
    assert [row.split("  ")[2].strip() for row in rows[2:]] == ["compute", "idle: other host work", "other parts"]
    assert "5.00 µs" in rows[4]
    assert not rows[4].endswith("█")


@pytest.mark.parametrize("parts", [{}, {"compute_ns": 0}, {"compute_ns": 0.0, "idle_sync_ns": 0.0}])
def test_no_time_is_no_table(parts: dict[str, float]) -> None:
    assert show(parts) == []


def test_one_part_is_all() -> None:
    assert show({"compute_ns": 7})[2:] == ["    compute  7 ns    100 %  " + "█" * 30]


def test_pages_without_unicode_have_bars_too() -> None:
    rows = show({"compute_ns": 3_000, "idle_launch_ns": 1_000}, encoding="ascii")
    assert rows[2].endswith("#" * 22)
    assert all(row.isascii() for row in rows)


PARTS = st.dictionaries(st.sampled_from(PART_NAMES), st.floats(0, 1e15), max_size=len(PART_NAMES))


def test_a_narrow_page_has_sentences() -> None:
    assert show({"exposed_communication_ns": 3 * MS, "compute_ns": MS}, 30)[2:] == [
        "    communication, exposed:",
        "      3.00 ms, 75.0 %",
        "    compute: 1.00 ms, 25.0 %",
    ]


@given(PARTS, st.integers(1, 200))
def test_no_row_is_wider_than_the_page(parts: dict[str, float], width: int) -> None:
    rows = show(parts, width)
    assert max(map(len, rows), default=0) <= max(30, width)


@given(PARTS)
def test_no_share_is_lost_but_for_rounding(parts: dict[str, float]) -> None:
    rows = show(parts, 100)[2:]
    shares = [float(row.split(" %")[0].split()[-1].lstrip("<>")) for row in rows]  # wide: a row each
    assert not rows or 98.5 <= sum(shares) <= 101
    assert (sum(parts.values()) > 0) == bool(rows)
