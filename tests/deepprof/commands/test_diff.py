"""`deepprof diff`: what it prints, the JSON it writes, its limits and its exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from functools import cache

import msgspec
import polars as pl
import pytest
from msgspec.structs import replace
from rich.console import Console

import deepprof
from deepprof.commands import diff, main
from deepprof.comparison import compare
from deepprof.diagnosis.on_cpu import DEVICE_WORDS
from deepprof.render import comparison_text
from deepprof.render.comparison_json import SCHEMA, DiffReport, encode
from deepprof.render.comparison_text import print_comparison, tell_apart
from deepprof.render.units import format_difference
from tests.deepprof.comparison.test_comparison import PLAIN, run_of, trace_of
from tests.deepprof.render.reports import play_cpu, read_simulated

SLOWER = [(name, 2 * length if name == "gamma" else length) for name, length in PLAIN]
HAIR = [(name, length + 6 if name == "gamma" else length) for name, length in PLAIN]
OTHER = [(f"other_{name}", length) for name, length in PLAIN]


@pytest.fixture
def runs(monkeypatch):
    """Makes `diff` see runs made by hand, whatever the paths; the path is the name of a run."""
    known = {
        "plain": (PLAIN, 8),
        "slower": (SLOWER, 8),
        "few": (SLOWER, 4),
        "none": (PLAIN, 1),
        "other": (OTHER, 8),
        "hair": (HAIR, 8),
    }

    def analysis(args, paths, details):
        kernels, count = known[paths[0]]
        return run_of(kernels, count=count)

    monkeypatch.setattr(diff, "analyze_paths", analysis)


def test_it_begins_with_the_answers_of_both_reports(capsysbinary, runs):
    assert main(["diff", "plain", "slower", "--format", "json"]) == 0
    written = json.loads(capsysbinary.readouterr().out)
    assert main(["diff", "plain", "slower"]) == 0
    lines = [" ".join(line.split()) for line in capsysbinary.readouterr().out.decode().split("\n\n")[0].splitlines()]
    for run, kernels in (("a", PLAIN), ("b", SLOWER)):
        own = json.loads(run_of(kernels).to_json())["headline"]
        assert written[run]["headline"] == own
        assert own["summary"].startswith(f"A loop of 8 iterations, {'900 µs' if run == 'a' else '1.05 ms'} each: ")
        assert own["summary"] in " ".join(lines)


def shown(a, b, width=80, encoding="utf-8"):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    print_comparison(compare(a, b), Console(file=stream, width=width))
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_runs_without_a_device_are_told_in_operators():
    (before,) = play_cpu()
    slower = before.host_events.with_columns((pl.col("start_ns", "end_ns") * 1.5).cast(pl.Int64))
    text = shown(deepprof.analyze(before), deepprof.analyze(replace(before, host_events=slower)))
    assert "rank 0: 1 iteration = 13 operators" in text
    assert "the program: 1.04 ms more" in text
    assert "Operators of the thread that changed" in text
    assert "Operators by name, per iteration" in text
    assert "Time, by code (+ new, - gone), per mean iteration" in text
    assert text.count("AddmmBackward0 ") == 3
    assert DEVICE_WORDS.findall(text) == []


def test_a_run_without_a_device_and_one_with_are_told_in_kernels():
    text = shown(deepprof.analyze(play_cpu()), deepprof.analyze(read_simulated("healthy", iterations=8)))
    assert "device 0: 1 iteration = 13 →" in text


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["diff"], "A, B"),
        (["diff", "x"], "B"),
        (["diff", "x", "y", "z"], "unrecognized arguments: z"),
        (["diff", "x", "y", "--format", "html"], "invalid choice: 'html'"),
        (["diff", "x", "y", "--top", "0"], "'0' is not a whole number of at least 1"),
        *(
            (["diff", "x", "y", "--fail-on", limit], "is not a limit such as regression=5% or regression=0.05")
            for limit in ("regression", "regression=", "regression=5", "regression=-5%", "regression=5 %", "slower=5%")
        ),
        (["diff", "x", "y", "--fail-on", "regression=" + "9" * 5000 + "%"], "is not a limit"),
        (["diff", "x", "y", "--fail-on", "regression=\u0665%"], "is not a limit"),
        (["diff", "absent.json", "y"], "absent.json"),
        (["diff", "x", "y", "-o", ""], "-o names no file"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(capsys, argv, words):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
    assert len(err) < 350


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("regression=5%", 0.05),
        ("regression=0.05", 0.05),
        ("regression=0%", 0),
        ("regression=12.5%", 0.125),
        ("regression=0.0", 0),
    ],
)
def test_limits_are_read(text, limit):
    assert diff.parse_regression(text) == pytest.approx(limit)


def test_nothing_to_compare_is_one_line_and_exit_2(capsys, runs):
    assert main(["diff", "plain", "none"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "plain and none: nothing can be compared: B: no iteration found" in err
    assert "record three or more iterations" in err


@pytest.mark.parametrize(
    ("runs_of", "limit", "status", "said"),
    [
        (
            ("plain", "slower"),
            "regression=5%",
            1,
            "regression: rank 0, device 0: iterations are 16.7% slower, which is more than 5%",
        ),
        (("plain", "slower"), "regression=0.2", 0, ""),
        (("slower", "plain"), "regression=0%", 0, ""),
        (("plain", "hair"), "regression=0.5%", 1, "regression: rank 0, device 0: iterations are 0.667% slower"),
        (("plain", "hair"), "regression=0.7%", 0, ""),
        (("plain", "plain"), "regression=0%", 0, ""),
        (
            ("plain", "few"),
            "regression=5%",
            0,
            "no regression: rank 0, device 0: iterations are 16.7% slower, which is more than 5%, but not sure",
        ),
    ],
)
@pytest.mark.usefixtures("runs")
def test_a_regression_is_an_exit_code_and_says_which(capfd, runs_of, limit, status, said):
    assert main(["diff", *runs_of, "--fail-on", limit]) == status
    out, err = capfd.readouterr()
    assert "per iteration" in out
    assert err.startswith(f"deepprof: {said}" if said else "")
    assert [line.split()[1] for line in err.splitlines()[1:]] == (["A:", "B:"] if said else [])


def test_json_goes_there_and_back(capfd, runs, tmp_path):
    assert main(["diff", "plain", "slower", "--format", "json"]) == 0
    out = capfd.readouterr().out
    report = msgspec.json.decode(out, type=DiffReport)
    assert report.schema == SCHEMA == "deepprof.diff/1"
    (pair,) = report.pairs
    assert pair.time.verdict == "slower"
    assert sum(part.difference_ns for part in pair.parts.values()) == pair.mean.difference_ns
    assert [row.a for row in pair.program.operations] == [["gamma"]]
    assert main(["diff", "plain", "slower", "--format", "json", "-o", str(tmp_path / "d.json")]) == 0
    assert (tmp_path / "d.json").read_text() == out
    assert json.loads(out) == json.loads(msgspec.json.encode(report))


def test_top_limits_the_rows(runs, tmp_path):
    file = tmp_path / "d.json"
    assert main(["diff", "plain", "other", "--format", "json", "-o", str(file), "--top", "2"]) == 0
    assert len(msgspec.json.decode(file.read_bytes(), type=DiffReport).pairs[0].kernels) == 2


def test_text_goes_to_a_file(runs, tmp_path):
    assert main(["diff", "plain", "slower", "-o", str(tmp_path / "d.txt")]) == 0
    assert "B takes 16.7 % more time" in (tmp_path / "d.txt").read_text()


def test_what_did_not_change_is_one_sentence():
    text = shown(run_of(PLAIN), run_of(PLAIN))
    assert "Nothing changed" in text
    assert "Kernels" not in text
    assert "Where the time went" not in text


def test_two_programs_list_no_rows_of_the_main_stream():
    text = shown(run_of(PLAIN), run_of(OTHER))
    assert "Not the same program" in " ".join(text.split())
    assert "Kernels of the main stream" not in text


@cache
def runs_with_a_long_name():
    """Two runs that are the same on every page."""
    after = [
        *SLOWER[:2],
        ("void very::long::name::of_a_kernel_that_never_ends_" + "x" * 100 + "<float>(int)", 99),
        *SLOWER[3:],
    ]
    return run_of(PLAIN), run_of(after, copies=((0, 10**6),))


@pytest.mark.parametrize("width", [30, 45, 80, 200])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_every_line_fits(width, encoding):
    text = shown(*runs_with_a_long_name(), width=width, encoding=encoding)
    assert max(map(len, text.splitlines())) <= width
    assert encoding == "utf-8" or text.isascii()


def test_several_ranks_are_a_row_each(monkeypatch):
    monkeypatch.setattr(comparison_text, "PAIRS", 2)
    jobs = [deepprof.analyze([trace_of(kernels, rank=rank) for rank in range(3)]) for kernels in (PLAIN, SLOWER)]
    text = shown(*jobs)
    assert text.count("+16.7 %") == 2
    assert "and 1 more pair;" in text


def test_names_that_are_short_for_the_same_are_told_apart():
    old, new = tell_apart("void at::vec<at::AddFunctor<float>, 4>(int)", "void at::vec<at::MulFunctor<float>, 4>(int)")
    assert (old, new) == ("vec [at::AddFunctor]", "vec [at::MulFunctor]")
    assert tell_apart("gemm_64", "gemm_128") == ("gemm_64", "gemm_128")
    assert tell_apart("vec<int>()", "vec<int, 4>()") == ("vec [int]", "vec [int, 4]")
    assert tell_apart("vec<int>()", "vec<int>()") == ("vec", "vec")


@pytest.mark.parametrize(("ns", "text"), [(0, "0 ns"), (1_500_000, "+1.50 ms"), (-20, "-20 ns")])
def test_differences_have_a_sign(ns, text):
    assert format_difference(ns) == text


def test_help_loads_nothing_heavy_and_is_ascii():
    heavy = "[m for m in ('polars', 'rich', 'numpy', 'msgspec', 'rapidfuzz') if m in sys.modules]"
    code = f"import sys\nfrom deepprof.commands import main\nprint(main(['diff', '--help']), {heavy}, file=sys.stderr)"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stderr == "0 []\n"
    assert "--fail-on regression=5%" in done.stdout


def test_the_api_is_public():
    comparison = deepprof.compare(run_of(PLAIN), run_of(SLOWER))
    assert isinstance(comparison, deepprof.Comparison)
    assert encode(comparison) == encode(compare(run_of(PLAIN), run_of(SLOWER)))


GOLDEN = """
A  made by hand
   A loop of 8 iterations, 900 µs each: the device computes 66.7 % of the time,
   and waits for a reason that was not recorded 33.3 %. The largest avoidable
   loss: the device waits between iterations for a reason that the trace does
   not show, up to 300 µs (33.3 %).
B  made by hand
   A loop of 8 iterations, 1.08 ms each: the device computes 72.1 % of the time,
   and waits for a reason that was not recorded 27.9 %. The largest avoidable
   loss: the device waits between iterations for a reason that the trace does
   not show, up to 300 µs (27.9 %).

B takes 19.7 % more time: 900 µs → 1.08 ms per iteration. Mostly compute: 177 µs
more, most of all in gamma, 100 % of the change. Of 6 kernels on the main
stream: 1 replaced, 1 added.

rank 0, device 0: 1 iteration = 6 → 7 kernels
  median 900 µs → 1.08 ms, B/A = 1.197 (1.197 to 1.197 with 95 % confidence),
  over 7 and 7 iterations
  not compared by stage: the stages of both runs are unknown

Where the time went, per mean iteration
                        A        B  difference
  compute          600 µs   777 µs     +177 µs
  all other parts  300 µs   300 µs        0 ns
  together         900 µs  1.08 ms     +177 µs

What the device computes, per mean iteration
                          A       B  difference
  not known by name  600 µs  777 µs     +177 µs
  together           600 µs  777 µs     +177 µs

Kernels of the main stream that changed (~ replaced, + added, - removed)
                                A        B  difference
    1 \u00d7 gamma              150 µs   300 µs     +150 µs
  ~ 1 \u00d7 alpha → alpha_v2  60.0 µs  80.0 µs    +20.0 µs
  + 1 \u00d7 zeta                 0 ns  7.00 µs    +7.00 µs

Kernels by name, all streams, per iteration
                         A        B  difference
  1 \u00d7 gamma         150 µs   300 µs     +150 µs
  0 → 1 \u00d7 alpha_v2    0 ns  80.0 µs    +80.0 µs
  2 → 1 \u00d7 alpha     110 µs  50.0 µs    -60.0 µs
"""


def test_the_report_reads_as_it_should():
    after = [*SLOWER[:4], ("alpha_v2", 80), ("epsilon", 40), ("zeta", 7)]
    assert shown(run_of(PLAIN), run_of(after)) == GOLDEN.lstrip()
