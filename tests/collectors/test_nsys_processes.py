"""Nsight Systems captures of several processes: whose work is what, and one trace for each."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from deepprof.analysis import analyze
from deepprof.collectors.processes import session_of, split_all, split_processes
from deepprof.collectors.store.rank import open_rank, write_rank
from deepprof.collectors.trace import SEGMENTS, Accounting, Process
from deepprof.job import read_job
from deepprof.job.conversion import convert
from tests.collectors.nsys_database import CALL, KERNEL, PID, RANGE, build, read, rows
from tests.tables import table

OTHER = PID + 66
STRINGS = {number: f"kernel_{number}" for number in range(1, 12)} | {
    7: "fused_adam",  # an optimizer in each: a sign that a period is an iteration
    11: "fused_sgd",
    20: "cudaLaunchKernel_v7000",
}
GPU = {"id": 0, "name": "A100", "uuid": "be64e405", "busLocation": "0000:01:00.0", "cuDevice": 0}
PROCESSES = [{"globalPid": pid << 24, "pid": pid, "name": f"job{pid}"} for pid in (PID, OTHER, PID + 5)]
A, B = (1, 2, 3, 4, 5, 6, 7), (8, 9, 8, 10, 11)


def play(pid: int, names: tuple[int, ...], times: int, every_ns: int, begin_ns: int) -> tuple[list, list]:
    """Return kernels and their launches: the pattern `names` over and over, one kernel every so often."""
    kernels, calls = [], []
    for at in range(len(names) * times):
        start = begin_ns + at * every_ns
        place = {"globalPid": pid << 24, "correlationId": at + 1, "demangledName": names[at % len(names)]}
        kernels.append({**KERNEL, **place, "start": start, "end": start + every_ns // 3})
        launch = {"globalTid": (pid << 24) | pid, "correlationId": at + 1, "nameId": 20}
        calls.append({**CALL, **launch, "start": start - 900, "end": start - 800})
    return kernels, calls


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A capture of two processes, each of which repeats its own pattern on "stream 7" of device 0."""
    (a, a_calls), (b, b_calls) = play(PID, A, 30, 10_000, 100_000), play(OTHER, B, 44, 9_700, 103_000)
    path = tmp_path_factory.mktemp("shared") / "two.sqlite"
    tables = {"TARGET_INFO_GPU": [GPU], "PROCESSES": PROCESSES}
    return build(
        path,
        strings=STRINGS,
        CUPTI_ACTIVITY_KIND_KERNEL=a + b,
        CUPTI_ACTIVITY_KIND_RUNTIME=a_calls + b_calls,
        **tables,
    )


def test_kernels_of_two_processes_on_one_stream_number_make_no_sequence(shared):
    """What a reader of streams by number alone would see: neither program's loop."""
    mixed = analyze(replace(read(shared), processes=()))
    assert {loop.period for loop in mixed.loops}.isdisjoint({len(A), len(B)})
    assert sorted(loop.period for loop in analyze(read(shared)).loops) == [len(B), len(A)]


def test_each_process_is_a_rank_with_its_own_loop(shared):
    analysis = analyze(read_job(shared))
    assert [trace.path for trace in analysis.traces] == [f"{shared}:{PID}", f"{shared}:{OTHER}"]
    assert {loop.rank: (loop.device, loop.stream, loop.period) for loop in analysis.loops} == {
        0: (0, 7, len(A)),
        1: (0, 7, len(B)),
    }
    assert not any("clock" in note for recording in analysis.recordings for note in recording.notes)


def test_a_process_has_its_name_its_contexts_and_its_device(shared):
    trace = read(shared)
    assert trace.processes == (
        Process(PID, f"job{PID}", (1,), ((0, "be64e405"),)),
        Process(OTHER, f"job{OTHER}", (2,), ((0, "be64e405"),)),
    )
    assert trace.accounting.flagged.get("overlapping") is None  # two streams are not one


def test_every_record_of_the_whole_is_in_one_part(tmp_path):
    other = {"globalPid": OTHER << 24, "contextId": None, "start": 300, "end": 400}
    ranges = rows(RANGE, {}, {"globalTid": OTHER << 24}, {"globalTid": 99 << 24}, {"start": 9, "end": 5})
    kernels = rows(KERNEL, {}, other, {"globalPid": None, "start": 7}, {"start": -(2**62)})
    calls = rows(CALL, {}, {"globalTid": (OTHER << 24) | 5})
    tables = {"CUPTI_ACTIVITY_KIND_KERNEL": kernels, "CUPTI_ACTIVITY_KIND_RUNTIME": calls, "NVTX_EVENTS": ranges}
    whole = read(build(tmp_path / "a.sqlite", **tables))
    first, second = split_processes(whole)
    assert (first.device_events.height, second.device_events.height) == (2, 1)
    assert (first.annotations.height, second.annotations.height) == (2, 1)  # the third process' range too
    assert first.accounting.dropped == whole.accounting.dropped == {"invalid-time": 2}
    assert first.accounting.read + second.accounting.read == whole.accounting.read
    assert second.accounting.dropped == {}
    assert second.host_events["correlation"].to_list() == second.device_events["correlation"].to_list()
    assert [session_of(part) for part in (first, second)] == [whole.path] * 2


def test_what_names_no_process_is_in_the_first_part(shared):
    whole = read(shared)
    taken = table([{"time_ns": 5, "device": 0, "nbytes": 64, "stream": 0}], SEGMENTS)
    counts = Accounting(whole.accounting.read + 1, whole.accounting.kept + 1, whole.accounting.dropped)
    first, second = split_processes(replace(whole, segments=taken, accounting=counts))
    assert (first.segments.height, second.segments.height) == (1, 0)
    assert first.accounting.kept + second.accounting.kept == counts.kept


def test_one_process_on_the_device_is_one_trace(tmp_path):
    calls = rows(CALL, {}, {"globalTid": (OTHER << 24) | 5})  # it asked how many devices there are
    tables = {"CUPTI_ACTIVITY_KIND_KERNEL": rows(KERNEL, {}), "CUPTI_ACTIVITY_KIND_RUNTIME": calls}
    trace = read(build(tmp_path / "a.sqlite", **tables))
    assert split_all([trace]) == [trace]
    assert session_of(trace) is None
    assert [note.partition(";")[0] for note in trace.notes] == [
        f"2 processes used CUDA in this capture ({PID}, {OTHER})"
    ]


def test_a_device_number_is_that_of_its_process(tmp_path):
    """With CUDA_VISIBLE_DEVICES each process sees its own device 0; slices of one GPU have their own identities."""
    pids = (PID, OTHER, OTHER + 1, OTHER + 2)
    kernels = rows(KERNEL, *({"globalPid": pid << 24} for pid in pids))
    gpus = [GPU, {**GPU, "id": 1, "uuid": None, "busLocation": "0000:02:00.0", "cuDevice": 1}]
    cuda = [
        {"gpuId": 0, "cudaId": 0, "pid": PID, "uuid": None},
        {"gpuId": 1, "cudaId": 0, "pid": OTHER, "uuid": None},
        {"gpuId": 0, "cudaId": 0, "pid": OTHER + 1, "uuid": "MIG-1"},
    ]
    host = [{"name": "CpuCores", "value": "8"}, {"name": "Hostname", "value": "node1"}]
    tables = {"TARGET_INFO_GPU": gpus, "TARGET_INFO_CUDA_DEVICE": cuda, "TARGET_INFO_SYSTEM_ENV": host}
    trace = read(build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=kernels, **tables))
    assert [process.devices for process in trace.processes] == [
        ((0, "be64e405"),),
        ((0, "node1 GPU 0000:02:00.0"),),
        ((0, "MIG-1"),),
        (),  # of two GPUs nothing states which it is
    ]


def test_a_store_keeps_processes_apart(shared, tmp_path):
    convert(shared, tmp_path / "job.deepprof")
    stored = analyze(read_job(tmp_path / "job.deepprof"))
    assert [(loop.rank, loop.period) for loop in stored.loops] == [(0, len(A)), (1, len(B))]
    part = read_job(tmp_path / "job.deepprof", between=(0, 10**9))
    assert [trace.processes[0].id for trace in part] == [PID, OTHER]


def test_a_store_of_before_has_no_processes(shared, tmp_path):
    write_rank(replace(read(shared), processes=()), tmp_path / "rank")
    assert '"processes"' not in (tmp_path / "rank" / "deepprof.json").read_text()
    assert open_rank(tmp_path / "rank").read().processes == ()
