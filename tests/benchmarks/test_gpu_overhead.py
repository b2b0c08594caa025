"""The benchmark for GPUs on a stand-in: it must count right, and must not be pleased with what is wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import gpu_overhead
from benchmarks.gpu.reader import Session, demangle, plain
from benchmarks.gpu_overhead import Failed, Outcome, Plan, check, compare, difference, tabulate
from deepprof.collectors.live.packets import EVENT, NO_TIME, TICK


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("built")
    return gpu_overhead.build(folder), gpu_overhead.build_mock(folder)


@pytest.fixture
def plan(tmp_path: Path, built: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(gpu_overhead, "CHECK_ITERATIONS", 5)
    few, any_cost = dict.fromkeys(gpu_overhead.LOOPS, 3), dict.fromkeys(gpu_overhead.LOOPS, float("inf"))
    library, cupti = built
    return lambda mock: Plan(tmp_path, library, cupti, 1, 2, mock, iterations=few, goals=any_cost)


def test_what_is_whole_passes(plan: Any) -> None:
    outcome = check(plan("plain"))
    assert outcome.good, outcome.lines
    assert outcome.lines[0].startswith("✓ launch-bound: 25 of kernel, 5 of memcpy, 5 of memset; as torch.profiler")
    assert outcome.lines[3].endswith(" records, 0 lost")
    assert outcome.lines[4] == "✓ graphs by launch: 5 of 5 launches"


def test_lost_records_do_not(plan: Any) -> None:
    outcome = Outcome()
    gpu_overhead.check_counts(plan("lossy"), outcome)
    assert not outcome.good
    assert [line[0] for line in outcome.lines] == ["✗", "✗", "✗", "✓"]
    assert outcome.lines[1] == "✗ compute-bound: 5 of kernel; gemm: 5, torch.profiler 10"


def test_silence_beside_another_profiler_does_not(plan: Any) -> None:
    outcome = Outcome()
    gpu_overhead.check_coexistence(plan("quiet"), outcome)
    assert not outcome.good
    assert "not a word" in outcome.lines[0]


def test_every_mode_is_measured(plan: Any) -> None:
    outcome = compare(plan("plain"))
    assert outcome.good, outcome.lines
    assert [line.split("  ")[0] for line in outcome.lines[2:5]] == ["launch-bound", "compute-bound", "CUDA graph"]


def test_goals_are_held_against_the_median(tmp_path: Path) -> None:
    seconds = {
        loop: {
            "nothing": [1.0, 2.0, 1.0],
            "off": [1.0, 2.0, 1.0],
            "deepprof": [1.02, 2.04, 9.0],
            "torch": [2.0, 4.0, 2],
        }
        for loop in gpu_overhead.LOOPS
    }
    outcome = Outcome()
    tabulate(seconds, Plan(tmp_path, tmp_path), outcome)
    assert [line[:30] for line in outcome.lines if line[0] in "✓✗"] == [
        "✓ launch-bound: +2.00%, goal 3",
        "✗ compute-bound: +2.00%, goal ",
        "✓ CUDA graph: +2.00%, goal 3% ",
    ]
    assert "+100.00%" in outcome.lines[1]


def test_a_loop_that_fails_says_why(plan: Any) -> None:
    with pytest.raises(Failed, match="KeyError: 'odd'"):
        gpu_overhead.run(plan("plain"), "nothing", {"odd": 1})


def test_without_a_gpu_it_says_so_and_nothing_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_overhead, "find_gpu", lambda: "torch sees no NVIDIA GPU")
    assert gpu_overhead.main([]) == 2
    assert capsys.readouterr().out == "not measured: torch sees no NVIDIA GPU\n"


def test_one_call_does_all_of_it(
    built: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_overhead, "CHECK_ITERATIONS", 3)
    assert gpu_overhead.main(["--mock", "lossy", "--checks-only"]) == 1
    assert capsys.readouterr().out.count("\n") == 6


def test_it_needs_nothing_that_a_bare_machine_lacks() -> None:
    heavy = "{'polars', 'msgspec', 'rich', 'grpc'}"
    code = f"import sys, benchmarks.gpu_overhead, benchmarks.gpu.loops; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_a_compiler_that_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failed, match="no C compiler"):
        gpu_overhead.build(tmp_path)


def test_events_are_counted_by_their_time_on_the_other_clock() -> None:
    events, ticks = np.zeros(4, EVENT), np.zeros(3, TICK)
    events["start_ns"], events["name"] = [100, 200, 300, 400], [1, 2, 2, 1]
    ticks["device_ns"], ticks["unix_ns"] = [0, 400, NO_TIME], [10_000, 10_500, 5]
    session = Session(names=["_Z3addv", "gemm"], pieces=[events], ticks=list(ticks))
    assert session.to_unix(events["start_ns"]).tolist() == [10_125, 10_250, 10_375, 10_500]
    assert session.count(10_200, 10_400) == Counter({("kernel", "gemm"): 2})
    assert session.count(10_500, 10_500) == Counter({("kernel", "add()"): 1})
    assert Session().count(0, 10) == Counter()


def test_names_are_written_alike() -> None:
    assert plain("Memcpy HtoD (Pinned -> Device)") == plain("Memcpy HtoD") == "Memcpy HtoD"
    assert plain("Memset (Device)") == plain("Memset") == "Memset"
    assert demangle("_ZN2at6native3addEif") == "at::native::add(int, float)"
    assert demangle("_Zwrong") == "_Zwrong"
    assert demangle("gemm") == "gemm"


def test_differences_are_said_with_the_largest_first() -> None:
    expected, found = (
        Counter({("kernel", "a"): 5, ("kernel", "b"): 2}),
        Counter({("kernel", "a"): 1, ("kernel", "c"): 1}),
    )
    assert difference(expected, found) == "a: 1, torch.profiler 5; b: 0, torch.profiler 2; c: 1, torch.profiler 0"
    assert difference(Counter(), Counter()) == "torch.profiler has none"
