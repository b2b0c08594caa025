"""The benchmark for GPUs on a stand-in: every check passes where nothing is wrong, and fails on a fault of its kind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import gpu_overhead
from benchmarks.gpu import coexistence, cost, graphs, loops, no_device, programs, sharing
from benchmarks.gpu.counting import describe_difference
from benchmarks.gpu.marks import Marks, busy_ratio, compare_pace, compare_times, mine
from benchmarks.gpu.programs import Failed, OutOfTime, Plan
from benchmarks.gpu.reader import EventLog, Session, TimeCheck, demangle, plain
from benchmarks.gpu.rows import Row, Verdict, draw_table
from benchmarks.gpu.sharing import Configuration
from benchmarks.gpu_overhead import CHECKS, main, run_checks
from deepprof.collectors.live.packets import EVENT, NO_TIME, TICK, CollectionLevel
from tests.benchmarks.conftest import failed
from tests.collectors.live.building import build
from tests.collectors.live.reader import Agent, finish_job, start_job

MS = 10**6


# ---- a stand-in with a fault ----


FIGURES = {
    "counts": ["720 kernel, 8 memcpy; the same for all 14 names"],
    "launches": ["8 of 8 launches"],
    "coexistence": ["8/8 (at most", "8 of 8 mined"],
    "windows": ["40 of 40 kernels of its replays seen once on"],
    "no-device": ["the CUDA driver shows this process no"],
    "replays": ["2,000 seen, 0 with an"],
    "contexts": ["728 records in a context, 0 in none", "40 of 40 records in the range around them"],
    "cost": ["operators 2,"],
}
# Of the other checks all rows pass but those that a test below makes fail.
FEW = ["counts", "launches", "windows", "no-device", "replays"]


@pytest.mark.parametrize("checks", [FEW, pytest.param(list(CHECKS), marks=pytest.mark.slow)], ids=len)
def test_what_is_whole_passes_all_checks(checks: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--mock", "--budget", "1500", "--only", *checks]) == 0
    said, progress = capsys.readouterr()
    assert said.count("\n") > 30 or checks == FEW
    assert "FAILED" not in said
    for figure in (figure for check in checks for figure in FIGURES.get(check, ())):
        assert figure in said
    assert progress.count(" …") == len(checks)


def test_lost_records_fail_the_counts(plan: Callable[[str], Plan]) -> None:
    rows = list(CHECKS["counts"](plan("lossy")))
    assert failed(rows) == [
        f"records as torch.profiler's: {title}" for title in ("launch-bound", "compute-bound", "CUDA graph", "training")
    ]
    assert rows[2].figure == "12 kernel; gemm: ours 12, torch.profiler 16"


def test_a_lost_launch_fails_the_launches(plan: Callable[[str], Plan]) -> None:
    (row,) = CHECKS["launches"](plan("lossy"))
    assert (row.verdict, row.figure) == (Verdict.FAILED, "4 of 8 launches")


def test_kernels_that_another_profiler_misses_or_has_more_with_us_are_named(plan: Callable[[str], Plan]) -> None:
    rows = list(CHECKS["coexistence"](plan("intruding")))
    assert failed(rows) == ["torch.profiler, with us and without"]
    assert rows[0].figure.startswith("odd: with us 3, without us 0; add(): with us 78, without us 80; ")


@pytest.mark.parametrize("kind", [pytest.param("foreign", marks=pytest.mark.slow), "stretched"])
def test_a_clock_that_is_another_one_after_a_session_fails(kind: str, plan: Callable[[str], Plan]) -> None:
    assert failed(list(CHECKS["coexistence"](plan(kind)))) == ["our iterations after its session"]


def test_counts_alone_do_not_show_a_wrong_clock(plan: Callable[[str], Plan]) -> None:
    """Before, the check examined counts and for a word only: both are well where the clock runs half as fast again."""
    beside = coexistence.run_beside(plan("stretched"), hook=True)
    counts = {phase: len(events) for phase, events in beside.events.items()}
    warm_and_marked = (loops.WARM + 8) * (7 + 5 + 91)
    wrong_clock_at_first = beside.session.lost
    assert counts == {"before": warm_and_marked, "after": warm_and_marked - wrong_clock_at_first}
    assert coexistence.describe_gap(beside.session)
    row = coexistence.judge_phase(beside, "after", {"launch": 7, "graph": 5, "train": 91})
    assert row.verdict is Verdict.FAILED
    assert "times x 1.00" not in row.figure


def test_a_session_that_nobody_steps_aside_for_fails(plan: Callable[[str], Plan]) -> None:
    rows = list(CHECKS["coexistence"](plan("quiet")))
    assert "our iterations after its session" in failed(rows)
    assert "launch-bound 0/8" in rows[2].figure
    assert "it said: another profiler has taken CUPTI's records (its clock is another one)" in rows[2].figure


def test_without_the_hook_records_come_again_after_a_while(plan: Callable[[str], Plan]) -> None:
    (row,) = CHECKS["without-hook"](plan("plain"))
    assert row.figure.count("8/8 (at most") == 3


def test_calls_of_cupti_are_written_down_with_what_it_answers(tmp_path: Path) -> None:
    """The collector calls what writes them down; the mock of torch.profiler calls the mock itself."""
    built, written = build("plain"), tmp_path / "calls.txt"
    calls = programs.build_calls(tmp_path)
    with Agent(tmp_path / "socket") as agent:
        settings = {"DEEPPROF_SOCKET": agent.path, "DEEPPROF_CUPTI": calls, "JOB_CUPTI": built.mock}
        settings |= {"CUPTI_REAL": built.mock, "CUPTI_CALLS": written}
        kept, _, _ = finish_job(start_job(built, ["profiled", 20], settings, "training"))
        assert kept == agent.only().count + agent.only().lost
    lines = [line.split(" inject.so: ")[1] for line in written.read_text().splitlines()]
    assert lines[:4] == ["GetVersion: 28 = 0", "Subscribe = 0", "Unsubscribe = 0", "SetAttribute(9) = 0"]
    again = lines.index("Subscribe = 39")
    assert "RegisterCallbacks = 0" in lines[again : again + 5]
    assert "Disable(10) = 0" in lines[:again]


def test_a_gap_of_which_nobody_speaks_is_no_gap() -> None:
    assert coexistence.describe_gap(Session()) == ""
    assert coexistence.describe_gap(Session(reasons=Counter(NONE=3, BUSY=1))) == "a gap, reason BUSY, 1 x"
    assert coexistence.describe_gap(Session(notices=["it is another's"])) == "it is another's"


def test_a_job_that_dies_beside_another_profiler_fails(plan: Callable[[str], Plan]) -> None:
    rows = list[Row]()
    run_checks(plan("dying"), ["without-hook"], rows)
    assert failed(rows) == ["without-hook"]
    assert "exit status -11" in rows[0].figure


def test_a_graph_whose_kernels_are_not_seen_fails(plan: Callable[[str], Plan]) -> None:
    rows = list(CHECKS["windows"](plan("blind")))
    assert [row.figure for row in rows] == ["0 of 40 kernels of its replays seen once on"] * 2
    assert failed(rows) == [row.check for row in rows]


@pytest.mark.parametrize(("kind", "figure"), [("dying", "exit status -11"), ("quiet", "not a word")])
def test_a_process_without_a_device_must_live_and_be_told_of(
    kind: str, figure: str, plan: Callable[[str], Plan]
) -> None:
    (row,) = CHECKS["no-device"](replace(plan(kind), hidden_s=0.3))
    assert row.verdict is Verdict.FAILED
    assert figure in row.figure


def test_graph_records_with_impossible_times_fail(plan: Callable[[str], Plan]) -> None:
    rows = list(CHECKS["replays"](plan("invalid")))
    assert failed(rows) == ["records of graph kernels"]
    assert "1,000 with an impossible time" in rows[0].figure


def test_device_memory_that_grows_fails(plan: Callable[[str], Plan]) -> None:
    assert failed(list(CHECKS["replays"](plan("leaking")))) == ["device memory meanwhile"]


def test_graph_records_that_take_too_long_are_only_measured(plan: Callable[[str], Plan]) -> None:
    rows = list(CHECKS["replays"](replace(plan("plain"), graph_records=10**9, graph_s=0.5)))
    assert rows[0].verdict is Verdict.MEASURED
    assert rows[0].figure.endswith("time ran out")


def test_unequal_iterations_fail_the_sharing_study(plan: Callable[[str], Plan]) -> None:
    rows = list(CHECKS["sharing"](replace(plan("lossy"), shares=(1.0,))))
    measured = [row for row in rows if "iterations" in row.figure]
    assert len(measured) == 6
    assert failed(rows) == [row.check for row in measured]


def test_iterations_that_are_slower_with_us_fail_the_goal(plan: Callable[[str], Plan]) -> None:
    few = dict.fromkeys(programs.LOOPS, 3)
    rows = list(CHECKS["cost"](replace(plan("slow"), iterations=few)))
    assert failed(rows) == ["overhead: launch-bound", "overhead: compute-bound", "overhead: CUDA graph"]


# ---- what verdicts rest on ----


def test_a_device_that_collects_or_says_several_lines_where_there_is_none_fails() -> None:
    silent = no_device.judge_silence("", [])
    assert (silent.verdict, "nobody to say why" in silent.figure) == (Verdict.OK, True)
    told = Session(notices=["no device", "no device"])
    assert no_device.judge_silence("", [told]).verdict is Verdict.OK
    assert no_device.judge_silence("", [Session(notices=["no device", "no CUPTI"])]).verdict is Verdict.FAILED
    assert no_device.judge_silence("", [Session(notices=["no device"], events=3)]).verdict is Verdict.FAILED


TAKEN = {
    "nothing": [1.0, 2.0, 1.0],
    "again": [1.0, 2.0, 1.0],
    "off": [1.0, 2.0, 1.0],
    "deepprof": [1.02, 2.04, 9.0],
    "launches": [],
    "torch": [2.0, 4.0, 2],
    "operators": [1.122, 2.04, 9.9],
    "python": [2.04, 4.08, 18.0],
}


def test_goals_are_held_against_the_median() -> None:
    costs = cost.Costs(dict.fromkeys(programs.LOOPS, TAKEN), rounds=3, records=10)
    rows = list(cost.judge_costs(Plan(Path(), Path()), costs))
    assert [(row.check, row.verdict.value) for row in rows] == [
        ("overhead: launch-bound", "ok"),
        ("overhead: compute-bound", "FAILED"),
        ("overhead: CUDA graph", "ok"),
        ("--contexts: launch-bound", "measured"),
        ("--contexts: compute-bound", "measured"),
        ("records lost while it was measured", "ok"),
    ]
    assert rows[0].figure.startswith(
        "+2.00% (+2.0%…+800.0%) of 25,000.0 µs an iteration, +2,500 ns a kernel; off +0.00%"
    )
    assert "torch.profiler +100.00%" in rows[0].figure
    assert "--graphs launches" not in rows[0].figure
    assert rows[3].figure == (
        "off 51,000.0 µs an iteration; operators 51,000.0 µs, +10.00% (+0.0%…+10.0%); "
        "python 102,000.0 µs, +100.00% (+100.0%…+100.0%); rounds: 3"
    )


@pytest.mark.parametrize(
    ("again", "taken", "verdict"), [(1.0, 1.04, "FAILED"), (1.02, 1.04, "measured"), (1.02, 1.6, "FAILED")]
)
def test_what_differs_less_from_the_goal_than_from_itself_is_not_decided(
    again: float, taken: float, verdict: str
) -> None:
    seconds = TAKEN | {"nothing": [1.0] * 3, "again": [again] * 3, "deepprof": [taken] * 3}
    row = cost.judge_loop(cost.Costs({"launch": seconds}, rounds=3), "launch", 40, 0.03)
    assert row.verdict == verdict
    assert row.figure.endswith("too uneven to tell") == (verdict == "measured")
    assert f"nothing against nothing {again - 1:+.2%}" in row.figure


def test_each_round_has_the_opposite_order_of_the_one_before(plan: Callable[[str], Plan]) -> None:
    turns: list[tuple[str, str]] = []

    class Timed:
        def __init__(self, mode: str) -> None:
            self.mode = mode

        def take_turn(self, loop: str) -> list[float]:
            turns.append((self.mode, loop))
            return [3.0, 1.0, 2.0]

    costs = cost.Costs()
    cost.take_turns(replace(plan("plain"), rounds=2), {mode: Timed(mode) for mode in cost.MODES}, costs)  # type: ignore[misc]
    without = [mode for mode in cost.MODES if mode != "launches"]
    of_graphs = [mode for mode in cost.MODES if mode not in cost.CONTEXTS]
    assert [mode for mode, loop in turns if loop == "launch"] == [*without, *reversed(without)]
    assert [mode for mode, loop in turns if loop == "graph"] == [*of_graphs, *reversed(of_graphs)]
    assert costs.seconds["compute"]["torch"] == [2.0, 2.0]
    assert costs.rounds == 2
    cost.take_turns(replace(plan("plain"), rounds=9, until_s=time.monotonic()), {}, costs)
    assert costs.rounds == 2, "there is no time for another"


@pytest.mark.parametrize(("slower", "said"), [(1.6, "as the paper"), (1.0, "unlike the paper")])
def test_the_study_says_whether_it_is_as_in_the_paper(slower: float, said: str) -> None:
    found = [
        Configuration(program, share, together, 100, MS * (slower if together else 1), 0.9, 1.0)
        for program in sharing.PROGRAMS
        for share, together in ((0.1, False), (0.25, False), (0.5, False), (0.25, True), (0.5, True))
    ]
    rows = list(sharing.judge_study(found))
    assert rows[0].figure == "slowest x 1.00 of the fastest share: as the paper"
    assert rows[2].figure == f"{', '.join([f'x {slower:.2f}'] * 4)}: {said}"
    assert "(x 1.60 of alone" in sharing.show(found[3], found).figure or slower == 1.0


def test_a_program_that_does_not_fit_alone_is_measured_and_together_fails() -> None:
    alone = Configuration("copy", 0.1, False, 0, 0, 0, 0, "CUDA out of memory")
    assert sharing.show(alone, [alone]) == Row(
        "sharing: copy-bound alone, 10% of memory",
        "CUDA out of memory",
        Verdict.MEASURED,
        "device busy over 100 % or never, iterations of unequal records over 5%",
    )
    assert sharing.show(replace(alone, together=True), [alone]).verdict is Verdict.FAILED


def test_memory_may_grow_until_the_drivers_buffers_are_there() -> None:
    grown = [[0, 0], *([n, 900 << 20] for n in range(1, 32))]
    assert graphs.judge_memory(grown).verdict is Verdict.OK
    leak = [[n, n * (16 << 20)] for n in range(32)]
    assert graphs.judge_memory(leak).verdict is Verdict.FAILED


def test_records_lie_in_the_iterations_of_the_program() -> None:
    marks = Marks.read([[0, 10], [100, 110], [200, 215]])
    events = np.zeros(6, EVENT)
    events["start_ns"], events["end_ns"] = [1, 5, 101, 112, 205, 900], [4, 9, 105, 116, 209, 901]
    found = compare_times(events, marks, 2)
    assert (found.iterations, found.whole, found.outside_ns) == (3, 2, 6)
    assert compare_pace(events[:5], [marks]) == ((209 - 1) / 215, 25 / 215)
    assert compare_pace(events[:0], [marks]) == (0, 25 / 215)
    assert compare_times(events[:0], marks, 2).whole == 0


def test_a_device_is_busy_while_one_event_runs_or_more() -> None:
    events = np.zeros(4, EVENT)
    events["start_ns"], events["end_ns"] = [50, 0, 10, 90], [60, 20, 15, 130]
    assert busy_ratio(events, 0, 100) == 0.4
    assert busy_ratio(events[:0], 0, 100) == 0


def test_iterations_are_mined_from_kernels_alone() -> None:
    names = [1, 2, 3] * 12 + [4, 5] + [6, 7, 7, 8] * 12 + [9, 10]
    events = np.zeros(6 * len(names), EVENT)
    events["name"] = names * 6
    assert mine(events) == 6
    assert mine(events[:0]) == 0


def test_impossible_times_are_counted() -> None:
    check = TimeCheck(since_ns=1000 * MS)
    events = np.zeros(5, EVENT)
    events["start_ns"] = [1001 * MS, 1002 * MS, 900 * MS, 1003 * MS, time.time_ns() + 10**12]
    events["end_ns"] = [1002 * MS, 1001 * MS, 901 * MS, 1004 * MS, time.time_ns() + 2 * 10**12]
    check.take(events)
    assert (check.kernels, check.impossible, check.busy_ns) == (2, 3, 2 * MS)


def test_differences_are_said_in_both_directions_with_the_largest_first() -> None:
    expected = Counter({("kernel", "a"): 5, ("kernel", "b"): 2, ("kernel", "same"): 9})
    found = Counter({("kernel", "a"): 1, ("kernel", "c"): 1, ("kernel", "same"): 9})
    assert describe_difference(expected, found, "T", "we") == "a: we 1, T 5; b: we 0, T 2; c: we 1, T 0"
    many = Counter({("kernel", str(n)): 1 for n in range(5)})
    assert describe_difference(many, Counter(), "T", "we").endswith("; and 2 more names")
    assert describe_difference(Counter(), Counter(), "T", "we") == "both saw nothing"


def test_names_are_written_alike() -> None:
    assert plain("Memcpy HtoD (Pinned -> Device)") == plain("Memcpy HtoD") == "Memcpy HtoD"
    assert plain("Memset (Device)") == plain("Memset") == "Memset"
    assert demangle("_ZN2at6native3addEif") == "at::native::add(int, float)"
    assert demangle("_Zwrong") == "_Zwrong"
    assert demangle("gemm") == "gemm"


# ---- the reader ----


def tick(device_ns: int, unix_ns: int, mono_ns: int, level: CollectionLevel = CollectionLevel.ON) -> Any:
    row = np.zeros(1, TICK)[0]
    row["device_ns"], row["unix_ns"], row["mono_ns"], row["level"] = device_ns, unix_ns, mono_ns, level
    return row


def test_events_are_laid_on_the_other_clock_once_a_tick_has_come() -> None:
    session = Session(EventLog(), names=["_Z3addv", "gemm"])
    events = np.zeros(2, EVENT)
    events["start_ns"], events["end_ns"], events["name"] = [100, 200], [110, 210], [1, 2]
    session.waiting = [events]
    session.take_tick(tick(NO_TIME, 5, 5))
    assert session.waiting
    session.take_tick(tick(400, 10_400, 7, CollectionLevel.OFF))
    assert isinstance(session.consumer, EventLog)
    kept = session.consumer.events
    assert kept["start_ns"].tolist() == [10_100, 10_200]
    assert kept["end_ns"].tolist() == [10_110, 10_210]
    assert session.count(kept) == Counter({("kernel", "add()"): 1, ("kernel", "gemm"): 1})
    assert (session.level, session.tick_ns) == (CollectionLevel.OFF, 7)


# ---- programs and the whole ----


def test_a_program_that_fails_says_why(plan: Callable[[str], Plan]) -> None:
    with pytest.raises(Failed, match="exit status 1: KeyError: 'odd'"):
        programs.run(plan("plain"), ["loops", "odd=1"])


def test_a_program_that_takes_too_long_is_ended(plan: Callable[[str], Plan]) -> None:
    endless = ["replays", f"graph={10**9}", "--seconds", "1000"]
    with pytest.raises(Failed, match="took longer than 1 s"):
        programs.run(replace(plan("plain"), timeout_s=0.1), endless)
    with pytest.raises(OutOfTime):
        programs.run(replace(plan("plain"), until_s=time.monotonic()), endless)


def test_a_check_that_crashes_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch, plan: Callable[[str], Plan]
) -> None:
    def crash(_: Plan) -> Iterator[Row]:
        yield Row("first", "1", Verdict.OK)
        raise ZeroDivisionError("what a pity")

    def late(_: Plan) -> Iterator[Row]:
        yield from ()
        raise OutOfTime("it took longer than 3 s")

    monkeypatch.setattr(gpu_overhead, "CHECKS", {"a": crash, "b": late, "c": lambda _: [Row("c", "2", Verdict.OK)]})
    rows = list[Row]()
    run_checks(plan("plain"), ["a", "b", "c"], rows)
    assert [(row.check, row.verdict) for row in rows] == [
        ("first", Verdict.OK),
        ("a", Verdict.FAILED),
        ("b", Verdict.NOT_RUN),
        ("c", Verdict.OK),
    ]
    assert rows[1].figure == "ZeroDivisionError: what a pity"


def test_what_has_no_time_left_is_said_and_makes_the_exit_status_1(
    monkeypatch: pytest.MonkeyPatch, plan: Callable[[str], Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_overhead, "make_plan", lambda *_: plan("plain"))
    assert main(["--mock", "--only", "counts", "cost", "--budget", "1"]) == 1
    assert capsys.readouterr().out.count("not run") == 2


def test_a_signal_still_prints_what_is_known(
    monkeypatch: pytest.MonkeyPatch, plan: Callable[[str], Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(_: Plan) -> Iterator[Row]:
        yield Row("known", "42", Verdict.OK)
        gpu_overhead.stop()

    monkeypatch.setattr(gpu_overhead, "CHECKS", {"counts": stopped})
    monkeypatch.setattr(gpu_overhead, "make_plan", lambda *_: plan("plain"))
    before = signal.getsignal(signal.SIGTERM)
    assert main(["--mock"]) == 1
    assert signal.getsignal(signal.SIGTERM) == before
    said = capsys.readouterr().out
    assert "known" in said
    assert "it was stopped" in said


def test_without_a_gpu_it_says_so_and_nothing_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_overhead, "find_gpu", lambda: "torch sees no NVIDIA GPU")
    assert main([]) == 2
    assert capsys.readouterr().out == "not measured: torch sees no NVIDIA GPU\n"


def test_a_compiler_that_is_missing_is_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert main(["--mock"]) == 1
    assert "Failed: no C compiler" in capsys.readouterr().out


def test_it_needs_nothing_that_a_bare_machine_lacks() -> None:
    heavy = "{'polars', 'msgspec', 'rich', 'grpc'}"
    code = f"import sys, benchmarks.gpu_overhead, benchmarks.gpu.loops; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_long_cells_go_over_several_lines() -> None:
    lines = draw_table([Row("check", "word " * 20, Verdict.OK, "never")]).splitlines()
    assert len(lines) == 4
    assert lines[2].split()[:2] == ["check", "word"]
    assert lines[2].rstrip().endswith("never")
    assert lines[3].startswith(" " * 36)
