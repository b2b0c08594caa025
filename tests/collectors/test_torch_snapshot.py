"""PyTorch's memory snapshots: totals and peaks as torch counts them, whatever the history lacks; and hostile ones."""

from __future__ import annotations

import gzip
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deepprof
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import importers, look_at, recognise
from deepprof.collectors.importers.torch_snapshot import TorchSnapshot, snapshot_json, unpickling
from deepprof.collectors.trace import Trace
from tests.chance import examples
from tests.collectors.damage import damaged, read_or_refuse, survives
from tests.collectors.test_pickle_machine import BOMBS, RUNS_CODE
from tests.collectors.torch_snapshots import BEGIN_US, FRAMES, SmallAllocator, make_snapshot, train

BEGIN_NS = BEGIN_US * 1000


def write(path: Path, snapshot: object, protocol: int = 4) -> Path:
    """Write a snapshot as `_dump_snapshot` does."""
    path.write_bytes(pickle.dumps(snapshot, protocol))
    return path


def read(path: Path, snapshot: object, *, details: bool = True) -> Trace:
    """Return the trace of a snapshot, which is written to `path`."""
    return TorchSnapshot().read(write(path, snapshot), details=details)


def entry(action: str, addr: int = 4096, size: int = 64, **more: Any) -> dict[str, Any]:
    """Return an entry of a history."""
    return {"action": action, "addr": addr, "size": size, "stream": 7, "frames": FRAMES[:2]} | more


def history(*entries: object, **more: Any) -> dict[str, Any]:
    """Return a snapshot of one device without segments."""
    return {"segments": [], "device_traces": [list(entries)]} | more


def totals(trace: Trace, device: int = 0) -> tuple[int, int, int]:
    """Return what is in use and reserved at the end, and the most that was in use."""
    rows = trace.memory_events.filter(pl.col("device") == device)
    return rows["allocated_nbytes"][-1], rows["reserved_nbytes"][-1], rows["allocated_nbytes"].max()  # type: ignore[return-value]


@settings(max_examples=examples(40), deadline=None)
@given(before=st.integers(0, 60), steps=st.integers(1, 150), seed=st.integers(0, 9999))
def test_totals_and_peak_are_the_allocators(before: int, steps: int, seed: int, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("snapshot") / "s.pickle"
    allocator = train(SmallAllocator(), before, seed)
    allocator.recording, allocator.peak = True, 0
    train(allocator, steps, seed + 1)
    trace = read(path, make_snapshot(allocator), details=False)
    if trace.memory_events.height:
        in_use, reserved, peak = totals(trace)
        assert (in_use, reserved) == (allocator.allocated(), trace.segments["nbytes"].sum())
        assert peak == max(allocator.peak, allocator.allocated())
    assert trace.segments["nbytes"].sum() == allocator.reserved()
    assert trace.accounting.flagged == {}
    assert trace.accounting.dropped == {"free-requested": n} if (n := requests(allocator)) else True


def own(frame: dict[str, Any]) -> dict[str, Any]:
    """Return an equal frame that shares no text with the other, as torch makes one for every native instruction."""
    return {key: "".join(value) if isinstance(value, str) else value for key, value in frame.items()}


FRAMES_AT_RANDOM = st.lists(st.integers(0, 9), max_size=30) | st.integers(990, 1100).map(lambda n: [1] * n)


@settings(max_examples=examples(60), deadline=None)
@given(
    stacks=st.lists(FRAMES_AT_RANDOM, min_size=1, max_size=5),
    order=st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.booleans()), min_size=1, max_size=20),
    protocol=st.integers(0, 5),
)
def test_each_allocation_has_the_stack_that_was_written(
    stacks: list[list[int]], order: list[tuple[int, bool, bool]], protocol: int, tmp_path_factory: Any
) -> None:
    shared = [[FRAMES[number] for number in stack] for stack in stacks]
    entries = []
    for place, (which, own_list, own_frames) in enumerate(order):
        frames = shared[which % len(shared)]
        frames = [own(frame) if own_frames else frame for frame in frames] if own_list else frames
        entries.append(entry("alloc", 512 * place, frames=frames))
    path = write(tmp_path_factory.mktemp("snapshot") / "s.pickle", history(*entries), protocol)
    trace = TorchSnapshot().read(path, details=True)
    rows = trace.allocations.join(trace.stacks, on="stack_id", how="left", maintain_order="left")
    lines = [[f"{frame['filename']}({frame['line']}): {frame['name']}" for frame in each["frames"]] for each in entries]
    assert rows["frames"].to_list() == [";".join(each) or None for each in lines]
    assert trace.stacks["frames"].is_unique().all()


def native(name: str) -> dict[str, Any]:
    """Return a frame of C++."""
    return {"filename": "??", "name": name, "line": 0}


def test_native_frames_between_those_of_python_stay_only_where_torch_could_place_them(tmp_path: Path) -> None:
    step, loop = FRAMES[:2]
    top, start = [native("empty_cuda"), native("call")], [native("_PyEval_EvalFrameDefault"), native("_start")]
    text = {"filename": "<string>", "name": "<module>", "line": 1}
    engine = [native("backward"), native("__clone")]
    stacks = {
        "one function for each frame": ([*top, step, *start], "empty_cuda;call;{step};_PyEval_EvalFrameDefault;_start"),
        "the others at the end": ([*top, step, *start, loop], "empty_cuda;call;{step};{loop}"),
        "code without a file": ([*top, step, *start, loop, text], "empty_cuda;call;{step};{loop};<module>"),
        "a thread without Python": ([*top, *engine], "empty_cuda;call;backward;__clone"),
        "Python alone": ([step, loop], "{step};{loop}"),
    }
    entries = [entry("alloc", 512 * n, frames=frames) for n, (frames, _) in enumerate(stacks.values())]
    trace = read(tmp_path / "s.pickle", history(*entries))
    rows = trace.allocations.join(trace.stacks, on="stack_id", how="left", maintain_order="left")
    known = {"step": "/job/train_0.py(10): step_0", "loop": "/job/train_1.py(11): step_1"}
    assert rows["frames"].to_list() == [text.format(**known) for _, text in stacks.values()]


def requests(allocator: SmallAllocator) -> int:
    """Return how often a history requests a release."""
    return sum(each["action"] == "free_requested" for each in allocator.trace)


def test_torchs_own_sums_are_the_same(tmp_path: Path) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    allocator = train(SmallAllocator(recording=True), 300)
    snapshot = make_snapshot(allocator)
    in_use, reserved, _ = totals(read(tmp_path / "s.pickle", snapshot))
    said = dict(line.split(": ") for line in viz.segsum(snapshot).splitlines() if line.startswith("total_"))
    assert said["total_allocated"] == repr(viz.Bytes(in_use))
    assert said["total_reserved"] == repr(viz.Bytes(reserved))
    lines = viz.trace(snapshot | {"segments": []}).splitlines()
    trace = read(tmp_path / "s.pickle", snapshot)
    assert sum(line.startswith("# free completed") for line in lines) == (trace.memory_events["nbytes"] < 0).sum()
    assert sum("cudaMalloc(" in line for line in lines) == (trace.segments["nbytes"] > 0).sum()
    assert sum(line.startswith("cudaFree(") for line in lines) == (trace.segments["nbytes"] < 0).sum()


def test_a_profile_of_the_cpu_as_torch_makes_a_snapshot_of_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.cuda import _memory_viz
    from torch.profiler import ProfilerActivity, profile

    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_stack=True
    ) as profiler:
        layer = torch.nn.Linear(64, 64)
        for _ in range(3):
            layer(torch.ones(32, 64)).sum().backward()
    snapshot = _memory_viz._profile_to_snapshot(profiler)
    trace = read(tmp_path / "s.pickle", snapshot)
    held = dict(final_blocks(snapshot))
    changes = trace.memory_events.group_by("address").agg(pl.col("nbytes").sum()).filter(pl.col("nbytes") != 0)
    assert dict(changes.iter_rows()) == held
    assert any("no times" in note for note in trace.notes)
    assert trace.clock == "session"
    assert trace.stacks.height


def final_blocks(snapshot: dict[str, Any]) -> list[tuple[int, int]]:
    """Return place and size of the blocks in use at the end."""
    found = []
    for segment in snapshot["segments"]:
        at = segment["address"] or 0
        for block in segment["blocks"]:
            found += [(at, block["requested_size"])] if block["state"] == "active_allocated" else []
            at += block["size"]
    return found


def test_every_row_of_a_small_history(tmp_path: Path) -> None:
    entries = [
        entry("segment_alloc", 4096, 2**21, time_us=BEGIN_US),
        entry("alloc", 4096, 100, time_us=BEGIN_US + 1, frames=FRAMES[:2]),
        entry("free_requested", 4096, 100, time_us=BEGIN_US + 2),
        entry("free_completed", 4096, 100, time_us=BEGIN_US + 4, frames=[]),
        {"action": "oom", "size": 2**40, "device_free": 5, "stream": 0, "time_us": BEGIN_US + 5, "frames": FRAMES[2:3]},
        entry("snapshot", 0, 0, time_us=BEGIN_US + 6),
        entry("segment_free", 4096, 2**21, time_us=BEGIN_US + 7),
    ]
    trace = read(tmp_path / "s.pickle", history(*entries))
    us = BEGIN_NS
    assert trace.memory_events.rows() == [
        (us + 1_000, None, None, 0, 4096, 100, 100, 2**21),
        (us + 4_000, None, None, 0, 4096, -100, 0, 2**21),
    ]
    assert trace.segments.rows() == [(us, 0, 4096, 2**21, 7), (us + 7_000, 0, 4096, -(2**21), 7)]
    assert trace.failed_allocations.rows() == [(us + 5_000, 0, 2**40, 5, 1)]
    assert any(
        note.startswith("1 allocation failed for want of memory; deepprof tool out-of-memory") for note in trace.notes
    )
    assert trace.allocations.rows() == [(0, 7, 0), (1, 7, None)]
    assert trace.stacks["frames"].to_list() == [
        "/job/train_0.py(10): step_0;/job/train_1.py(11): step_1",
        "/job/train_2.py(12): step_2",
    ]
    assert (trace.accounting.read, trace.accounting.dropped) == (7, {"snapshot": 1, "free-requested": 1})
    assert trace.devices["device"].to_list() == [0]
    bare = read(tmp_path / "s.pickle", history(*entries), details=False)
    assert (bare.allocations.height, bare.failed_allocations["stack_id"][0]) == (0, 0)
    assert bare.stacks["frames"].to_list() == ["/job/train_2.py(12): step_2"]  # that of the failure alone


def test_what_is_older_than_the_history_stands_at_its_beginning(tmp_path: Path) -> None:
    block = {"address": 8192, "size": 512, "requested_size": 300, "state": "active_allocated", "frames": FRAMES[:1]}
    segment = {"device": 0, "address": 8192, "total_size": 2**20, "stream": 3, "blocks": [block]}
    entries = [entry("free_completed", 4096, 64, time_us=BEGIN_US), entry("alloc", 4096, 50, time_us=BEGIN_US + 2)]
    renewed = block | {"address": 4096, "requested_size": 50}
    kept = {"address": 4096, "total_size": 4096, "stream": 3, "blocks": [renewed]}
    trace = read(tmp_path / "s.pickle", history(*entries, segments=[segment, kept]))
    changes = trace.memory_events.select("time_ns", "address", "nbytes", "allocated_nbytes", "reserved_nbytes").rows()
    reserved = 2**20 + 4096
    assert changes == [
        (BEGIN_NS, 4096, 64, 64, reserved),
        (BEGIN_NS, 8192, 300, 364, reserved),
        (BEGIN_NS, 4096, -64, 300, reserved),
        (BEGIN_NS + 2_000, 4096, 50, 350, reserved),
    ]
    assert trace.allocations["stack_id"].to_list()[1] is not None  # the block at the end states who took it
    assert trace.accounting.read == 2 + 4
    assert any("4 blocks and segments (364 bytes in use) are older" in note for note in trace.notes)


def test_a_request_counts_where_no_completion_follows(tmp_path: Path) -> None:
    entries = [entry("alloc"), entry("free_requested"), entry("alloc", size=32), entry("free_requested", size=32)]
    trace = read(tmp_path / "s.pickle", history(*entries))
    assert trace.memory_events["nbytes"].to_list() == [64, -64, 32, -32]
    assert trace.accounting.dropped == {}


def test_a_block_that_waits_for_another_stream_is_in_use(tmp_path: Path) -> None:
    allocator = SmallAllocator(recording=True)
    allocator.request_free(allocator.alloc(100))
    assert totals(read(tmp_path / "s.pickle", make_snapshot(allocator)))[0] == 100


def test_segments_that_grow_in_pieces(tmp_path: Path) -> None:
    page = 2**21
    entries = [
        *(entry("segment_map", page * n, page) for n in (1, 2, 3)),
        entry("segment_unmap", page * 3, page),
        entry("alloc", page, 100),
        *(entry("segment_unmap", page * n, page) for n in (20, 21)),
    ]
    segment = {"device": 0, "address": page, "total_size": 2 * page, "stream": 0, "blocks": []}
    trace = read(tmp_path / "s.pickle", history(*entries, segments=[segment]))
    assert trace.segments["nbytes"].sum() == 2 * page
    assert trace.segments["nbytes"].to_list()[0] == 2 * page  # those at 20 and 21, which only their end is known of
    assert trace.memory_events["reserved_nbytes"].to_list() == [4 * page]


def test_devices_have_totals_of_their_own(tmp_path: Path) -> None:
    one, two = (train(SmallAllocator(device=d, recording=True), 60, seed=d) for d in (0, 1))
    trace = read(tmp_path / "s.pickle", make_snapshot(one, two))
    for device, allocator in enumerate((one, two)):
        assert totals(trace, device) == (allocator.allocated(), allocator.reserved(), allocator.peak)
    assert trace.devices["device"].to_list() == [0, 1]


def test_entries_without_times_are_in_their_order(tmp_path: Path) -> None:
    trace = read(tmp_path / "s.pickle", history(*(entry("alloc", at) for at in (64, 128, 192))))
    assert trace.memory_events.select("time_ns", "address").rows() == [(0, 64), (1, 128), (2, 192)]
    assert trace.clock == "session"
    assert trace.notes[-1] == "its history has no times: entries are numbered in their order instead"


def test_times_that_are_missing_or_go_back_keep_the_order(tmp_path: Path) -> None:
    times = [{"time_us": 5}, {}, {"time_us": 3}, {"time_us": 9}, {"time_us": 2**62}, {"time_us": "x"}]
    trace = read(tmp_path / "s.pickle", history(*(entry("alloc", 64 * n, **more) for n, more in enumerate(times))))
    assert trace.memory_events["time_ns"].to_list() == [5_000, 5_000, 5_000, 9_000, 9_000, 9_000]
    assert trace.memory_events["address"].to_list() == [0, 64, 128, 192, 256, 320]


def test_ranges_are_paired_by_name(tmp_path: Path) -> None:
    marks = [("a", "START", 0), ("a", "START", 1), ("b", "START", 2), ("a", "END", 3), ("b", "END", 4), ("a", "END", 5)]
    marks += [("c", "END", 6), ("d", "START", 7), ("e", None, 8)]
    said = [{"name": n, "stage": s, "device": 0, "time_us": BEGIN_US + t} for n, s, t in marks]
    trace = read(tmp_path / "s.pickle", history(entry("alloc"), external_annotations=[*said, {"name": 3}]))
    found = [
        (trace.names[row["name_id"]], row["start_ns"] - BEGIN_NS, row["end_ns"] and row["end_ns"] - BEGIN_NS)
        for row in trace.annotations.rows(named=True)
    ]
    assert found == [("a", 0, 5_000), ("a", 1_000, 3_000), ("b", 2_000, 4_000), ("d", 7_000, None), ("e", 8_000, 8_000)]
    assert trace.accounting.dropped == {"invalid": 1, "unopened": 1, "joined": 3}


NOTHING = ({}, [], {"segments": [], "device_traces": []}, {"segments": []}, {"device_traces": [[], []]})


@pytest.mark.parametrize("snapshot", NOTHING, ids=map(str, NOTHING))
def test_an_empty_snapshot_is_a_trace_without_rows(snapshot: object, tmp_path: Path) -> None:
    if not snapshot:
        with pytest.raises(TraceError, match="pickle of something else"):
            read(tmp_path / "s.pickle", snapshot)
    else:
        assert read(tmp_path / "s.pickle", snapshot).accounting.read == 0


ODD = {
    "no action": entry("alloc") | {"action": 5},
    "unknown action": entry("dance"),
    "no address": entry("alloc", addr=None),  # type: ignore[arg-type]
    "negative size": entry("alloc", size=-5),
    "huge size": entry("alloc", size=2**62),
    "text for a size": entry("alloc", size="64"),  # type: ignore[arg-type]
    "no entry": "alloc",
    "a list": [1, 2],
    "frames of something else": entry("alloc", frames="main"),
    "frames in frames": entry("alloc", frames=[[], None, {"filename": 5, "name": [], "line": "x"}]),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_odd_entry_is_counted_and_the_others_stay(odd: object, tmp_path: Path) -> None:
    trace = read(tmp_path / "s.pickle", history(entry("alloc", 64), odd, entry("alloc", 128)))
    assert {64, 128} <= set(trace.memory_events["address"])
    assert trace.accounting.read == 3
    assert trace.memory_events.height + sum(trace.accounting.dropped.values()) == 3


def test_a_request_that_no_machine_can_meet_is_a_failure_like_others(tmp_path: Path) -> None:
    failures = [entry("oom", size=size, device_free=5) for size in (2**50, 2**60, 2**60 + 1, -1)]
    trace = read(tmp_path / "s.pickle", history(*failures))
    assert trace.failed_allocations["nbytes"].to_list() == [2**50, 2**60]
    assert trace.accounting.dropped == {"invalid-bytes": 2}


def test_a_snapshot_without_a_history_says_so(tmp_path: Path) -> None:
    snapshot = make_snapshot(train(SmallAllocator(), 30))
    trace = read(tmp_path / "s.pickle", snapshot)
    assert trace.notes[-1].startswith("it has no history, only what was held at its end")
    assert not any("no times" in note for note in trace.notes)


def test_a_history_that_stands_twice_is_refused(tmp_path: Path) -> None:
    shared = [entry("alloc")]
    blocks = [{"size": 5, "state": "active_allocated"}]
    segment = {"address": 4096, "total_size": 512, "blocks": blocks}
    with pytest.raises(TraceError, match="histories of two devices are one list"):
        read(tmp_path / "s.pickle", {"segments": [], "device_traces": [shared] * 1000})
    with pytest.raises(TraceError, match="blocks of two segments are one list"):
        read(tmp_path / "s.pickle", {"segments": [segment, dict(segment)], "device_traces": []})


def test_one_entry_many_times_is_as_many_entries(tmp_path: Path) -> None:
    trace = read(tmp_path / "s.pickle", history(*[entry("alloc")] * 1000))
    assert (trace.memory_events.height, trace.stacks.height) == (1000, 1)


HOSTILE = [*RUNS_CODE.values(), *(content for content, _ in BOMBS.values())]


@pytest.mark.parametrize("content", HOSTILE, ids=[*RUNS_CODE, *BOMBS])
def test_hostile_pickles_are_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(content)
    assert isinstance(read_or_refuse(TorchSnapshot(), path), TraceError)


def test_code_is_refused_in_words_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": print}))
    with pytest.raises(TraceError, match=r"s\.pickle: is no plain snapshot: its pickle would run code"):
        deepprof.read(path)


def test_damaged_files_are_refused_or_read(tmp_path: Path) -> None:
    whole = pickle.dumps(make_snapshot(train(SmallAllocator(recording=True), 12)))
    path = tmp_path / "s.pickle"
    for piece in damaged(whole):
        path.write_bytes(piece)
        read_or_refuse(TorchSnapshot(), path, details=True)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("packed", [False, True])
def test_every_protocol_is_recognised_by_its_content(protocol: int, packed: bool, tmp_path: Path) -> None:
    allocator = train(SmallAllocator(recording=True), 30)
    content = pickle.dumps(make_snapshot(allocator), protocol)
    path = tmp_path / "anything"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert isinstance(recognise(look_at(path), path), TorchSnapshot)
    assert totals(deepprof.read(path))[:2] == (allocator.allocated(), allocator.reserved())


TABLES = ("memory_events", "segments", "failed_allocations", "allocations", "stacks", "annotations")


@settings(max_examples=examples(25), deadline=None)
@given(before=st.integers(0, 40), steps=st.integers(1, 80), seed=st.integers(0, 9999), details=st.booleans())
def test_a_snapshot_as_json_is_the_same(
    before: int, steps: int, seed: int, details: bool, tmp_path_factory: Any
) -> None:
    allocators = [train(SmallAllocator(device=device), before, seed) for device in (0, 1)]
    for number, allocator in enumerate(allocators):
        allocator.recording = True
        train(allocator, steps, seed + number).fail(2**50, 7)
    marks = [{"name": "a", "stage": stage, "device": 0, "time_us": BEGIN_US} for stage in ("START", "END", None)]
    snapshot = make_snapshot(*allocators, external_annotations=[*marks, 5])
    path = write(tmp_path_factory.mktemp("snapshot") / "s.pickle", snapshot)
    pickled = TorchSnapshot().read(path, details=details)
    path.write_text(json.dumps(snapshot))
    again = TorchSnapshot().read(path, details=details)
    for name in TABLES:
        assert getattr(pickled, name).equals(getattr(again, name)), name
    assert (pickled.accounting, pickled.notes, pickled.clock) == (again.accounting, again.notes, again.clock)


@pytest.mark.parametrize("order", [lambda names: names, sorted, reversed])
@pytest.mark.parametrize("packed", [False, True])
def test_json_is_recognised_by_its_content(order: Any, packed: bool, tmp_path: Path) -> None:
    allocator = train(SmallAllocator(recording=True), 30)
    snapshot = make_snapshot(allocator)
    snapshot["device_traces"][0][0]["frames"] = [{"name": "traceEvents", "filename": "ph", "line": 1}]
    content = json.dumps({name: snapshot[name] for name in order(list(snapshot))}, indent=1).encode()
    path = tmp_path / "anything"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert isinstance(recognise(look_at(path), path), TorchSnapshot)
    assert totals(deepprof.read(path))[:2] == (allocator.allocated(), allocator.reserved())


def test_other_json_is_not_recognised(tmp_path: Path) -> None:
    kineto = {"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "args": {"segments": []}}]}
    for number, value in enumerate(
        (kineto, {"segments": [], **kineto}, {"segments": 5}, [{"segments": []}], {"a": []})
    ):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(value))
        assert not TorchSnapshot().accepts(look_at(path), path)
    path.write_text('{"segments": []}')
    with pytest.raises(TraceError, match="is JSON of something else than a memory snapshot"):
        deepprof.read(path)


ODD_JSON = {name: odd for name, odd in ODD.items() if name not in {"text for a size", "frames of something else"}}


@pytest.mark.parametrize("odd", ODD_JSON.values(), ids=ODD_JSON)
def test_an_odd_entry_of_json_is_counted_and_the_others_stay(odd: object, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(history(entry("alloc", 64), odd, entry("alloc", 128), segments=[3, {"blocks": [4]}])))
    trace = TorchSnapshot().read(path, details=True)
    assert {64, 128} <= set(trace.memory_events["address"])
    assert trace.accounting.read == 3 + 2
    assert trace.memory_events.height + sum(trace.accounting.dropped.values()) == 3 + 2


HOSTILE_JSON = {
    "cut off": '{"segments": [], "device_traces": [[',
    "nested": '{"segments": [], "device_traces": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "no JSON": '{"segments": [], "device_traces": [], "x": NaN}',
    "empty values": '{"segments": [], "device_traces": [[' + "{}," * 3_000_000 + "{}]]}",
    "commas": '{"segments": [], "device_traces": [[' + "1," * 4_000_000 + "1]]}",
}


@pytest.mark.parametrize("content", HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_hostile_json_is_refused_in_one_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(content)
    assert isinstance(read_or_refuse(TorchSnapshot(), path, details=True), TraceError)


def test_damaged_json_is_refused_or_read(tmp_path: Path) -> None:
    whole = json.dumps(make_snapshot(train(SmallAllocator(recording=True), 12))).encode()
    assert survives(TorchSnapshot(), tmp_path / "s.json", whole, details=True)


def test_more_values_than_a_pickle_may_have_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(history(entry("alloc"), entry("alloc"))))
    monkeypatch.setattr(snapshot_json, "MOST", 10)
    with pytest.raises(TraceError, match="holds too much: more than 10 values"):
        TorchSnapshot().read(path)


def test_without_the_compiled_reader_all_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "s.pickle", make_snapshot(train(SmallAllocator(recording=True), 80)))
    with_it = TorchSnapshot().read(path, details=True)
    monkeypatch.setattr(unpickling, "library", lambda: None)
    without = TorchSnapshot().read(path, details=True)
    for name in ("memory_events", "segments", "failed_allocations", "allocations", "stacks"):
        assert getattr(with_it, name).equals(getattr(without, name))


def test_other_pickles_are_not_recognised(tmp_path: Path) -> None:
    for number, value in enumerate(({"weights": [1.0]}, [1, 2], "text", {"a": 1})):
        path = write(tmp_path / f"{number}.pkl", value)
        assert not any(isinstance(each, TorchSnapshot) and each.accepts(look_at(path), path) for each in importers())


def test_a_store_keeps_a_snapshot(tmp_path: Path) -> None:
    from deepprof.collectors.store.rank import open_rank, write_rank

    trace = read(tmp_path / "s.pickle", make_snapshot(train(SmallAllocator(recording=True), 60)))
    write_rank(trace, tmp_path / "rank=0")
    again = open_rank(tmp_path / "rank=0").read(details=True)
    for name in ("memory_events", "segments", "failed_allocations", "allocations", "stacks"):
        assert getattr(again, name).equals(getattr(trace, name))


def test_reading_imports_nothing_of_torch_and_unpickles_nothing() -> None:
    import subprocess

    program = "import sys, deepprof.collectors.importers.torch_snapshot;print(sorted({'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[]\n"


def test_a_history_of_segments_alone_is_on_the_unix_clock(tmp_path: Path) -> None:
    trace = read(tmp_path / "s.pickle", history(entry("segment_alloc", time_us=BEGIN_US)))
    assert (trace.clock, trace.segments["time_ns"].to_list()) == ("unix", [BEGIN_NS])


@pytest.mark.parametrize("size", [2**50, 2**59])
def test_a_request_for_an_absurd_size_is_kept(size: int, tmp_path: Path) -> None:
    trace = read(tmp_path / "s.pickle", history(entry("alloc"), entry("oom", size=size, device_free=5)))
    assert trace.failed_allocations["nbytes"].to_list() == [size]
    assert not trace.accounting.dropped
