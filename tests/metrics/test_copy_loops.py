"""Devices that only copy: what comes in and goes back again and again is a loop, what goes one way is not."""

from __future__ import annotations

import pytest

from deepprof.analysis import Analysis, analyze
from deepprof.metrics.sequence import main_sequence
from deepprof.metrics.streams import is_mostly_copies
from tests.deepprof.diagnosis.loops import MAIN, Did, Job, Work

LAYER = (4096, 16, 1024, 1024, 4096, 12_288, 12_288)  # bytes of a layer's weights


def copied(
    start: float, way: str, us: float, *, stream: int = MAIN, nbytes: int | None = None, launched: float | None = None
) -> Work:
    more = {"copy_kind": way, "nbytes": round(us * 25_000) if nbytes is None else nbytes}
    return Work(start, start + us, launched, f"Memcpy {way}", stream, "memcpy", more)


def analysed(job: Job) -> Analysis:
    return analyze([job.trace()])


IN_AND_OUT = [copied(0, "HtoD", 700), copied(705, "DtoH", 290)]


def test_what_comes_in_and_goes_back_again_and_again_is_a_loop() -> None:
    found = analysed(Job(1_000, IN_AND_OUT, iterations=20))
    (loop,) = found.loops
    assert (loop.iterations.height, loop.period) == (20, 2)
    assert loop.coverage_ratio == 1
    assert loop.confidence >= 0.5  # what copies are outside of it is no doubt, for there are none
    answer = found.answer
    assert (answer.kind, answer.groups["copying"]) == ("loop", pytest.approx(0.99, abs=0.001))
    assert answer.loss is not None
    assert answer.loss.title == "Copies from the host run, and no kernel runs at the same time"
    assert answer.loss_ratio == pytest.approx(0.7, abs=0.001)


def test_the_host_is_to_blame_where_the_device_waits_for_it() -> None:
    packs, waits = Did("pack", 1_000, 4_900, "range"), Did("cudaStreamSynchronize", 720, 996)
    works = [copied(0, "HtoD", 700, launched=-10), copied(705, "DtoH", 290, launched=-5)]
    found = analysed(Job(5_000, works, [packs, waits], iterations=20))
    assert found.loops[0].iterations.height == 20
    answer = found.answer
    assert answer.loss is not None
    assert answer.loss.rule == "host-bound"
    assert answer.loss_ratio == pytest.approx(0.8, abs=0.01)
    assert answer.groups["copying"] == pytest.approx(0.198, abs=0.001)


def test_each_direction_may_have_a_stream_of_its_own() -> None:
    back = copied(705, "DtoH", 290, stream=MAIN + 1)
    (loop,) = analysed(Job(1_000, [copied(0, "HtoD", 700), copied(800, "HtoD", 90), back], iterations=20)).loops
    assert (loop.iterations.height, loop.stream) == (20, MAIN)


def test_sizes_may_differ_from_iteration_to_iteration() -> None:
    works = [
        work
        for i in range(24)
        for work in (copied(i * 1_000, "HtoD", 600 + 7 * i), copied(i * 1_000 + 800, "DtoH", 150 + 2 * i))
    ]
    (loop,) = analysed(Job(30_000, works, iterations=1)).loops
    assert loop.iterations.height == 24


@pytest.mark.parametrize("way", ["HtoD", "DtoH"])
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("sizes", [LAYER, LAYER[:1]])
def test_weights_and_checkpoints_are_no_loop(way: str, sizes: tuple[int, ...], waits: bool) -> None:
    copies = [
        copied(100 * n, way, max(1, nbytes / 200), nbytes=nbytes, launched=100 * n - 10)
        for n, nbytes in enumerate(sizes)
    ]
    wait = [Did("cudaStreamSynchronize", 100 * n + 5, 100 * n + 80) for n in range(len(sizes)) if waits]
    found = analysed(Job(100 * len(sizes), copies, wait, iterations=200))
    assert found.loops == ()
    assert "in one direction only" in str(found.no_loop_reason)
    assert found.answer.kind == "recording"
    assert found.answer.groups


def test_copies_in_marked_steps_are_iterations_in_one_direction_too() -> None:
    step = Did("ProfilerStep#1", -20, 950, "range")
    (loop,) = analysed(Job(1_000, [copied(0, "HtoD", 500), copied(510, "HtoD", 90)], [step], iterations=12)).loops
    assert loop.iterations.height == 12
    assert loop.boundary_source == "annotation"


def test_a_kernel_or_two_beside_many_copies_are_no_sequence() -> None:
    odd = [Work(0, 20, -15, "initialise", 3), Work(30, 50, -14, "finish", 3)]
    works = [*odd, *(copied(100 + i * 1_000 + at, way, us) for i in range(30) for at, way, us in PAIR)]
    trace = Job(40_000, works, iterations=1).trace()
    (loop,) = analyze([trace]).loops
    assert (loop.iterations.height, loop.stream) == (30, MAIN)


PAIR = ((0, "HtoD", 700.0), (705, "DtoH", 290.0))


def test_where_kernels_run_they_are_the_sequence_however_much_is_copied() -> None:
    kernels = [Work(n, n + 0.5, -10, f"kernel_{n}_") for n in range(4)]  # a layer, whose weights come in
    trace = Job(1_000, [*kernels, copied(10, "HtoD", 800), copied(850, "DtoH", 100)], iterations=28).trace()
    assert not is_mostly_copies(trace.device_events)
    sequence = main_sequence(trace, 0, MAIN)
    assert (len(sequence.symbols), sequence.directions) == (4 * 28, None)


def test_a_few_copies_are_no_sequence() -> None:
    found = analysed(Job(1_000, IN_AND_OUT, iterations=2))
    assert found.no_loop_reason == "the trace holds no GPU kernel"


def test_symbols_are_directions_and_sizes() -> None:
    works = [copied(0, "HtoD", 5), copied(10, "HtoD", 7), copied(20, "DtoH", 5), copied(30, "HtoD", 5)]
    unknown = Work(40, 45, None, "Memcpy", MAIN, "memcpy", {"copy_kind": None, "nbytes": None})
    sequence = main_sequence(Job(100, [*works, unknown], iterations=1).trace(), 0, MAIN)
    assert sequence.directions is not None
    first, second, third, fourth, last = sequence.symbols.tolist()
    assert first == fourth
    assert len({first, second, third, last}) == 4
    assert sequence.directions[first] == sequence.directions[second]
    assert len({int(sequence.directions[each]) for each in (first, third, last)}) == 3
