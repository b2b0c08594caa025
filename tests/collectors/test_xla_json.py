"""The trace viewer's copy of a profile, made by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deepprof
from deepprof.collectors import importers
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.kineto import Kineto
from deepprof.collectors.importers.xla import viewer as xla_json
from deepprof.collectors.importers.xla import viewer_events as xla_json_events
from deepprof.collectors.importers.xla.viewer import XlaJson
from tests.collectors.damage import read_within, survives
from tests.collectors.xplane_profile import named

GPU, HOST = 1, 701  # the viewer's numbers of the planes
META = [
    {"ph": "M", "pid": GPU, "name": "process_name", "args": {"name": "/device:GPU:0"}},
    {"ph": "M", "pid": GPU, "name": "process_sort_index", "args": {"sort_index": 1}},
    {"ph": "M", "pid": GPU, "tid": 13, "name": "thread_name", "args": {"name": "Stream #13(Compute,MemcpyD2D)"}},
    {"ph": "M", "pid": GPU, "tid": 900, "name": "thread_name", "args": {"name": "XLA Ops"}},
    {"ph": "M", "pid": HOST, "name": "process_name", "args": {"name": "/host:CPU"}},
    {"ph": "M", "pid": HOST, "tid": 2**31, "name": "thread_name", "args": {"name": "python"}},
]


def event(name, ts, dur, pid=GPU, tid=13, **args):
    return {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name, "args": args}


def write(path, events, meta=META):
    document = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*meta, *events, {}]}
    path.write_text(json.dumps(document))
    return path


def read(tmp_path, *events, meta=META):
    return XlaJson().read(write(tmp_path / "host.trace.json", events, meta))


def test_devices_and_host(tmp_path):
    copy = "kind_src:device kind_dst:device size:64 dest:0 async:1"
    trace = read(
        tmp_path,
        event("gemm", 9.7850000000000001, 1.5, correlation_id="7", context_id="$$1"),
        event("MemcpyD2D", 20, 1, memcpy_details=copy),
        event("fusion.1", 9, 3, tid=900),
        event("cuLaunchKernel", 5, 1, HOST, 2**31, correlation_id="7"),
        event("$a.py:1 f", 6, 0.000001, HOST, 2**31),
        event("train", 1, 30, HOST, 2**31, step_num="3"),
    )
    assert named(trace, "device_events", "name", "activity", "stream", "start_ns", "end_ns", "correlation") == [
        ("gemm", "kernel", 13, 9785, 11285, 7),
        ("MemcpyD2D", "memcpy", 13, 20_000, 21_000, None),
    ]
    assert trace.device_events["copy_kind"].to_list() == [None, "DtoD"]
    assert named(trace, "host_events", "name", "category", "thread", "process", "start_ns", "end_ns") == [
        ("cuLaunchKernel", "runtime", 2**31, None, 5000, 6000),
        ("$a.py:1 f", "python", 2**31, None, 6000, 6000),
    ]
    assert named(trace, "annotations", "name", "start_ns", "framework") == [("step[train]#3", 1000, False)]
    assert trace.accounting.dropped == {"metadata": 7, "derived": 1}
    assert (trace.clock, trace.epoch_ns, trace.notes) == ("session", None, ())


@given(st.integers(0, 10**15), st.integers(0, 10**12))
def test_picoseconds_survive_the_decimals(tmp_path_factory, start_ns, duration_ps):
    """Up to eleven days after the profile's start, which is further than any profile goes."""
    start = f"{start_ns // 1000}.{start_ns % 1000:03}"
    document = write(tmp_path_factory.mktemp("one") / "a.json", [event("k", 111.5, 222.5)]).read_text()
    document = document.replace("111.5", start).replace("222.5", f"{duration_ps // 10**6}.{duration_ps % 10**6:06}")
    path = tmp_path_factory.mktemp("one") / "a.json"
    path.write_text(document)
    ((began, ended),) = XlaJson().read(path).device_events.select("start_ns", "end_ns").rows()
    assert began == start_ns
    exact = start_ns + duration_ps // 1000 if duration_ps > 1 else start_ns
    assert 0 <= ended - exact <= 1  # a float of a late start is up to half a nanosecond too small


def test_times_since_the_epoch_keep_what_a_float_holds(tmp_path):
    trace = read(tmp_path, event("k", 1_700_000_000_000_000.25, 2.5))
    assert trace.clock == "unix"
    assert abs(trace.device_events["start_ns"][0] - 1_700_000_000_000_000_250) <= 1


def test_odd_events_are_counted(tmp_path):
    good = event("k", 1, 2)
    bad = [event("k", None, 2), event("k", "x", 2), event("k", 1e300, 2), event("k", 1, -2), event("k", 1, 1e300)]
    kinds = [{**good, "ph": "i"}, {**good, "pid": [1]}, 5]
    trace = read(tmp_path, good, *bad, *kinds)
    counts = trace.accounting
    assert (counts.read, counts.kept) == (len(META) + 1 + len(bad) + len(kinds) + 1, 1)
    assert counts.dropped == {"metadata": 7, "invalid-time": len(bad), "other": 1, "undecodable": 2}


def test_an_event_on_a_line_without_a_name_is_counted(tmp_path):
    trace = read(tmp_path, event("k", 1, 2, pid=5), event("k", 1, 2, tid=5), {**event("x", 1, 1), "name": ""})
    assert trace.accounting.dropped == {"metadata": 7, "other-plane": 1, "derived": 1}
    assert named(trace, "device_events", "name") == [("unknown",)]


def test_events_may_come_in_any_number_of_pieces(tmp_path):
    events = [event(f"k{at % 9}", at, 0.5, correlation_id=str(at + 1)) for at in range(30_000)]
    trace = read(tmp_path, *events)
    assert trace.device_events["start_ns"].to_list() == [at * 1000 for at in range(30_000)]
    assert trace.device_events["correlation"].to_list() == list(range(1, 30_001))


def test_what_the_writer_left_out_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(xla_json, "CAPS", (2,))
    assert read(tmp_path, event("k", 1, 2)).notes == ()
    (note,) = read(tmp_path, event("k", 1, 2), event("k", 4, 2)).notes
    assert note == "has 2 events, the most that its writer keeps: those after them are lost"


def test_without_devices(tmp_path):
    for events in ((), (event("f", 1, 2, HOST, 2**31),)):
        analysis = deepprof.analyze(read(tmp_path, *events))
        assert analysis.no_loop_reason == "the trace holds no GPU kernel; recorded on the CPU only"
    assert read(tmp_path, meta=[]).accounting.dropped == {"metadata": 1}


def test_content_decides(tmp_path):
    ours = write(tmp_path / "a.json", [event("k", 1, 2)])
    packed = tmp_path / "b"
    packed.write_bytes(gzip.compress(ours.read_bytes()))
    for path in (ours, packed):
        assert importers.read(path).format == "xla-json"
    head = ours.read_bytes()
    assert not Kineto().accepts(head, ours)
    kineto = head.replace(b'"metadata"', b'"schemaVersion": 1, "metadata"')
    assert not XlaJson().accepts(kineto, ours)
    for other in (b"", b"[]", b'{"traceEvents": []}', head.replace(b"/device:GPU:0", b"x").replace(b"/host:CPU", b"y")):
        assert not XlaJson().accepts(other, Path("a.trace.json.gz"))


def test_damaged_files_are_read_or_refused_in_one_line(tmp_path):
    events = [event(f"k{at % 3}", at * 2.5, 1.25, correlation_id=str(at), memcpy_details="size:5") for at in range(20)]
    content = write(tmp_path / "a.json", [*events, event("train", 1, 5, HOST, 2**31, step_num="1")]).read_bytes()
    assert survives(XlaJson(), tmp_path / "a.json", content) > 30
    assert survives(XlaJson(), tmp_path / "a.json.gz", gzip.compress(content, mtime=0)) > 30


def test_a_file_that_breaks_off_says_so(tmp_path):
    path = write(tmp_path / "a.json", [event("k", 1, 2)])
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TraceError, match="truncated: its JSON breaks off"):
        XlaJson().read(path)


def test_a_file_made_to_fill_the_memory_is_refused(tmp_path):
    path = tmp_path / "a.json"
    start = json.dumps({"traceEvents": META})[:-2]
    path.write_text(start + ",{}" * 5_000_000 + "]}")
    found = read_within(path, 1024**3)
    assert "is no profile of XLA" in str(found["error"])


TRICKY = ['"},{"', "}, {", '\\"},{', "a", "{},{},"]
SPACED = st.sampled_from([(",", ":"), (", ", ": "), (",\n\t", ":")])


@given(st.lists(st.sampled_from(TRICKY), max_size=30), SPACED, st.integers(1, 200))
def test_pieces_hold_every_event_once(names, separators, nbytes):
    events = [{"ph": "X", "name": name, "ts": at, "args": {"hlo": [{}, {"a": name}]}} for at, name in enumerate(names)]
    text = bytearray(json.dumps({"traceEvents": events, "other": 1}, separators=separators).encode())
    decoder = xla_json_events.ViewerDecoder(Path("a.json"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xla_json_events, "PIECE_NBYTES", nbytes)
        found = list(xla_json_events.decode_pieces(xla_json_events.decode_document(text, Path("a.json")), decoder))
    assert [(event.name, event.ts) for piece in found for event in piece] == [(e["name"], e["ts"]) for e in events]
    assert decoder.read == len(events)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"traceEvents": {}}', "is no profile of XLA: Expected `array`"),
        ('{"events": []}', "is no profile of XLA: .*traceEvents"),
        ('{"traceEvents": [}', "is damaged: its JSON breaks near byte"),
        ('[{"ph": "X"', "is truncated: its JSON breaks off at byte 11"),
        ("", "is truncated"),
    ],
)
def test_documents_of_something_else(tmp_path, text, problem):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=problem):
        XlaJson().read(path)


def test_a_bare_list_is_read_too(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("\ufeff" + json.dumps([*META, event("k", 1, 2)]), encoding="utf-8")
    assert importers.read(path).device_events.height == 1
