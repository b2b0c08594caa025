import io
import re

import polars as pl
import pytest
from rich.cells import cell_len
from rich.console import Console

from deepprof.collectors.trace import DEVICES
from deepprof.metrics.iteration import ITERATIONS
from deepprof.render.strip import BLOCKS, draw_strip
from deepprof.render.text import print_report

from .builders import build_analysis, build_finding, build_iterations, build_loop, build_metrics, build_trace

FINDINGS = tuple(build_finding(rule=f"rule-{k}", severity=s) for k, s in enumerate(["critical", "warning", "info"] * 3))


def show(analysis, width=100, encoding="utf-8", **options):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    print_report(analysis, Console(file=stream, width=width), **options)
    stream.flush()
    return raw.getvalue().decode(encoding)


def words(text):
    return " ".join(text.split())


CASES = {
    "no loop": build_analysis(loops=(), findings=()),
    "one loop": build_analysis(),
    "ten ranks": build_analysis(loops=tuple(build_loop(rank=rank) for rank in range(10)), findings=FINDINGS),
    "200 iterations": build_analysis(loops=(build_loop([10_000_000 + k for k in range(200)]),)),
    "long words": build_analysis(traces=(build_trace("/very/long/" + "x" * 300 + ".json", notes=("y" * 150,)),)),
    "wide letters": build_analysis(traces=(build_trace("訓練の記録" * 20),)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", [30, 40, 80, 200])
def test_no_line_is_wider_than_the_console(case, width):
    text = show(CASES[case], width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_headline_says_what_one_iteration_is():
    text = show(build_analysis())
    assert "1 iteration = 335 kernels on stream 7" in text
    assert "8 iterations (1 incomplete), median 57.1 ms, confidence 0.98" in text
    assert "100 % of 8 ProfilerStep ranges agree" in words(text)
    assert "every 10 iterations +12 kernels (statistics)" in text
    assert "inside: 8 times 13 kernels" in text


def test_the_run_line_counts_what_was_there():
    text = show(build_analysis())
    assert "span 1.00 ms · busy 90.1 % · 13,700 kernels, 82 copies, 41 memsets" in text
    assert "kineto · rank 0 · 1 device (NVIDIA A100)" in text


@pytest.mark.parametrize("width", [40, 200])
def test_table_three_has_the_papers_names_at_any_width(width):
    text = show(build_analysis(), width)
    for label, value in (
        ("interval", "12.3 ms"),
        ("max interval", "92.4 ms"),
        ("overlap", "1.2 %"),
        ("size", "64.0 KiB"),
    ):
        assert label in text
        assert value in text


def test_a_loop_without_figures_prints_dashes():
    empty = dict.fromkeys(
        ("avg_interval_ns", "max_interval_ns", "avg_overlap_ratio", "avg_operation_ns", "avg_size_bytes")
    )
    loop = build_loop([5], metrics=build_metrics(**empty, iteration_ns=None, warmup_excluded=0), agreement=None)
    text = show(build_analysis(loops=(loop,)), 40)
    assert re.search(r"avg overlap +-\n", text)
    assert "median" not in text.partition("Findings")[0]


def test_a_missing_loop_is_explained():
    text = show(build_analysis(loops=(), findings=()))
    assert "No iteration found\n  only 2 repetitions were seen; 3 are needed" in text
    assert "No findings without an iteration to measure" in text


def test_findings_carry_severity_cost_and_advice():
    text = show(build_analysis())
    assert "1. ✖ critical graph-growth: the graph grows with every iteration" in text
    assert "up to 48.0 ms per iteration (84.1 % of the median) · rank 0 · iterations 1 to 39" in text
    assert "→ Build the graph once" in text


def test_only_the_first_findings_are_shown_unless_all_are_asked_for():
    analysis = build_analysis(findings=FINDINGS)
    assert re.findall(r"rule-\d", show(analysis)) == [f"rule-{k}" for k in range(5)]
    assert "4 more findings; --all shows them" in show(analysis)
    assert len(re.findall(r"rule-\d", show(analysis, limit=None))) == 9


def test_many_loops_are_cut():
    text = show(CASES["ten ranks"])
    assert text.count("1 iteration = ") == 8
    assert "Loop 8 (rank 7, device 0)" in text
    assert "and 2 more loops" in text


def test_ascii_where_the_encoding_has_no_more():
    analysis = build_analysis(
        traces=(build_trace("größe.json"),), loops=(build_loop([900 * k + 900 for k in range(8)]),)
    )
    text = show(analysis, encoding="ascii")
    assert text.isascii()
    assert "gr??e.json" in text
    assert "X critical" in text
    assert "the highest 6.30 us" in text


def test_no_colour_codes_without_a_terminal_and_with_no_color(monkeypatch):
    assert "\x1b" not in show(build_analysis())
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    print_report(build_analysis(), Console(file=stream, force_terminal=True, width=80))
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", stream.getvalue())


def test_a_terminal_gets_colours(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = io.StringIO()
    print_report(build_analysis(), Console(file=stream, force_terminal=True, color_system="standard", width=80))
    assert re.search(r"\x1b\[1;31m1\. ", stream.getvalue())


def test_text_is_data_and_not_markup_or_control():
    finding = build_finding(title="[bold]x[/bold] [/nope]", summary="a\x1b[31mb\nc")
    text = show(build_analysis(traces=(build_trace("[red]a.json"),), findings=(finding,)))
    assert "[red]a.json" in text
    assert "[bold]x[/bold] [/nope]" in text
    assert "a?[31mb c" in text


def test_a_trace_without_devices_or_events_prints():
    trace = build_trace(devices=pl.DataFrame(schema=dict(DEVICES)), rank=None)
    streams = build_analysis().streams.clear()
    summary = type(build_analysis().summary)(0, 0, 0, {})
    text = show(build_analysis(traces=(trace,), streams=streams, summary=summary, loops=(), findings=()))
    assert "span 0 ns · busy - · no device events" in text
    assert "0 devices" in text


def strip(times, width, **options):
    return [line for line, _ in draw_strip(build_iterations(times), width, **options)]


def test_a_bar_is_as_high_as_its_iteration_is_long():
    bars, marks, words_below = strip([80 * (k + 1) for k in range(8)] + [1], 40)
    assert bars == BLOCKS + BLOCKS[0]
    assert marks == "w       i"
    assert words_below == "each bar is 1 iteration, the highest 640 ns, w = warm-up, i = incomplete"


def test_a_slow_iteration_survives_the_squeeze():
    times = [10] * 200
    times[117] = 1_000
    bars, _, words_below = strip(times, 40)
    assert len(bars) == 40
    assert [at for at, bar in enumerate(bars) if bar == BLOCKS[-1]] == [117 // 5]
    assert "the longest of 5 iterations" in words_below


def test_what_runs_between_two_iterations_counts_to_the_bar():
    iterations = build_iterations([100, 100, 100, 100]).with_columns(iteration_ns=None, interval_ns=None)
    bars = next(line for line, _ in draw_strip(iterations.cast(dict(ITERATIONS)), 40))
    assert bars == BLOCKS[-1] * 3 + BLOCKS[6]  # the last one is as long as its own work, 80


def test_a_strip_of_nothing_is_empty():
    assert strip([], 40) == []
    assert strip([0], 40, ascii_only=True)[0] == "?"
