"""Every iteration by parts, its marks, and what takes its time."""

from __future__ import annotations

import polars as pl
import pytest

import deepprof
from deepprof.analysis import Analysis
from deepprof.metrics.kernels.classify import find_kernel_kinds
from deepprof.metrics.loop import Loop
from deepprof.metrics.top import copies_of_each, kernels_of_each
from deepprof.web.documents.iterations import write_iterations
from deepprof.web.documents.marks import mark_iterations
from deepprof.web.documents.strips import MOST_BARS, draw_strip_of
from tests.deepprof.builders import build_iterations, build_loop
from tests.deepprof.render.reports import read_simulated
from tests.deepprof.web.documents.columns import again, check_columns, check_texts

COLUMNS = ["index", "start_ns", "length_ns", "iteration_ns", "interval_ns", "overlap_ratio", "kernels", "mark"]


@pytest.fixture(scope="module")
def growing() -> Analysis:
    """A job whose graph grows."""
    return deepprof.analyze(read_simulated("graph-growth", iterations=14))


def test_parts_add_up_to_each_iteration(growing: Analysis) -> None:
    document = again(write_iterations(growing, 0))
    check_columns(document, COLUMNS, growing.loops[0].iterations.height)
    for row, length in enumerate(document.length_ns):
        assert sum(part[row] for part in document.parts) == length
    assert {part.name for part in document.part if part.idle} >= {"idle_host_ns"}


def test_figures_are_those_of_the_report(growing: Analysis) -> None:
    figures = {figure.name: figure for figure in write_iterations(growing, 0).figures}
    assert figures["avg_interval_ns"].value == growing.loops[0].metrics.avg_interval_ns
    assert figures["avg_interval_ns"].text.endswith("ms")


def test_the_kernels_of_an_iteration_are_the_longest_of_it(growing: Analysis) -> None:
    document = write_iterations(growing, 0)
    top = document.top_kernels
    check_texts(document, top.name, document.top_copies.direction)
    events = growing.events_in_iterations.filter(pl.col("iteration") == 3, pl.col("activity") == "kernel")
    busy = events.group_by(pl.col("name").str.slice(0, 12)).agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    first = next(k for k, index in enumerate(top.index) if index == 3)
    assert top.time_ns[first] == max(top.time_ns[k] for k, index in enumerate(top.index) if index == 3)
    assert top.time_ns[first] <= busy["ns"].max()


def test_kernels_and_copies_of_all_iterations_are_those_of_the_means(growing: Analysis) -> None:
    loop, (trace,) = growing.loops[0], growing.traces
    usual = loop.usual["index"].implode()
    each = kernels_of_each(trace, loop, find_kernel_kinds(trace), most=1000).filter(pl.col("index").is_in(usual))
    sums = each.group_by("name").agg(pl.sum("time_ns"), pl.sum("calls"))
    means = growing.kernels.join(sums, on="name", suffix="_sum")
    assert means.height == growing.kernels.height
    many = loop.usual.height
    assert (means["time_ns"] - means["time_ns_sum"] / many).abs().max() <= 1
    copied = copies_of_each(trace, loop).filter(pl.col("index").is_in(usual))
    assert copied["calls"].sum() / many == pytest.approx(float(growing.copies["calls"].sum()))


def test_the_first_and_the_last_are_marked(growing: Analysis) -> None:
    marks = mark_iterations(growing.loops[0])
    complete = growing.loops[0].iterations["complete"].to_list()
    assert [mark == "incomplete" for mark in marks] == [not each for each in complete]


def test_a_slow_iteration_is_marked() -> None:
    loop = build_loop(iterations=build_iterations([10_000_000] * 9 + [40_000_000] + [10_000_000] * 9, warmup=1))
    marks = mark_iterations(loop)
    assert marks == ["warm-up", *[""] * 8, "outlier", *[""] * 8, "incomplete"]


def test_a_strip_of_many_iterations_shows_the_longest_of_each_bar() -> None:
    times = [1_000_000] * 1000
    times[500] = 9_000_000
    strip = draw_strip_of(build_loop(iterations=build_iterations(times, partial=False)))
    assert len(strip.first) == MOST_BARS
    assert max(strip.longest_ns) >= 7_000_000
    assert strip.first[0] == 0
    assert strip.last[-1] == 999
    assert all(b == a + 1 for a, b in zip(strip.last, strip.first[1:], strict=False))


@pytest.mark.parametrize("many", [0, 1, 2])
def test_few_iterations_are_a_strip(many: int) -> None:
    loop: Loop = build_loop(iterations=build_iterations([1_000_000] * many, warmup=0))
    assert len(draw_strip_of(loop).first) == many


def test_too_many_iterations_are_counted(monkeypatch: pytest.MonkeyPatch, growing: Analysis) -> None:
    monkeypatch.setattr("deepprof.web.documents.iterations.MOST_ITERATIONS", 5)
    document = write_iterations(growing, 0)
    assert len(document.index) == 5
    assert document.left_out == growing.loops[0].iterations.height - 5
    assert max(document.top_kernels.index) == 4
