"""`input-bound`: the host loads data while the device idles."""

from __future__ import annotations

from deepprof.analysis import Analysis, analyze
from deepprof.diagnosis.rules.host_bound import host_bound
from deepprof.diagnosis.rules.input_bound import input_bound
from deepprof.diagnosis.rules.other_thread import other_thread
from tests.deepprof.diagnosis.loops import START_US, Did, Job, Work, compute

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def test_the_loader_is_named_and_its_hidden_part_costs_nothing() -> None:
    (found,) = Job(100_000, [compute(60_000)], [Did(LOADER, 40_000, 95_000, "range")]).found(input_bound)
    assert (found.severity, found.confidence) == ("critical", 1.0)
    assert found.headroom_ns_per_iteration == 35_000_000
    assert found.location == {"range": LOADER}
    assert found.summary.startswith("For 35.0 ms of an iteration (35.0 %)")
    assert LOADER in found.summary


def test_loading_that_the_device_does_not_notice_is_no_matter() -> None:
    assert Job(100_000, [compute(96_000)], [Did(LOADER, 0, 95_000, "range")]).found(input_bound) == []


def test_a_loader_that_takes_nearly_all_the_time_is_named_too() -> None:
    (found,) = Job(100_000, [compute(2_000)], [Did(LOADER, 1_000, 99_900, "range")]).found(input_bound)
    assert found.location == {"range": LOADER}


def test_a_workers_loading_is_not_the_training_threads() -> None:
    job = Job(100_000, [compute(60_000)], [Did(LOADER, 60_000, 95_000, "range", thread=9)])
    assert job.found(input_bound) == []
    assert len(job.found(other_thread)) == 1


def test_a_range_named_after_the_loader_around_everything_is_no_loading() -> None:
    kernels = [Work(10_000 * i, 10_000 * i + 5_000, 10_000 * i - START_US) for i in range(10)]
    around = [Did("train_dataloader_loop", 0, 99_990, "range")]
    assert Job(100_000, kernels, around).found(input_bound) == []


def test_a_range_around_the_launch_of_a_whole_graph_is_no_loading() -> None:
    graph = Work(0, 50_000, -START_US, "CUDA graph", activity="graph")
    around = [Did("fetch_batch_and_replay", -10, 99_980, "range")]
    marker = Work(50_000, 50_010, 100)
    assert Job(100_000, [marker, graph], around).found(input_bound) == []


def test_python_frames_show_loading_where_there_is_no_range() -> None:
    frame = "torch/utils/data/dataloader.py(628): __next__"
    (found,) = Job(100_000, [compute(60_000)], [Did(frame, 60_000, 99_000, "python")]).found(input_bound)
    assert found.location == {"frame": frame}


def test_a_directory_named_after_the_loader_shows_nothing() -> None:
    frame = "/home/me/dataloader_bench/train.py(62): log"
    job = Job(100_000, [compute(60_000)], [Did(frame, 60_000, 99_000, "python")])
    assert job.found(input_bound) == []
    (found,) = job.found(host_bound)
    assert found.location == {"frame": frame}


def frames(load: float, *more: Did) -> Analysis:
    """Ten frames of 100 µs that a recording without operators and without a device shows by its ranges alone."""
    parts = [Did("frame", 0, 99, "range"), Did("load_batch", 0, load, "range"), Did("resize", load, 99, "range")]
    return analyze([Job(100, [], [*parts, *more], iterations=10).trace()])


def test_ranges_alone_show_that_a_program_loads_data() -> None:
    answer = frames(60).answer
    assert answer.kind == "no work"
    assert answer.loss is not None
    assert (answer.loss.rule, answer.loss.severity, answer.loss.title) == (
        "input-bound",
        "info",
        "The program loads data",
    )
    assert answer.loss.location == {"range": "load_batch"}
    assert answer.loss_ratio == 600 / 999
    assert answer.confidence is not None
    assert answer.confidence < 0.5


def test_a_program_that_hardly_loads_is_not_blamed_for_it() -> None:
    assert frames(2).answer.loss is None


def test_workers_that_load_and_a_range_around_everything_are_no_loading_of_the_program() -> None:
    worker, around = Did("load_batch", 0, 100, "range", thread=9), Did("dataloader_loop", 0, 1_000, "range", every=10)
    assert frames(0, worker).answer.loss is None
    assert frames(0, around).answer.loss is None


def test_where_a_device_was_in_use_ranges_do_not_show_that_loading_costs_anything() -> None:
    assert frames(60, Did("cudaDeviceSynchronize", 97, 98)).answer.loss is None
