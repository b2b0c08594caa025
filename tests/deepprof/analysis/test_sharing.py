"""Two simulated jobs on one device: what is found in their traces is what happened."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from msgspec.structs import replace

from deepprof.analysis import analyze
from deepprof.collectors.errors import UsageError
from deepprof.collectors.trace import Process
from deepprof.commands import main, shared_study
from deepprof.job import read_job
from deepprof.metrics.breakdown.parts import IDLE_PARTS, PART_NAMES
from deepprof.simulation import write
from deepprof.simulation.sharing import (
    JOBS,
    TURN_NS,
    SharingMember,
    measure_busy,
    needs,
    on_one_stream,
    play_together,
    simulate_shared,
)

LONGEST_NS = 900_000  # kernel of the programs, jitter included: a turn ends with the kernel that runs
SHORT_NS = 20_000  # waits up to it are the device's own latency in a trace
JITTER = 0.03  # of a kernel's time
ITERATIONS = 10


def read(runs, folder):
    for rank, run in enumerate(runs):
        write(run.simulation, folder / f"rank{rank}.json")
    return read_job(folder)


@pytest.fixture(scope="module", params=["compute+compute", "compute+io", "io+io"])
def turns(request, tmp_path_factory):
    """Two jobs that take turns, and what is found in their traces."""
    runs = simulate_shared(request.param.split("+"), memory_share=0.25, iterations=ITERATIONS, seed=7)
    traces = read(runs, tmp_path_factory.mktemp("shared"))
    return runs, analyze(traces, same_device=True)


def late(manner):
    """Two jobs that compute, of which the second starts after a third of the first."""
    plan = on_one_stream(JOBS["compute"].plan(0))
    members = [
        SharingMember(plan=plan, iterations=ITERATIONS + 4, lasts=True),
        SharingMember(plan=plan, iterations=ITERATIONS, start_ns=120_000_000, lasts=True),
    ]
    return play_together(members, "late", manner)


@pytest.fixture(scope="module", params=["in turn", "at once"])
def disturbed(request, tmp_path_factory):
    runs = late(request.param)
    traces = read(runs, tmp_path_factory.mktemp("late"))
    return request.param, runs, traces, analyze(traces, same_device=True)


def truth(run, share, kind):
    """Return what every iteration that was measured lost in truth; iteration 0 of the trace is the cut one."""
    return np.array([run.losses[index - 1][kind] for index in share.losses["index"]])


def test_kernels_of_the_simulation_keep_to_their_turns(turns):
    """One kernel at a time; while both have some, none goes on for longer than a turn and the kernel at its end."""
    _, analysis = turns
    kernels = analysis.events.filter(activity="kernel").sort("start_ns")
    start, end, owner = (kernels[name].to_list() for name in ("start_ns", "end_ns", "rank"))
    assert all(a <= b for a, b in zip(end, start[1:], strict=False))
    switches = [at for at in range(1, len(owner)) if owner[at - 1] != owner[at]]
    held = [a - 1 for a, b in pairwise(switches) if end[b - 1] - start[a] > TURN_NS + LONGEST_NS]
    assert len(held) < len(switches) / 4  # where the other copies, or its host is late


def test_iterations_are_those_that_ran(turns):
    runs, analysis = turns
    for run, loop in zip(runs, analysis.loops, strict=True):
        complete = loop.iterations.filter("complete")
        assert complete["start_ns"].to_list() == list(run.simulation.starts_ns)[: complete.height]
        assert loop.usual["iteration_ns"].to_list() == list(run.iterations_ns[1:])  # the first is warm-up
        assert loop.metrics.warmup_excluded == 1


def test_turns_are_those_that_were_lost(turns):
    """But for short waits, of which there may be one at both ends of a turn."""
    runs, analysis = turns
    (device,) = analysis.sharing
    assert device.manner == "in turn"
    for run, share in zip(runs, device.processes, strict=True):
        true, found = truth(run, share, "turns"), share.losses["turns_ns"].to_numpy()
        assert (np.abs(found - true) <= 2 * SHORT_NS * (1 + true / TURN_NS)).all()
        assert share.losses["slowed_ns"].sum() <= JITTER * share.losses["together_ns"].sum()


def test_copies_that_waited_are_those_that_did(turns):
    runs, analysis = turns
    for run, share in zip(runs, analysis.sharing[0].processes, strict=True):
        true = truth(run, share, "copies")
        assert share.losses["copies_ns"].to_numpy() == pytest.approx(true, abs=SHORT_NS)
        assert share.losses["copies_slowed_ns"].sum() <= JITTER * share.losses["together_ns"].sum()


def test_the_device_is_as_busy_as_it_was(turns):
    runs, analysis = turns
    span, busy = measure_busy(runs)
    assert analysis.sharing[0].together.ratio == pytest.approx(busy / span, abs=0.01)


def test_waiting_for_another_process_is_a_part_of_the_time(turns):
    """Each nanosecond once: what waits is idle time with a cause, and the parts still add up."""
    _, analysis = turns
    for loop, share in zip(analysis.loops, analysis.sharing[0].processes, strict=True):
        usual = loop.usual
        held = share.losses["turns_ns"] + share.losses["copies_ns"]
        assert usual["idle_shared_ns"].to_list() == held.to_list()
        assert usual.select(PART_NAMES).sum_horizontal().to_list() == usual["iteration_ns"].to_list()
        assert usual.select(IDLE_PARTS).sum_horizontal().to_list() == usual["idle_ns"].to_list()
        assert usual["idle_unknown_ns"].sum() <= 0.02 * usual["iteration_ns"].sum()
    assert not [f for f in analysis.findings if "unknown_idle_ratio" in f.evidence]


def test_both_jobs_are_told_what_they_lose(turns):
    _, analysis = turns
    found = {f.rank: f for f in analysis.findings if f.rule == "shared-device"}
    assert set(found) == {0, 1}
    for share in analysis.sharing[0].processes:
        finding = found[share.rank]
        claimed = any(f.rule == "copy-bound" and f.rank == share.rank for f in analysis.findings)
        lost = share.losses["lost_ns"] - (share.losses["copies_slowed_ns"] if claimed else 0)
        assert finding.headroom_ns_per_iteration == round(lost.mean())
        assert share.headroom_ns == share.mean_ns("lost_ns")
        assert finding.evidence["other_rank"] == 1 - share.rank
        assert (finding.stream, finding.iterations) == (7, (2, 1 + share.losses.height))


def test_the_level_without_the_other_is_that_of_the_iterations_before_it(disturbed):
    _, runs, _, analysis = disturbed
    share = analysis.sharing[0].processes[0]
    alone = [ns for ns, loss in zip(runs[0].iterations_ns, runs[0].losses, strict=True) if not any(loss.values())]
    assert share.alone_iterations == len(alone) - 1 >= 3  # without the warm-up
    assert share.alone_ns == pytest.approx(np.median(alone[1:]), rel=0.001)


def test_kernels_at_once_lose_what_they_take_longer(disturbed):
    manner, runs, _, analysis = disturbed
    (device,) = analysis.sharing
    share = device.processes[0]
    assert device.manner == manner
    if manner == "at once":
        true, found = truth(runs[0], share, "slowed"), share.losses["slowed_ns"].to_numpy()
        assert np.abs(found - true).max() <= JITTER * share.losses["together_ns"].max()
        assert share.losses["turns_ns"].sum() == 0
    lost, longer = share.mean_ns("lost_ns"), share.losses["iteration_ns"].mean() - share.alone_ns
    assert share.headroom_ns == pytest.approx(min(lost, longer), abs=1)
    assert lost == pytest.approx(longer, rel=0.05)  # nothing else made them slower


def test_iterations_that_another_job_makes_slow_are_no_warm_up(tmp_path):
    """The other runs first: half of the iterations are slow, and the rest are as fast as ever."""
    plan = on_one_stream(JOBS["compute"].plan(0))
    members = [SharingMember(plan=plan, iterations=12, lasts=True), SharingMember(plan=plan, iterations=4)]
    traces = read(play_together(members, "first"), tmp_path)
    shared = analyze(traces, same_device=True).loops[0]
    assert shared.metrics.warmup_excluded == 1  # the tuner's
    assert analyze(traces).loops[0].metrics.warmup_excluded > 1


def test_nobody_is_blamed_without_proof_or_a_word(disturbed):
    *_, traces, analysis = disturbed
    plain = analyze(traces)
    assert plain.sharing == ()
    assert "shared-device" not in {finding.rule for finding in plain.findings}
    apart = [replace(t, processes=(Process(i, devices=((0, f"GPU-{i}"),)),)) for i, t in enumerate(traces)]
    assert analyze(apart).sharing == ()
    proven = [replace(t, processes=(Process(i, f"job{i}", devices=((0, "GPU-0"),)),)) for i, t in enumerate(traces)]
    (device,) = analyze(proven).sharing
    assert (device.identity, [(p.pid, p.name) for p in device.processes]) == ("GPU-0", [(0, "job0"), (1, "job1")])
    assert [p.headroom_ns for p in device.processes] == [p.headroom_ns for p in analysis.sharing[0].processes]


def test_one_trace_shares_nothing_on_anybodys_word(disturbed):
    *_, traces, _ = disturbed
    with pytest.raises(UsageError, match="two processes"):
        analyze(traces[0], same_device=True)


def test_programs_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="io takes 13% of the device's memory, and has 10%"):
        simulate_shared(["compute", "io"], memory_share=0.1)
    assert not [t for t in shared_study.list_trials() if t.fits and t.memory_share < max(map(needs, t.programs))]


def test_the_study_shows_what_the_paper_saw_and_is_near_the_truth(monkeypatch):
    """Alone, the share of the memory does not matter once a program fits; together both are slower, whatever it is."""
    monkeypatch.setattr(shared_study, "ALONE", (0.1, 0.25, 1.0))
    outcomes = shared_study.study(5, 3)
    check_truth(outcomes)
    alone = {job: [o for o in outcomes if o.trial.programs == (job,)] for job in JOBS}
    assert [len(each) for each in alone.values()] == [3, 2]
    for job, rows in alone.items():
        times = [row.found["iteration"] for row in rows]
        assert max(times) <= (1 + JITTER) * min(times)
        together = [o for o in outcomes if o.program == job and len(o.trial.programs) == 2]
        assert [o.trial.memory_share for o in together] == [0.25, 0.5]
        assert all(o.found["iteration"] > 1.2 * max(times) for o in together)


def check_truth(outcomes):
    for each in outcomes:
        assert each.found.keys() == each.true.keys()
        assert each.found["execution"] == pytest.approx(each.true["execution"], rel=1e-6)
        assert each.found["iteration"] == pytest.approx(each.true["iteration"], rel=1e-6)
        assert each.found["busy"] == pytest.approx(each.true["busy"], abs=0.01)
        for kind in set(each.found) & {"turns", "slower", "copies"}:
            assert each.found[kind] == pytest.approx(each.true[kind], abs=JITTER * each.true["iteration"])


def test_the_command_prints_the_study(capsys, monkeypatch):
    monkeypatch.setattr(shared_study, "ALONE", (0.1, 0.25))
    monkeypatch.setattr(shared_study, "TOGETHER", (0.25,))
    assert main(["simulate", "shared", "--iterations", "5", "--seed", "3"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out == STUDY


STUDY = """\
Two jobs on one device, simulated: what DeepProf finds, and what is true
compute takes 7.1 % of the memory · io takes 12.9 % of the memory · io does not
fit in 10%

Alone, by the share of the device's memory (Fig 7)
  program   memory   execution (true)    iteration (true)       busy (true)
  compute      10%    110 ms (110 ms)   21.6 ms (21.6 ms)   98.2 % (98.2 %)
  compute      25%    110 ms (110 ms)   21.6 ms (21.6 ms)   98.2 % (98.2 %)
       io      25%    220 ms (220 ms)   43.6 ms (43.6 ms)   99.1 % (99.0 %)

Together (Fig 8)
  program   memory   execution (true)    iteration (true)       busy (true)
  compute      25%    330 ms (330 ms)   35.4 ms (35.4 ms)   98.9 % (98.9 %)
       io      25%    329 ms (329 ms)   64.8 ms (64.8 ms)   98.9 % (98.9 %)

Lost to the other program per mean iteration
  program   memory        turns (true)   slower (true)       copies (true)
  compute      25%   10.8 ms (10.8 ms)     0 ns (0 ns)   3.00 ms (3.00 ms)
       io      25%   21.2 ms (21.2 ms)     0 ns (0 ns)         0 ns (0 ns)
"""


def test_the_traces_of_the_study_can_be_diagnosed(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(shared_study, "ALONE", (0.25,))
    monkeypatch.setattr(shared_study, "TOGETHER", (0.25,))
    folder = tmp_path / "study"
    assert main(["simulate", "shared", "-o", str(folder), "--iterations", "5"]) == 0
    assert capsys.readouterr().err.startswith(f"{folder}: shared, 4 traces; deepprof diagnose --same-device")
    assert sorted(path.name for path in folder.iterdir()) == ["compute-25", "io-25", "together-25"]
    assert main(["diagnose", "--same-device", str(folder / "together-25"), "--format", "json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["shared_devices"]
    assert [process["pid"] for process in device["processes"]] == [41_207, 41_307]
    assert main(["diagnose", str(folder / "together-25"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["shared_devices"] == []


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["simulate", "shared", "--ranks", "2"], "leave them out"),
        (["simulate", "shared", "--strength", "2"], "leave them out"),
        (["simulate", "shared", "--iterations", "4"], "5 to 200"),
        (["simulate", "shared", "--iterations", "201"], "5 to 200"),
        (["simulate", "shared", "-o", ""], "names no directory"),
        (["simulate", "healthy"], "-o FILE"),
    ],
)
def test_what_the_study_does_not_take_is_one_line(capsys, argv, words):
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
