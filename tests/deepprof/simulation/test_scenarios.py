"""Every scenario's loop is found, and what it plants can be measured in the file."""

from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

import deepprof
from deepprof.simulation import MAIN_STREAM, SCENARIOS, Simulation, simulate, write
from tests.captures import common, extent, gaps, idle, select, spans, total
from tests.widening import slow_unless

ALONE = sorted(name for name, scenario in SCENARIOS.items() if scenario.ranks != "several")
SEEDS = slow_unless(lambda seed: seed == 0, (0, 1, 2))
PLANTED = [(name, x) for name in ALONE for x in ((0.5, 1.0, 2.0) if SCENARIOS[name].finding else (1.0,))]
LOADER = "enumerate(DataLoader)"


def make(scenario: str, seed: int = 0, strength: float = 1.0, iterations: int = 8) -> Simulation:
    return simulate(scenario, iterations=iterations, seed=seed, strength=strength)


def idle_ratio(made: Simulation) -> float:
    return total(idle(made.document)) / extent(made.document)


def ratio_under(made: Simulation, *categories: str, name: str) -> float:
    """Return how much of the time the device is idle under such host events."""
    under = spans(select(made.document, *categories, name=name))
    return common(idle(made.document), under) / extent(made.document)


def times(made: Simulation) -> list[int]:
    return [b - a for a, b in pairwise(made.starts_ns)]


@pytest.mark.parametrize(("scenario", "strength"), slow_unless(lambda planted: planted[1] == 1, PLANTED))
def test_the_loop_is_found(tmp_path: Path, scenario: str, strength: float) -> None:
    made = make(scenario, seed=round(10 * strength), strength=strength, iterations=12)
    write(made, tmp_path / "job.json")
    analysis = deepprof.analyze(deepprof.read(tmp_path / "job.json"))
    (loop,) = analysis.loops
    complete = loop.iterations.filter("complete")
    assert complete["start_ns"].to_list() == list(made.starts_ns)
    assert complete["kernels"].to_list() == list(made.kernels)
    assert loop.period in set(made.kernels)
    assert loop.confidence >= 0.8


@pytest.mark.widens(5)
@pytest.mark.parametrize("scenario", sorted(set(ALONE) - {"healthy", "graph-growth", "copy-bound"}))
def test_the_seed_draws_the_job(scenario: str) -> None:
    captures = [make(scenario, seed, iterations=3) for seed in range(4)]
    assert len({(made.kernels[-1], round(times(made)[-1], -5)) for made in captures}) > 2


@pytest.mark.parametrize("seed", SEEDS)
def test_input_bound_waits_for_its_loader(seed: int) -> None:
    made = make("input-bound", seed)
    assert 0.3 < ratio_under(made, "user_annotation", name=f"{LOADER}#_Single") < 0.65
    fixed = make("input-fixed", seed)
    waits = [end - start for start, end in spans(select(fixed.document, "user_annotation", name=LOADER))]
    assert {100_000 < wait < 500_000 for wait in waits} == {True}
    assert idle_ratio(fixed) < 0.05


@pytest.mark.parametrize("scenario", ["launch-bound", "inference-launch-bound"])
@pytest.mark.parametrize("seed", SEEDS)
def test_launch_bound_never_queues(scenario: str, seed: int) -> None:
    made = make(scenario, seed)
    kernels = select(made.document, "kernel")
    called = {e["args"]["correlation"]: span for span, e in select(made.document, "cuda_runtime", name="Launch")}
    delays = [span[0] - called[e["args"]["correlation"]][1] for span, e in kernels]
    assert sum(delay < 6_000 for delay in delays) > 0.9 * len(delays)
    launches = sorted(span[0] for span in called.values())
    assert 9_000 < median(b - a for a, b in pairwise(launches)) < 30_000
    assert median(end - start for start, end in spans(kernels)) < 9_000
    assert idle_ratio(made) > 0.3
    waits = select(made.document, "cuda_runtime", name="Synchronize")
    assert len(waits) <= (0 if scenario == "launch-bound" else made.iterations + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_small_kernels_come_in_a_graph_and_are_never_starved(seed: int) -> None:
    made = make("small-kernels", seed)
    kernels = select(made.document, "kernel")
    assert made.kernels[-1] > 1_500
    assert 1_500 < median(end - start for start, end in spans(kernels)) < 5_000
    assert all(e["args"]["graph node id"] >> 32 == e["args"]["graph id"] for _, e in kernels)
    launches = select(made.document, "cuda_runtime", name="cudaGraphLaunch")
    assert len(launches) == made.iterations + 2  # and parts of one at every end
    correlations = [e["args"]["correlation"] for _, e in kernels]
    assert correlations == sorted(correlations)
    pauses = gaps(spans(kernels))
    assert sum(end - start > 10_000 for start, end in pauses) <= made.iterations + 1  # between graphs alone
    assert sum(b - a for a, b in pauses if b - a < 10_000) > 0.15 * extent(made.document)


@pytest.mark.parametrize("seed", SEEDS)
def test_sync_bound_could_run_ahead_and_does_not(seed: int) -> None:
    made = make("sync-bound", seed)
    waits = select(made.document, "cuda_runtime", name="cudaStreamSynchronize")
    copies = select(made.document, "cuda_runtime", name="cudaMemcpyAsync")
    host_ns = extent(made.document) - total([*spans(waits), *spans(copies)])
    device_ns = extent(made.document) - total(idle(made.document))
    assert len(waits) > 40 * made.iterations
    assert host_ns < device_ns
    assert 0.12 < idle_ratio(made) < 0.5
    assert {e["name"] for _, e in select(made.document, "cpu_op", name="aten::item")} == {"aten::item"}


@pytest.mark.parametrize("seed", SEEDS)
def test_allocator_bound_waits_for_memory(seed: int) -> None:
    made = make("allocator-bound", seed)
    calls = [
        *select(made.document, "cuda_runtime", name="cudaMalloc"),
        *select(made.document, "cuda_runtime", name="cudaFree"),
    ]
    assert len(calls) > 8 * made.iterations
    assert common(idle(made.document), spans(calls)) > 0.15 * extent(made.document)
    assert common(idle(made.document), spans(calls)) > 0.8 * total(idle(made.document))


@pytest.mark.parametrize("seed", SEEDS)
def test_logging_leaves_no_trace_of_its_own(seed: int) -> None:
    made = make("logging", seed)
    host = spans(select(made.document, "cpu_op", "cuda_runtime", "user_annotation"))
    silent = common(idle(made.document), gaps(host))
    assert silent > 0.2 * extent(made.document)
    assert silent > 0.75 * total(idle(made.document))


@pytest.mark.parametrize("seed", SEEDS)
def test_starvation_is_rare_and_irregular(seed: int) -> None:
    made = make("starvation", seed, iterations=40)
    length = times(made)
    slow = {index for index, ns in enumerate(length) if ns > 2.5 * median(length)}
    assert slow == set(made.slow_iterations)
    assert len(slow) == 5
    assert len({b - a for a, b in pairwise(sorted(slow))}) > 1
    late = [span for span in spans(select(made.document, "user_annotation", name=LOADER)) if span[1] - span[0] > 10**6]
    assert len(late) == 5
    assert common(idle(made.document), late) > 0.9 * total(late)


@pytest.mark.parametrize("seed", SEEDS)
def test_drift_slows_every_kernel_from_one_iteration_on(seed: int) -> None:
    made = make("drift", seed, iterations=30)
    assert made.change_at is not None
    length = times(made)
    before, after = length[2 : made.change_at - 1], length[made.change_at + 1 :]
    assert 1.15 < median(after) / median(before) < 1.32
    assert max(before) < 1.1 * median(before) < min(after)
    assert len(set(made.kernels[1:10])) == 1
    assert idle_ratio(made) < 0.05


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_grows_and_time_does_not(seed: int) -> None:
    made = make("memory-growth", seed)
    marks = [e for e in made.document["traceEvents"] if e["name"] == "[memory]"]
    loads = [span[0] for span in spans(select(made.document, "user_annotation", name=LOADER))]
    base = made.document["baseTimeNanoseconds"]
    held = [[e["args"]["Total Allocated"] for e in marks if base + e["ts"] * 1000 < at][-1:] for at in loads]
    allocated = [values[0] for values in held if values]
    assert len(allocated) >= made.iterations
    assert all(b - a > 10**6 for a, b in pairwise(allocated))
    assert all(e["args"]["Total Allocated"] <= e["args"]["Total Reserved"] for e in marks)
    length = times(made)[1:]  # the first one tunes
    assert max(length[:8]) < 1.05 * min(length[:8])  # the tenth examines the weights


def test_other_jobs_give_memory_back() -> None:
    captures = (make("input-fixed", seed, iterations=4) for seed in range(12))
    written = [
        [e["args"]["Bytes"] for e in made.document["traceEvents"] if e["name"] == "[memory]"] for made in captures
    ]
    with_memory = [marks for marks in written if marks]
    assert 0 < len(with_memory) < len(written)
    assert all(0 <= sum(marks) <= 12 * max(marks) for marks in with_memory)


@pytest.mark.parametrize("call", ["cuLibraryLoadData", "cuModuleLoadData"])
def test_recompilation_holds_the_gpu_up_in_every_iteration(call: str) -> None:
    seed = next(
        seed
        for seed in range(20)
        if select(make("recompilation", seed, iterations=1).document, "cuda_driver", name=call)
    )
    made = make("recompilation", seed)
    compiled = select(made.document, "cpu_op", "user_annotation", name="_compile.compile_inner (dynamo_timed)")
    assert len(compiled) == made.iterations + 1
    assert min(end - start for start, end in spans(compiled)) > 15_000_000
    assert common(idle(made.document), spans(compiled)) > 0.2 * extent(made.document)
    assert len(select(made.document, "cuda_driver", name=call)) >= 3 * made.iterations
    assert select(made.document, "cpu_op", name="Torch-Compiled Region: 0/7")
    assert any(e["name"].startswith("triton_poi_fused_") for _, e in select(made.document, "kernel"))


@pytest.mark.parametrize("seed", SEEDS)
def test_recapture_makes_a_graph_for_each_iteration(seed: int) -> None:
    made = make("recapture", seed)
    for call in ("cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate"):
        assert made.iterations < len(select(made.document, "cuda_runtime", name=call)) <= made.iterations + 2
    graphs = [e["args"]["graph id"] for _, e in select(made.document, "kernel")]
    assert len(set(graphs)) == made.iterations + 2
    assert ratio_under(made, "cuda_runtime", name="cudaGraphInstantiate") > 0.15


@pytest.mark.parametrize("seed", SEEDS)
def test_healthy_jobs_keep_the_gpu_busy(seed: int) -> None:
    assert idle_ratio(make("accumulation", seed)) < 0.05
    assert idle_ratio(make("inference", seed)) < 0.1
    assert idle_ratio(make("communication-hidden", seed)) < 0.05


def exposed_ratio(made: Simulation) -> float:
    """Return how much of the time a collective runs and no kernel of the main stream does."""
    reduced = spans(select(made.document, "kernel", name="ncclDevKernel_"))
    computed = spans(select(made.document, "kernel", stream=MAIN_STREAM))
    return (total(reduced) - common(reduced, computed)) / extent(made.document)


@pytest.mark.parametrize("seed", SEEDS)
def test_communication_is_exposed_or_hidden(seed: int) -> None:
    assert 0.2 < exposed_ratio(make("communication-bound", seed)) < 0.6
    assert exposed_ratio(make("communication-hidden", seed)) < 0.05


def test_collectives_say_what_they_are(tmp_path: Path) -> None:
    made = make("communication-bound")
    write(made, tmp_path / "rank.json")
    trace = deepprof.read(tmp_path / "rank.json")
    reduced = select(made.document, "kernel", name="ncclDevKernel_AllReduce")
    assert (trace.rank, trace.world_size) == (0, 8)
    assert trace.collectives.height == len(reduced)
    assert trace.collectives.select("collective", "dtype", "group", "group_size").unique().rows() == [
        ("allreduce", "BFloat16", "0", 8)
    ]
    assert trace.collectives["sequence"].to_list() == list(range(1, len(reduced) + 1))
    assert (trace.collectives["in_elements"] > 0).all()


@pytest.mark.parametrize(
    ("scenario", "measure"),
    [
        ("input-bound", idle_ratio),
        ("launch-bound", idle_ratio),
        ("sync-bound", idle_ratio),
        ("allocator-bound", idle_ratio),
        ("logging", idle_ratio),
        ("recompilation", idle_ratio),
        ("recapture", idle_ratio),
        ("small-kernels", idle_ratio),
        ("starvation", idle_ratio),
        ("inference-launch-bound", idle_ratio),
        ("communication-bound", exposed_ratio),
    ],
)
def test_strength_scales_the_problem(scenario: str, measure) -> None:  # type: ignore[no-untyped-def]
    mild, usual, strong = (measure(make(scenario, 3, strength, iterations=4)) for strength in (0.5, 1.0, 2.0))
    assert 0.05 < mild < usual < strong
