import io
import json
import re

import polars as pl
import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from deepprof.collectors.trace import DEVICES, MEMORY_EVENTS, Accounting, empty_table
from deepprof.metrics.loop import Agreement
from deepprof.render.text import BLOCKS, draw_strip, print_report
from tests.deepprof.builders import (
    build_analysis,
    build_finding,
    build_iterations,
    build_loop,
    build_metrics,
    build_trace,
)

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
    assert "8 iterations (1 incomplete), median 57.1 ms" in text
    assert "every 10 iterations +12 kernels (statistics)" in text


def test_the_evidence_comes_last_and_in_full_only_when_asked_for():
    short, full = show(build_analysis()), show(build_analysis(), verbose=True)
    assert "inside: 8 times 13 kernels" in full.partition("How the iteration was found")[2]
    assert "8 of 8 ProfilerStep ranges agree" in words(full)
    assert "inside" not in short
    assert "confidence 0.98" in short.partition("How the iteration was found")[2]
    assert "-v prints" in short


def test_the_answer_stands_before_everything_else():
    analysis = build_analysis(loops=(build_loop([57_100_000] * 8),))
    text = words(show(analysis).partition("1 iteration =")[0])
    assert "A loop of 7 iterations, 57.1 ms each." in text  # and one that is not whole
    assert "The largest avoidable loss: the graph grows with every iteration, up to 48.0 ms (84.1 %)" in text
    assert "What to do: Build the graph once" in text
    assert "Confidence: 0.98 in the iterations, 0.97 in the loss." in text


def test_without_a_loss_the_answer_says_so():
    text = words(show(build_analysis(findings=())).partition("1 iteration =")[0])
    assert "No loss is large enough to report." in text
    assert "avoidable" not in text


def test_the_run_line_counts_what_was_there():
    text = show(build_analysis())
    assert "span 1.00 ms · busy 90.1 % · 13,700 kernels, 82 copies, 41 memsets" in text
    assert "kineto · rank 0 · 1 device (NVIDIA A100)" in text


@pytest.mark.parametrize("width", [40, 200])
def test_table_three_has_the_papers_names_at_any_width(width):
    text = show(build_analysis(), width, verbose=True)
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
    text = show(build_analysis(loops=(loop,)), 40, verbose=True)
    assert re.search(r"avg overlap +-\n", text)
    assert "median" not in text.partition("Findings")[0]


def only_copies(**changes):
    analysis = build_analysis(**changes)
    return replace(analysis, summary=replace(analysis.summary, events={"kernel": 1, "memcpy": 60}))


def test_where_a_device_only_copies_its_iterations_are_of_copies():
    loop = build_loop(period=2, evidence="2 kernels repeat 21 times on the stream; 1 kernel before them")
    text = show(only_copies(loops=(loop,)), verbose=True)
    assert "1 iteration = 2 copies on stream 7" in text
    assert "2 copies repeat 21 times on the stream; 1 copy before them" in words(text)
    assert "1 kernel, 60 copies" in words(text)  # what was recorded


def test_what_was_not_recorded_keeps_its_name():
    reason = "the trace holds no GPU kernel; holds no kernel: a note; 7 kernels repeat 28 times"
    text = show(only_copies(loops=(), findings=(), no_loop_reason=reason))
    assert reason.replace("7 kernels", "7 copies") in words(text)


def test_a_missing_loop_is_explained():
    text = show(build_analysis(loops=(), findings=()))
    assert "No iteration found\n  only 2 repetitions were seen; 3 are needed" in text
    assert "No findings" in text
    assert "A recording of 1.00 ms without repeated iterations." in text
    assert "For a more certain answer, record three iterations or more" in words(text)


@pytest.mark.parametrize(
    ("agreement", "said"),
    [
        (Agreement("ProfilerStep", 5, 0.8889, 4, 4), "4 of 5 ProfilerStep ranges agree"),
        (Agreement("step", 1, 1.0, 1, 1), "1 of 1 step range agrees"),
        (Agreement("step", 10, 0.5, 10, 30), "10 of 30 iterations begin at a step range"),
        (Agreement("step", 3, 0.0), "0 of 3 step ranges agree"),
    ],
)
def test_few_ranges_are_counted(agreement, said):
    assert said in words(show(build_analysis(loops=(build_loop(agreement=agreement),)), verbose=True))


def test_no_finding_is_said_with_what_could_not_be_looked_for():
    hint = (
        "not examined: memory leaks, because no allocations were recorded; torch.profiler records "
        "them with profile_memory=True"
    )
    allocation = pl.DataFrame({"time_ns": [5], "device": [0], "nbytes": [1]}).cast({"time_ns": pl.Int64})
    recorded = pl.concat([empty_table(MEMORY_EVENTS), allocation], how="diagonal_relaxed").cast(dict(MEMORY_EVENTS))
    known = {"memory_events": recorded, "accounting": Accounting(read=1, kept=1)}
    for changes, told in (({}, True), ({"format": "rocpd"}, False), (known, False)):
        traces = (build_trace(**changes),)
        assert (hint in words(show(build_analysis(traces=traces, findings=())))) is told
        assert hint not in words(show(build_analysis(traces=traces)))
        assert hint not in words(show(build_analysis(traces=traces, findings=(), loops=())))
        said = json.loads(build_analysis(traces=traces).to_json())["unexamined"]
        assert [each for each in said if "memory" in each] == [hint.removeprefix("not examined: ")] * told
        assert any(each.endswith("with record_shapes=True") for each in said) is (traces[0].format == "kineto")


def test_findings_carry_severity_cost_and_advice():
    text = show(build_analysis(loops=(build_loop([57_100_000] * 8),)))
    assert "1. ✖ critical graph-growth: the graph grows with every iteration" in text
    assert "up to 48.0 ms per iteration (84.1 %) · rank 0 · iterations 1 to 39" in text
    assert "→ Build the graph once" in text


def test_only_the_first_findings_are_shown_unless_all_are_asked_for():
    analysis = build_analysis(findings=FINDINGS)
    assert re.findall(r"(?m)^\d\. .*(rule-\d)", show(analysis)) == [f"rule-{k}" for k in range(5)]
    hidden = show(analysis).partition("4 more findings; --all shows them in full")[2]
    assert re.findall(r"rule-\d", hidden) == [f"rule-{k}" for k in range(5, 9)]
    assert len(re.findall(r"rule-\d", show(analysis, limit=None))) == 9


def test_many_loops_are_cut():
    text = show(CASES["ten ranks"])
    assert text.count("1 iteration = ") == 1
    assert "also on rank 1, device 0; rank 2, device 0;" in words(text)
    assert "rank 4, device 0 and 5 more" in words(text)
    unlike = tuple(build_loop(rank=rank, period=100 * (rank + 1)) for rank in range(10))
    text = show(build_analysis(loops=unlike))
    assert text.count("1 iteration = ") == 8
    assert "Loop 8: 1 iteration = 800 kernels on rank 7, device 0, stream 7" in text
    assert "and 2 more loops" in text


def add_place(analysis, rank, device):
    """The analysis of a job with one stream more."""
    row = analysis.streams.head(1).with_columns(
        rank=pl.lit(rank, pl.Int64), device=pl.lit(device, analysis.streams.schema["device"])
    )
    return replace(analysis, streams=pl.concat([analysis.streams, row]))


@pytest.mark.parametrize(("rank", "device"), [(1, 0), (0, 1)])
def test_a_loop_says_where_it_is_when_the_job_has_more_places(rank, device):
    assert "1 iteration = 335 kernels on stream 7\n" in show(build_analysis())
    text = show(add_place(build_analysis(), rank, device))
    assert "1 iteration = 335 kernels on rank 0, device 0, stream 7\n" in text


def test_two_loops_on_one_stream_are_numbered():
    text = show(build_analysis(loops=(build_loop(), build_loop(period=12))))
    assert "Loop 2: 1 iteration = 12 kernels on rank 0, device 0, stream 7\n" in text


def test_main_streams_without_a_loop_are_told_after_the_loops():
    text = show(build_analysis(missing=tuple(f"rank {k}: no iteration found: too short" for k in range(9))))
    assert text.index("1 iteration =") < text.index("rank 0: no iteration found") < text.index("Findings")
    assert "rank 3: no" in text
    assert "rank 4: no" not in text
    assert "… and 5 more (-v shows them)" in text


def test_many_notes_are_cut():
    text = show(build_analysis(traces=(build_trace(notes=tuple(f"note {k}" for k in range(12))),)))
    assert text.count("note: ") == 4
    assert "… and 8 more (-v shows them)" in text
    assert "more (-v" not in show(build_analysis(traces=(build_trace(notes=("a", "b", "c", "d")),)))


def place(rank, median, **changes):
    return build_loop([median] * 8, rank=rank, **changes)


@pytest.mark.parametrize(
    ("loops", "finding", "share"),
    [
        ((place(0, 100_000_000),), {"rank": 0}, "48.0 %"),
        ((place(0, 100_000_000),), {"rank": None}, "48.0 %"),
        ((place(0, 100_000_000), place(1, 96_000_000)), {"rank": 1}, "50.0 %"),
        ((place(0, 100_000_000), place(1, 96_000_000)), {"rank": None}, None),
        ((place(0, 100_000_000), place(0, 96_000_000, device=1)), {"rank": 0}, None),
        ((place(0, 100_000_000), place(0, 96_000_000, stream=9)), {"rank": 0}, None),
        ((place(0, 100_000_000), place(0, 96_000_000)), {"rank": 0, "device": 0, "stream": 7}, None),
        ((place(0, 100_000_000), place(0, 96_000_000, device=1)), {"rank": 0, "device": 1, "stream": 7}, "50.0 %"),
    ],
)
def test_a_share_is_of_the_mean_iteration_of_the_findings_own_loop(loops, finding, share):
    text = show(build_analysis(loops=loops, findings=(build_finding(**finding),)))
    assert re.findall(r"per iteration \(([^(]*)\)", text) == ([share] if share else [])


def test_a_finding_says_its_device_where_there_are_several():
    finding = build_finding(rank=0, device=1, stream=7)
    assert "rank 0, device 1, stream 7 · iter" in show(add_place(build_analysis(findings=(finding,)), 0, 1))
    assert "rank 0 · iter" in show(build_analysis(findings=(finding,)))


def test_confidence_short_of_certain_is_not_1():
    text = show(build_analysis(loops=(build_loop(confidence=0.999),), findings=(build_finding(confidence=0.9999),)))
    assert words(text).count("confidence 0.99") == 2


def test_at_most_three_inner_loops():
    loop = build_loop(nested=tuple({"events": k + 1, "repeats": 9, "gap_above_ns": 5} for k in range(5)))
    assert re.findall("inside: .*", show(build_analysis(loops=(loop,)), verbose=True)) == [
        "inside: 9 times 1 kernel",
        "inside: 9 times 2 kernels",
        "inside: 9 times 3 kernels",
    ]


@pytest.mark.parametrize("width", range(30, 60))
def test_a_number_and_its_unit_stay_on_one_line(width):
    finding = build_finding(summary="It waits 89.8 ms of 12.5 s, 1.9 % of 4.25 GiB, and 10 more kernels. " * 3)
    text = show(build_analysis(findings=(finding,)), width)
    assert not re.search(r"\d\n +(%|ms|s|GiB)\b", text)
    assert "\ue000" not in text
    assert max(map(len, text.splitlines())) <= width


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
    assert "0 devices\nno device events\n" in text
    assert "0 devices" in text


def strip(times, width, **options):
    return [line for line, _ in draw_strip(build_iterations(times), width, **options)]


def test_many_kinds_of_devices_are_cut():
    devices = pl.DataFrame({"device": range(9), "name": [f"Agent {k}" for k in range(9)]})
    devices = devices.with_columns(pl.lit(None).alias(c) for c in DEVICES if c not in devices.columns)
    trace = replace(build_trace("a.csv"), devices=devices.select(list(DEVICES)).cast(dict(DEVICES)))
    text = show(build_analysis(traces=(trace,)), width=200)
    assert "(Agent 0, Agent 1, Agent 2, Agent 3, …)" in text


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


def test_a_bar_is_the_iterations_own_time_whatever_runs_between_two_of_them():
    iterations = build_iterations([100, 100, 100, 100], partial=False)
    later = iterations["start_ns"] + pl.Series([0, 0, 900, 900])  # nine evaluations after the second
    apart = iterations.with_columns(start_ns=later, end_ns=later + 80, idle_ns=pl.Series([20, 0, 20, 0]))
    bars, *_, words_below = [line for line, _ in draw_strip(apart, 40)]
    assert bars == (BLOCKS[-1] + BLOCKS[6]) * 2
    assert "the highest 100 ns" in words_below


def test_a_strip_of_nothing_is_empty():
    assert strip([], 40) == []
    assert strip([0], 40, ascii_only=True)[0] == "?"
