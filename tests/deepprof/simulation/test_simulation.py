"""The simulated files hold what the truth next to them states, counted here from the JSON alone."""

from collections import Counter, defaultdict
from hashlib import sha256
from itertools import pairwise

import pytest
from msgspec.json import encode

from deepprof.analysis import analyze
from deepprof.collectors.errors import UsageError
from deepprof.commands import main
from deepprof.commands.simulate import Simulate
from deepprof.job import read_job
from deepprof.simulation import MAIN_STREAM, SCENARIOS, simulate, write
from tests.captures import DEVICE, load, select, spans, total

ALONE = sorted(name for name, scenario in SCENARIOS.items() if scenario.ranks != "several")
DIGESTS = {"copy-bound": "873607337b700a77", "graph-growth": "9095f8861e0c9ea1", "healthy": "ee399dc5c7a4aeb0"}
CALLS = ("cuda_runtime", "cuda_driver")
UNCHANGED = ("copy-bound", "graph-growth", "healthy")  # by the seed, but for the jitter


@pytest.fixture(scope="module", params=ALONE)
def simulation(request):
    return simulate(request.param, iterations=12, seed=3)


@pytest.fixture(scope="module")
def main_kernels(simulation):
    return [each for each in select(simulation.document, "kernel") if each[1]["args"]["stream"] == MAIN_STREAM]


def test_the_command_says_what_every_scenario_is():
    words = set((Simulate.__doc__ or "").replace(":", " ").split())
    assert set(SCENARIOS) <= words


def test_truth_starts_are_the_starts_of_the_kernels_it_names(simulation, main_kernels):
    assert [main_kernels[i][0][0] for i in simulation.first_kernels] == list(simulation.starts_ns)
    assert {main_kernels[i][1]["args"]["stream"] for i in simulation.first_kernels} == {simulation.stream}
    assert len({main_kernels[i][1]["name"] for i in simulation.first_kernels}) == 1


def test_truth_counts_kernels_between_starts(simulation):
    ends = [first + count for first, count in zip(simulation.first_kernels, simulation.kernels, strict=True)]
    assert ends[:-1] == list(simulation.first_kernels[1:])
    assert len(simulation.kernels) == simulation.iterations == 12


def test_the_first_kernel_follows_the_data_loader(simulation, main_kernels):
    """Every loader range ends before the launch of its iteration's first kernel, and after the previous one's."""
    document = simulation.document
    ends = sorted(span[1] for span, _ in select(document, "user_annotation", name="enumerate(DataLoader)"))
    if simulation.scenario.startswith("inference"):
        assert not ends  # tokens come from no data loader
        return
    launches = {e["args"]["correlation"]: span for span, e in select(document, *CALLS)}
    started = sorted((span[0], correlation) for correlation, span in launches.items())
    kernels = {e["args"]["correlation"]: i for i, (_, e) in reversed(list(enumerate(main_kernels)))}
    launched = [(at, kernels[c]) for at, c in started if c in kernels]
    firsts = [next(i for at, i in launched if at >= end) for end in ends]
    if simulation.scenario == "accumulation":  # each iteration loads four times, and so did the one before
        firsts = firsts[firsts.index(simulation.first_kernels[0]) :: 4]
    assert firsts[:-1] == list(simulation.first_kernels)  # the last loader belongs to the unfinished iteration


def test_intervals_lie_between_the_kernels(simulation, main_kernels):
    firsts = [*simulation.first_kernels, simulation.first_kernels[-1] + simulation.kernels[-1]]
    measured = [main_kernels[i][0][0] - main_kernels[i - 1][0][1] for i in firsts[1:]]
    assert measured == list(simulation.intervals_ns)


def test_the_capture_begins_and_ends_inside_an_iteration(simulation, main_kernels):
    period = min(simulation.kernels)
    after = len(main_kernels) - simulation.first_kernels[-1] - simulation.kernels[-1]
    assert 0 < simulation.first_kernels[0] < period
    assert 0 < after < period


def test_streams_run_one_thing_at_a_time_and_after_their_launch(simulation):
    document = simulation.document
    calls = {e["args"]["correlation"]: span for span, e in select(document, *CALLS)}
    by_stream = defaultdict(list)
    for span, event in select(document, *DEVICE):
        assert calls[event["args"]["correlation"]][0] < span[0]
        by_stream[event["args"]["stream"]].append(span)
    assert all(a[1] <= b[0] for rows in by_stream.values() for a, b in pairwise(rows))


def test_calls_of_one_thread_do_not_overlap(simulation):
    by_thread = defaultdict(list)
    for span, event in select(simulation.document, *CALLS):
        by_thread[event["tid"]].append(span)
    launches_itself = simulation.scenario.startswith("inference") or simulation.scenario == "small-kernels"
    assert len(by_thread) == (1 if launches_itself else 2)  # the main thread and autograd's
    assert all(a[1] <= b[0] for rows in by_thread.values() for a, b in pairwise(rows))


def test_correlations_join_calls_and_device_events(simulation):
    calls = Counter(e["args"]["correlation"] for _, e in select(simulation.document, *CALLS))
    assert set(calls.values()) == {1}
    assert {e["args"]["correlation"] for _, e in select(simulation.document, *DEVICE)} <= set(calls)


@pytest.mark.parametrize("scenario", UNCHANGED)
def test_names_are_those_of_a_real_training_job(scenario):
    simulation = simulate(scenario, iterations=12, seed=3)
    names = Counter(e["name"] for _, e in select(simulation.document, *DEVICE))
    assert len(names) > 30
    for part in (
        "flash_fwd_kernel<",
        "multi_tensor_apply_kernel<",
        "gemm_bf16",
        "Memset",
        "Memcpy HtoD",
        "Memcpy DtoH",
    ):
        assert any(part in name for name in names), part
    assert not any("ProfilerStep" in e["name"] for _, e in select(simulation.document, "user_annotation"))


def test_annotated_captures_have_one_step_per_complete_iteration():
    made = simulate("healthy", iterations=4, annotate=True)
    steps = [e["name"] for _, e in select(made.document, "user_annotation") if e["name"].startswith("ProfilerStep#")]
    assert steps == [f"ProfilerStep#{k}" for k in range(10, 14)]
    assert made.starts_ns[0] > 0


def test_the_healthy_job_keeps_the_gpu_busy():
    made = simulate("healthy", iterations=12)
    device = spans(select(made.document, *DEVICE))
    assert 0.93 < total(device) / (device[-1][1] - device[0][0]) < 0.995
    assert max(made.intervals_ns) < 200_000
    assert made.finding is None


def test_the_growing_job_waits_longer_and_longer():
    made = simulate("graph-growth", iterations=40)
    kernels = [span for span, _ in select(made.document, "kernel")]
    operation = kernels[made.first_kernels[5] + made.kernels[5] - 1][1] - made.starts_ns[5]
    last = kernels[made.first_kernels[-1] + made.kernels[-1] - 1][1] - made.starts_ns[-1]
    assert all(a < b for a, b in pairwise(made.intervals_ns))
    assert made.intervals_ns[0] < 0.4 * operation < 3 * operation < made.intervals_ns[-1]
    assert last == pytest.approx(operation, rel=0.05)
    assert made.kernels[5] < made.kernels[-1] <= made.kernels[5] + 14
    assert made.finding == "graph-growth"


def test_the_copying_job_copies_in_its_intervals():
    made = simulate("copy-bound", iterations=8)
    copies = [(span, e["args"]["bytes"]) for span, e in select(made.document, "gpu_memcpy") if "HtoD" in e["name"]]
    copied = sum(span[1] - span[0] for span, nbytes in copies if nbytes > 100_000_000)
    assert copied / 9 > 0.9 * sum(made.intervals_ns) / 8  # the unfinished iteration at the end copies too
    big = next((span, nbytes) for span, nbytes in copies if nbytes > 100_000_000)
    assert 5 < big[1] / (big[0][1] - big[0][0]) < 7  # GB/s
    assert made.finding == "copy-bound"


def test_the_same_seed_writes_the_same_bytes_and_another_does_not(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write(simulate("healthy", iterations=2, seed=seed), tmp_path / f"{name}.json.gz")
    first, second, other = ((tmp_path / f"{name}.json.gz").read_bytes() for name in "abc")
    assert first == second != other


def test_the_name_decides_about_compression(tmp_path):
    made = simulate("healthy", iterations=1)
    for name in ("a.json", "a.json.gz"):
        write(made, tmp_path / name)
        assert load(tmp_path / name)["traceEvents"] == made.document["traceEvents"]
    assert (tmp_path / "a.json").read_bytes()[:1] == b"{"


@pytest.mark.parametrize(("scenario", "iterations"), [("sick", 3), ("healthy", 0), ("straggler", 3)])
def test_what_cannot_be_simulated_is_refused(scenario, iterations):
    with pytest.raises(UsageError):
        simulate(scenario, iterations=iterations)


@pytest.mark.parametrize("strength", [0, -1, 0.2, 5, float("nan"), float("inf")])
def test_a_strength_that_makes_no_sense_is_refused(strength):
    with pytest.raises(UsageError, match="strength"):
        simulate("healthy", strength=strength)


@pytest.mark.parametrize("scenario", ALONE)
def test_one_iteration_can_be_simulated(scenario):
    made = simulate(scenario, iterations=1)
    assert len(made.starts_ns) == len(made.kernels) == 1


@pytest.mark.widens(4)
@pytest.mark.parametrize("scenario", ALONE)
def test_a_scenario_has_the_same_bytes_for_its_seed(scenario):
    first, second, other = (simulate(scenario, iterations=2, seed=seed).document for seed in (1, 1, 2))
    assert first == second != other


def test_the_oldest_scenarios_are_what_they_were():
    """Documents print figures of them. The digest is that of the first release's bytes."""
    digests = {
        name: sha256(encode(simulate(name, iterations=12).document)).hexdigest()[:16] for name in sorted(UNCHANGED)
    }
    assert digests == DIGESTS


@pytest.mark.parametrize("scenario", UNCHANGED)
def test_the_diagnosis_meets_the_truth(tmp_path, scenario):
    """End to end: every start, every interval that statistics do not cut, and the finding."""
    made = simulate(scenario, iterations=25, seed=1)
    write(made, tmp_path / "job.json.gz")
    analysis = analyze(read_job([str(tmp_path / "job.json.gz")]))
    (loop,) = analysis.loops
    complete = loop.iterations.filter("complete")
    intervals = dict(zip(made.starts_ns, made.intervals_ns, strict=True))
    found = complete.drop_nulls("interval_ns").select("start_ns", "interval_ns").rows()
    assert complete["start_ns"].to_list() == list(made.starts_ns)
    assert len(found) >= made.iterations - 3  # statistics follow iterations 10 and 20, the trace ends after the last
    assert all(intervals[start] == interval for start, interval in found)
    assert [finding.rule for finding in analysis.findings[:1]] == ([made.finding] if made.finding else [])


def test_simulate_writes_the_file_and_says_so(capsys, tmp_path):
    target = tmp_path / "job.json.gz"
    argv = ["simulate", "healthy", "-o", str(target), "--iterations", "2", "--seed", "5", "--annotate"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"{target}: healthy, 2 iterations of 335 to 355 kernels on stream 7, seed 5\n")
    write(simulate("healthy", iterations=2, seed=5, annotate=True), tmp_path / "same.json.gz")
    assert target.read_bytes() == (tmp_path / "same.json.gz").read_bytes()
