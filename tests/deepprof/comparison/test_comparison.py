"""Two runs compared: times and their parts, kernels position by position, and the sentence over it."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from functools import cache
from statistics import median

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

import deepprof
from deepprof.collectors.trace import DEVICES
from deepprof.comparison import compare, operations
from deepprof.comparison.loop_changes import compare_times
from deepprof.comparison.pairing import pair_loops
from deepprof.comparison.template import choose_alike, median_where, take_template
from deepprof.metrics.breakdown.costs import divide
from deepprof.render.comparison_json import encode
from deepprof.render.comparison_text import print_comparison
from deepprof.simulation import simulate, write
from tests.deepprof.builders import build_analysis, build_iterations, build_loop
from tests.tables import copy, event, make_trace
from tests.widening import slow_unless

PLAIN = [("alpha", 50), ("beta", 100), ("gamma", 150), ("delta", 200), ("alpha", 60), ("epsilon", 40)]


def trace_of(iteration, *, pause=300, count=8, rank=None, copies=()):
    """A job of `count` equal iterations: kernels (name, µs) back to back, then a pause of this many µs."""
    names = [*dict.fromkeys(["copy", *(name for name, _ in iteration)])]
    rows, now = [], 1_000_000
    for _ in range(count):
        rows += [copy(now + at, now + at + 1_000, nbytes, stream=20) for at, nbytes in copies]
        for name, length in iteration:
            rows.append(event(names.index(name), now, now + 1_000 * length))
            now += 1_000 * length
        now += 1_000 * pause
    return make_trace(rows, names=names, rank=rank)


def run_of(iteration, **more):
    return deepprof.analyze(trace_of(iteration, **more))


def pair_of(a, b):
    (pair,) = compare(a, b).pairs
    return pair


def changed(pair):
    return {(row.kind, row.a, row.b, row.times, row.difference_ns) for row in pair.program.operations}


def test_a_run_is_no_different_from_itself():
    comparison = compare(run_of(PLAIN), run_of(PLAIN))
    (pair,) = comparison.pairs
    assert comparison.headline.sentence.startswith("Nothing changed")
    assert comparison.headline.part is None
    assert (pair.time.ratio, pair.time.verdict) == (1, "same")
    assert pair.program.operations == pair.kernels == ()
    assert (pair.program.kept, pair.program.aligned_ratio, pair.program.problem) == (6, 1, None)
    assert all(part.difference_ns == 0 for part in pair.parts)
    assert comparison.missing == comparison.differences == ()


@cache
def run_plain():
    """The run whose machine `on_machine` states: what it states changes nothing that is measured."""
    return run_of(PLAIN)


def on_machine(name="A100", versions=None, world=None, **columns):
    record = {"device": 0, "name": name, "memory_nbytes": 80 * 2**30, "multiprocessors": 108} | columns
    properties = json.dumps(versions) if isinstance(versions, dict) else versions
    devices = pl.DataFrame([record | {"properties": properties}], schema=DEVICES)
    run = run_plain()
    return replace(run, traces=(replace(run.traces[0], devices=devices, world_size=world),))


def differences(a, b):
    return [(each.what, each.a, each.b) for each in compare(a, b).differences]


def test_another_machine_and_other_software_are_told():
    a = on_machine("A100", {"cuda_runtime_version": 12040, "nccl_version": "2.20"}, 8)
    b = on_machine("H100", {"cuda_runtime_version": 12090, "nccl_version": "2.20"}, 16, multiprocessors=132)
    comparison = compare(a, b)
    assert differences(a, b) == [
        ("hardware", "A100", "H100"),
        ("world size", "8", "16"),
        ("CUDA runtime", "12.4", "12.9"),
    ]
    told = json.loads(encode(comparison))["differences"]
    assert told[1] == {"what": "world size", "a": "8", "b": "16"}
    page = io.StringIO()
    print_comparison(comparison, Console(file=page, width=80))
    assert "not the same hardware: A100 → H100\n" in page.getvalue()


def test_what_only_one_run_says_is_no_difference():
    for odd in (None, "no JSON", "[1]", "{}", "[" * 10_000, {"cuda_runtime_version": ["12"]}, {"nccl_version": True}):
        assert differences(on_machine("A100", odd, 8), run_plain()) == []
        assert differences(on_machine("A100", odd), on_machine("A100", {"cuda_runtime_version": 12040})) == []
    for name in ("", "Agent 1", "AMD"):  # no model
        assert differences(on_machine(name), on_machine("AMD Instinct MI300X")) == []
    assert differences(on_machine("A100"), on_machine("NVIDIA A100")) == []  # drivers before 470


def test_an_analysis_without_traces_states_nothing():
    none = replace(run_of(PLAIN), traces=(), loops=())  # as of a cluster
    assert differences(none, run_of(PLAIN)) == []


def test_memory_differs_by_more_than_what_a_driver_keeps():
    a, b = on_machine(memory_nbytes=85_018_279_936), on_machine(memory_nbytes=84_929_478_656)
    assert differences(a, b) == []
    assert differences(a, on_machine(memory_nbytes=40 * 2**30)) == [("memory of a device", "79.2 GiB", "40.0 GiB")]
    few = differences(on_machine(), on_machine(multiprocessors=54))
    assert few == [("multiprocessors of a device", "108", "54")]


def test_one_traced_rank_of_a_job_is_of_the_same_job():
    rank = replace(trace_of(PLAIN), devices=on_machine().traces[0].devices, world_size=2)
    both = deepprof.analyze([replace(rank, rank=0), replace(rank, rank=1)])
    assert differences(deepprof.analyze(rank), both) == []
    alone = deepprof.analyze(replace(rank, world_size=None))
    assert differences(alone, both) == []  # only one of them states a size
    many = deepprof.analyze([replace(trace, world_size=None) for trace in both.traces])
    assert differences(alone, many) == [("number of recorded ranks", "1", "2")]


def test_the_framework_is_what_the_names_tell():
    def naming(*names):
        trace = trace_of(PLAIN)
        return deepprof.analyze(replace(trace, names=pl.concat([trace.names, pl.Series(names, dtype=pl.String)])))

    assert differences(naming("aten::mm"), naming("PjRtCApiClient")) == [("framework", "PyTorch", "JAX")]
    assert differences(naming("aten::mm"), naming()) == []


@pytest.mark.parametrize(
    ("key", "version", "said"),
    [
        ("cuda_driver_version", 13000, "13.0"),
        ("hip_runtime_version", 60443483, "6.4.43483"),
        ("hip_runtime_version", "6.4.43483", "6.4.43483"),
        ("hip_driver_version", 70051831, "7.0.51831"),
        ("nccl_version", "2.27.7", "2.27.7"),
        ("nccl_version", 22707, "22707"),
    ],
)
def test_versions_are_written_as_people_do(key, version, said):
    before = on_machine("A100", {key: "1.0"})
    assert [row[1:] for row in differences(before, on_machine("A100", {key: version}))] == [("1.0", said)]
    for none in ("N/A", "", 0, -1, 10**30, 1.5, None, {}):
        assert differences(before, on_machine("A100", {key: none})) == []


def test_what_a_file_says_is_cut():
    long = on_machine("H100 " + "x" * 10**6, {"nccl_version": "2." + "7" * 10**6})
    found = differences(on_machine("A100", {"nccl_version": "2.1"}), long)
    assert [row[0] for row in found] == ["hardware", "NCCL"]
    assert all(len(word) <= 80 for row in found for word in row)


def test_added_removed_replaced_and_slower_kernels_are_told_with_their_times():
    after = [("alpha", 50), ("beta", 170), ("new", 30), ("delta", 200), ("alpha", 60), ("epsilon", 40), ("more", 7)]
    pair = pair_of(run_of(PLAIN), run_of(after))
    assert changed(pair) == {
        ("kept", ("beta",), ("beta",), 1, 70_000),
        ("replaced", ("gamma",), ("new",), 1, -120_000),
        ("added", (), ("more",), 1, 7_000),
    }
    assert (pair.program.kept, pair.program.replaced, pair.program.added, pair.program.removed) == (5, 1, 1, 0)
    assert {(row.name, row.difference_ns) for row in pair.kernels} == {
        ("beta", 70_000),
        ("gamma", -150_000),
        ("new", 30_000),
        ("more", 7_000),
    }


def test_variants_of_a_kernel_are_replaced_and_fused_ones_are_one_row():
    before = [("gemm<float>(int)", 50), ("add", 10), ("relu", 10), ("norm", 30), ("add", 10), ("relu", 10), ("loss", 5)]
    after = [("gemm<half>(int)", 30), ("add_relu", 12), ("norm", 30), ("add_relu", 12), ("loss", 5)]
    pair = pair_of(run_of(before), run_of(after))
    assert changed(pair) == {
        ("replaced", ("gemm<float>(int)",), ("gemm<half>(int)",), 1, -20_000),
        ("replaced", ("add", "relu"), ("add_relu",), 2, -16_000),
    }


def test_what_begins_elsewhere_in_its_period_is_the_same_program():
    longer = [(f"kernel {k}", 20 + k) for k in range(12)]
    turned = [*longer[7:], *longer[:7]]
    pair = pair_of(run_of(longer), run_of(turned))
    assert changed(pair) == set()
    assert pair.program.rotation == 5


def test_two_programs_are_said_to_be_two():
    other = [(f"other_{name}", length * 2) for name, length in PLAIN]
    comparison = compare(run_of(PLAIN), run_of(other))
    assert comparison.worst.program.operations == ()
    assert "Not the same program: 0 % of the kernels" in comparison.headline.sentence
    assert comparison.headline.place is None


def test_equal_times_of_other_kernels_are_not_nothing():
    swapped = [("zeta" if name == "beta" else name, length) for name, length in PLAIN]
    sentence = compare(run_of(PLAIN), run_of(swapped)).headline.sentence
    assert sentence.startswith("The time did not change: 900 µs → 900 µs")
    assert sentence.endswith("Of 6 kernels on the main stream: 1 replaced.")


def test_time_that_moved_from_one_part_to_another_is_not_nothing():
    shorter = [(name, length - 30 if name == "gamma" else length) for name, length in PLAIN]
    comparison = compare(run_of(PLAIN), run_of(shorter, pause=330))
    assert comparison.headline.sentence.startswith("The time did not change")
    assert {part.name: part.difference_ns for part in comparison.worst.parts if part.difference_ns} == {
        "compute_ns": -30_000,
        "idle_unknown_ns": 30_000,
    }


def test_copies_are_summed_up_by_direction():
    pair = pair_of(run_of(PLAIN), run_of(PLAIN, copies=((0, 64), (5_000, 36))))
    (row,) = pair.copies
    assert (row.direction, row.a_count, row.b_count, row.b_ns, row.a_nbytes, row.b_nbytes) == (
        "HtoD",
        0,
        2,
        2000,
        0,
        100,
    )


def test_the_headline_names_the_kernel_that_takes_longer():
    slower = [(name, length * 3 if name == "gamma" else length) for name, length in PLAIN]
    headline = compare(run_of(PLAIN), run_of(slower)).headline
    assert (headline.part, headline.place) == ("compute_ns", "gamma")
    assert headline.share == pytest.approx(1)
    assert "B takes 33.3 % more time: 900 µs → 1.20 ms" in headline.sentence
    twice = [(name, 4 * length) for name, length in PLAIN]
    assert "B takes 3 times as long" in compare(run_of(PLAIN), run_of(twice)).headline.sentence


def test_a_part_is_named_where_it_surely_changed_and_the_whole_may_not_have():
    """Pauses vary by more than one kernel's change, which is the same in every iteration."""
    pauses = [100, 500, 900, 200, 800, 300, 700, 400]

    def job(gamma):
        rows, now = [], 0
        for pause in pauses:
            for number, (name, length) in enumerate(PLAIN):
                long = gamma if name == "gamma" else length
                rows.append(event(number, now, now + 1_000 * long))
                now += 1_000 * long
            now += 1_000 * pause
        return deepprof.analyze(make_trace(rows, names=[f"{name} {k}" for k, (name, _) in enumerate(PLAIN)]))

    comparison = compare(job(150), job(250))
    assert comparison.worst.time.verdict == "unclear"
    assert comparison.headline.sentence.startswith("B may take ")
    assert (comparison.headline.part, comparison.headline.place) == ("compute_ns", "gamma 2")
    shifted = compare(job(150), job(151))
    assert shifted.headline.sentence.startswith(("B may take", "Nothing", "The time did not"))


def test_few_iterations_are_not_sure():
    slower = [(name, 2 * length) for name, length in PLAIN]
    comparison = compare(run_of(PLAIN, count=4), run_of(slower, count=4))
    assert comparison.worst.time.verdict == "unclear"
    assert "too few to be sure" in comparison.headline.sentence
    assert comparison.headline.part == "compute_ns"


@pytest.mark.parametrize("device", [[], [event(0, 0, 5)], [event(k, 10 * k, 10 * k + 5) for k in range(20)]])
def test_without_an_iteration_there_is_a_reason_and_no_pair(device):
    empty = deepprof.analyze(make_trace(device))
    for a, b, runs in ((empty, empty, "AB"), (run_of(PLAIN), empty, "B"), (empty, run_of(PLAIN), "A")):
        comparison = compare(a, b)
        assert comparison.pairs == ()
        assert comparison.worst is None
        assert comparison.headline.sentence.startswith("Nothing can be compared: ")
        assert [
            run for run in "AB" if any(why.startswith(f"{run}: no iteration found") for why in comparison.missing)
        ] == list(runs)


def test_a_loop_without_a_usual_iteration_says_so():
    loop = build_loop(iterations=build_iterations([10_000_000]))
    comparison = compare(build_analysis(loops=(loop,)), build_analysis())
    assert comparison.pairs == ()
    assert "A, rank 0, device 0: no iteration to compare: none is complete" in comparison.missing[0]


def test_ranks_are_paired_and_the_slowest_change_comes_first():
    def job(factors):
        ranks = {r: [(n, round(t * f)) for n, t in PLAIN] for r, f in factors.items()}
        return deepprof.analyze([trace_of(kernels, rank=rank) for rank, kernels in ranks.items()])

    comparison = compare(job({0: 1, 1: 1, 2: 1}), job({0: 1, 1: 2, 3: 1}))
    assert [(pair.a.rank, pair.b.rank) for pair in comparison.pairs] == [(1, 1), (0, 0)]
    assert [pair.program is None for pair in comparison.pairs] == [False, True]
    assert comparison.missing == (
        "A, rank 2, device 0: no iteration to compare: the other run has none",
        "B, rank 3, device 0: no iteration to compare: the other run has none",
    )
    assert "the slowest of 2 pairs" in comparison.headline.sentence


def test_a_single_rank_is_compared_with_a_single_one_whatever_its_number():
    pairs, missing = pair_loops(run_of(PLAIN, rank=3), run_of(PLAIN, rank=0))
    assert [(a.rank, b.rank) for a, b in pairs] == [(3, 0)]
    assert missing == ()


def test_of_several_loops_the_one_with_the_same_kernels_is_meant():
    """A trains for longer than it validates, B the other way round."""
    validation = [(f"check {k}", 90 + k) for k in range(7)]
    training = [(f"train {k}", 70 + 3 * k) for k in range(9)]

    def job(trained, validated):
        train, check = run_of(training, count=trained), run_of(validation, count=validated)
        first, second = train.traces[0], check.traces[0]
        later = first.device_events["end_ns"].max()
        rows = [
            event(row["name_id"] + before, row["start_ns"] + at, row["end_ns"] + at)
            for part, before, at in ((first, 0, 0), (second, len(first.names), later))
            for row in part.device_events.iter_rows(named=True)
        ]
        shifted = check.loops[0].iterations.with_columns(pl.col("start_ns", "end_ns") + later)
        both = (train.loops[0], replace(check.loops[0], iterations=shifted))
        return replace(train, traces=(make_trace(rows, names=[*first.names, *second.names]),), loops=both)

    a, b = job(30, 10), job(10, 30)
    ((one, other),), _ = pair_loops(a, b)
    assert (one.period, other.period) == (9, 9)


def test_iterations_too_long_to_align_are_said_to_be(monkeypatch):
    monkeypatch.setattr(operations, "TOO_LONG", 35)
    comparison = compare(run_of(PLAIN), run_of([(name, 2 * length) for name, length in PLAIN]))
    assert comparison.worst.program.problem == "iterations of 6 and 6 kernels are too long to align"
    assert comparison.worst.program.operations == ()
    assert comparison.worst.kernels


@given(st.dictionaries(st.text(max_size=2), st.integers(0, 10**6), min_size=1, max_size=16), st.integers(1, 99))
def test_parts_of_a_mean_add_up(totals, count):
    shares = divide(totals, count)
    assert sum(shares.values()) == round(sum(totals.values()) / count)
    assert all(abs(shares[name] - Fraction(total, count)) < 1 for name, total in totals.items())


@given(st.integers(1, 6), st.integers(1, 5), st.data())
def test_medians_over_what_is_alike(rows, columns, data):
    values = np.array(
        data.draw(
            st.lists(st.lists(st.integers(0, 9), min_size=columns, max_size=columns), min_size=rows, max_size=rows)
        )
    )
    valid = np.array(
        data.draw(st.lists(st.lists(st.booleans(), min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    )
    valid[0] = True
    expected = [median(values[valid[:, k], k].tolist()) for k in range(columns)]
    assert median_where(values, valid).tolist() == expected


def test_the_template_is_that_of_the_most_common_iteration():
    usual = pl.DataFrame(
        {
            "kernels": [5, 4, 4, 4, 3],
            "edits": [0, 1, 0, 0, 0],
            "iteration_ns": [9, 1, 7, 5, 3],
            "start_ns": [0, 1, 2, 3, 4],
        }
    )
    alike = choose_alike(usual)
    assert alike["start_ns"].to_list()[0] == 3
    assert sorted(alike["start_ns"].to_list()) == [1, 2, 3]


def test_the_template_has_a_median_per_position():
    (loop,) = (analysis := run_of(PLAIN)).loops
    template = take_template(loop, analysis.traces[0])
    assert analysis.traces[0].names.gather(template.name_ids).to_list() == [name for name, _ in PLAIN]
    assert template.durations_ns.tolist() == [1_000 * length for _, length in PLAIN]


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([100] * 6, [120] * 6, "slower"),
        ([120] * 6, [100] * 6, "faster"),
        ([1000] * 6, [1005] * 6, "same"),
        ([100] * 2, [200] * 2, "unclear"),
        ([80, 90, 100, 110, 120], [84, 94, 104, 114, 124], "unclear"),
        ([100], [100], "same"),
    ],
)
def test_a_verdict_needs_an_interval_that_excludes_equal_times(a, b, verdict):
    time = compare_times(a, b)
    assert time.verdict == verdict
    assert time.ratio == median(b) / median(a)
    assert (time.low is None) == (min(len(a), len(b)) < 5)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Analyses of simulated jobs by scenario."""
    folder, known = tmp_path_factory.mktemp("jobs"), {}

    def analysis(scenario):
        if scenario not in known:
            path = folder / f"{scenario}.json.gz"
            write(simulate(scenario, iterations=12), path)
            known[scenario] = deepprof.analyze(deepprof.read_job(path))
        return known[scenario]

    return analysis


@pytest.mark.parametrize(
    ("runs", "part", "place", "stage"),
    [
        (("input-fixed", "input-bound"), "idle_input_ns", "DataLoader", "data loading"),
        (("input-bound", "input-fixed"), "idle_input_ns", "DataLoader", "data loading"),
        (("healthy", "copy-bound"), "exposed_htod_ns", None, "data loading"),
        (("communication-hidden", "communication-bound"), "exposed_communication_ns", "nccl", None),  # 65 % of it
    ],
)
def test_a_planted_problem_is_named(simulated, runs, part, place, stage):
    comparison = compare(*map(simulated, runs))
    (pair,) = comparison.pairs
    assert comparison.headline.part == part
    assert place is None or place in comparison.headline.place
    assert sum(each.difference_ns for each in pair.parts) == pair.b_mean_ns - pair.a_mean_ns
    assert comparison.headline.stage == stage
    told = part == "exposed_htod_ns"  # the part of data loading has the name of the stage
    assert (f" of the change in {stage}: " in comparison.headline.sentence) == told
    assert sum(each.a_ns for each in pair.stages.rows) == pair.a_mean_ns
    assert sum(each.b_ns for each in pair.stages.rows) == pair.b_mean_ns


def test_means_are_those_of_the_usual_iterations(simulated):
    for scenario in ("input-bound", "healthy"):
        (loop,) = simulated(scenario).loops
        pair = pair_of(simulated(scenario), simulated("healthy"))
        assert pair.a_mean_ns == round(loop.usual["iteration_ns"].sum() / loop.usual.height)


@pytest.mark.traces
@pytest.mark.parametrize(
    ("slow", "fixed"),
    slow_unless(
        lambda names: names[0] == "tb-resnet50-nw0",
        [("tb-resnet50-nw0", "tb-resnet50-nw4"), ("tb-resnet50-nw0-c", "tb-resnet50-nw4-d")],
    ),
)
def test_the_data_loader_is_named_on_real_traces(traces, slow, fixed):
    before, after = (deepprof.analyze(deepprof.read_job(traces / name)) for name in (slow, fixed))
    for a, b, verdict in ((before, after, "faster"), (after, before, "slower")):
        comparison = compare(a, b)
        (pair,) = comparison.pairs
        assert pair.time.verdict == verdict
        assert comparison.headline.part == "idle_input_ns"
        assert comparison.headline.place == "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        assert pair.program.problem is None
        assert pair.program.aligned_ratio > 0.9
        assert sum(each.difference_ns for each in pair.parts) == pair.b_mean_ns - pair.a_mean_ns


@pytest.mark.traces
def test_the_same_model_twice_has_not_changed(traces):
    """Two captures of one 2.7B model: one 32-layer forward pass each, without and with a warm-up."""
    a, b = (deepprof.analyze(deepprof.read_job(traces / name)) for name in ("cs336-zx-2_7B", "cs336-zx-2_7B-clean"))
    comparison = compare(a, b)
    assert comparison.worst.time.verdict == "same"
    assert comparison.worst.program.kept == comparison.worst.program.a_kernels == 1832
    assert comparison.headline.sentence.startswith("Nothing changed")
