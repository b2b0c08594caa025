"""Real profiles: those of the manifest, and one that JAX writes here, in both of its formats."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import deepprof
from deepprof.collectors import importers
from deepprof.collectors.importers.directories import list_traces
from deepprof.collectors.importers.files import read_head
from deepprof.collectors.importers.xla.viewer import XlaJson
from deepprof.collectors.importers.xla.xplane import XPlane
from tests import manifest
from tests.collectors import jax_programs
from tests.collectors.damage import survives

# Period, iterations, devices.
LOOPS = {
    "tl-jax-conv-08": (5, 5, range(8)),
    "tl-jax08-attention": (29, 3, range(1)),
    "tl-jax-conv-legacy": (5, 5, range(7, 8)),
}
DERIVED = {"xprof-gpu-multiworker": 6_216}  # events of lines that sum up others
OTHER_NAMES = {"xprof-gpu-multiworker"}  # operators have a name for the viewer, which JAX's own reader does not show
PROFILES = manifest.rows("xplane-pb")


@pytest.mark.traces
@pytest.mark.parametrize("row", PROFILES)
def test_nothing_of_a_profile_is_dropped_but_sums(traces, row):
    trace = importers.read(manifest.path_of(row))
    assert trace.format == "xplane"
    assert sum(trace.accounting.dropped.values()) == DERIVED.get(row["file"].split("/")[0], 0)
    assert set(trace.accounting.dropped) <= {"derived"}


@pytest.mark.widens(3)
@pytest.mark.traces
@pytest.mark.parametrize("row", PROFILES)
def test_jax_s_own_reader_sees_the_same(traces, row):
    path = manifest.path_of(row)
    trace, seen = importers.read(path), jax_programs.list_events(path)
    assert trace.accounting.read == len(seen)
    device = [one for one in seen if one[1].startswith("Stream")]
    expected = Counter((one[0], one[2].removesuffix(".kd"), round(one[3]), round(one[4])) for one in device)
    rows = named(trace, "device_events").select(
        pl.format("/device:GPU:{}", "device"), "name", "start_ns", pl.col("end_ns") - pl.col("start_ns")
    )
    assert Counter(rows.rows()) == expected
    calls = trace.host_events.filter(pl.col("category") == "runtime")
    assert calls.height == sum(one[0] == "/host:CPU" and "correlation_id" in one[5] for one in seen)
    assert trace.memory_events.height == sum(one[2].startswith("Memory") for one in seen)


@pytest.mark.traces
@pytest.mark.parametrize("row", PROFILES)
def test_loops_of_real_profiles(traces, row):
    analysis = deepprof.analyze(importers.read(manifest.path_of(row)))
    period, iterations, devices = LOOPS.get(row["file"].split("/")[0], (0, 0, range(0)))
    assert [loop.period for loop in analysis.loops] == [period] * len(devices)
    assert [int(loop.iterations["complete"].sum()) for loop in analysis.loops] == [iterations] * len(devices)
    assert sorted(loop.device for loop in analysis.loops) == list(devices)
    assert (analysis.no_loop_reason is None) == bool(len(devices))


@pytest.mark.widens(3)
@pytest.mark.traces
@pytest.mark.parametrize("row", PROFILES)
def test_the_viewer_s_copy_of_a_real_profile_gives_the_same_devices(traces, row, tmp_path):
    """The copy is not in the collection: it is made here as the profiler makes it."""
    path = manifest.path_of(row)
    (tmp_path / "a.trace.json").write_text(as_viewer(jax_programs.list_events(path)))
    whole, copy = importers.read(path), importers.read(tmp_path / "a.trace.json")
    assert (whole.format, copy.format) == ("xplane", "xla-json")
    assert in_order(whole, "device_events").equals(in_order(copy, "device_events"))
    assert whole.memory_events.height > copy.memory_events.height == 0
    without = ("name", "category") if row["file"].split("/")[0] in OTHER_NAMES else ()
    host = (in_order(trace, "host_events", "thread").drop(without) for trace in (whole, copy))
    assert next(host).equals(next(host))


@pytest.mark.traces
@pytest.mark.parametrize("row", manifest.rows())
def test_files_of_other_formats_are_not_accepted(traces, row):
    path = manifest.path_of(row)
    head = read_head(path)
    assert XPlane().accepts(head, path) == (row["format"] == "xplane-pb")
    assert not XlaJson().accepts(head, path)


@pytest.mark.traces
def test_damaged_real_profiles(traces, tmp_path):
    content = (traces / "tl-jax08-gemm/tw003.xplane.pb").read_bytes()
    assert survives(XPlane(), tmp_path / "a.xplane.pb", content) > 30
    (tmp_path / "b.xplane.pb").write_bytes(content.decode(errors="replace").encode())
    with pytest.raises(deepprof.TraceError, match="every byte that is no text is lost"):
        importers.read(tmp_path / "b.xplane.pb")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory) -> Path:
    """Return the directory with a profile of a short run on the CPU, made once."""
    folder = tmp_path_factory.mktemp("jax")
    jax_programs.run(jax_programs.TRAIN, folder)
    return folder


def test_a_run_in_two_formats_gives_the_same_tables(recorded):
    (path,) = list_traces(recorded).traces
    assert path.name.endswith(".xplane.pb")
    (other,) = path.parent.glob("*.trace.json.gz")
    whole, copy = importers.read(path), importers.read(other)
    assert (whole.format, copy.format) == ("xplane", "xla-json")
    # Both formats have picoseconds, so that times are the same to the nanosecond; the process is a number of the
    # viewer's own there, which is left out, and the profile's epoch is not written.
    for table in ("host_events", "annotations"):
        assert in_order(whole, table).equals(in_order(copy, table))
        assert copy_is_without_process(copy, table)
    assert whole.accounting.read == copy.accounting.read - copy.accounting.dropped["metadata"]
    assert (whole.accounting.dropped, set(copy.accounting.dropped)) == ({}, {"metadata"})
    assert whole.epoch_ns is not None
    assert copy.epoch_ns is None
    assert {"op", "python"} <= set(whole.host_events["category"])
    steps = in_order(whole, "annotations")
    assert steps["name"].to_list() == [f"step[train]#{number}" for number in range(5)]
    assert steps["start_ns"].to_list() == sorted(one[3] for one in jax_programs.list_events(path) if one[2] == "train")


def test_a_run_on_the_cpu_has_no_kernel_and_says_so(recorded):
    for trace in map(importers.read, recorded.glob("plugins/profile/*/*")):
        reason = deepprof.analyze(trace).no_loop_reason
        assert reason == "the trace holds no GPU kernel; recorded on the CPU only"


def named(trace, table):
    rows = getattr(trace, table)
    return rows.with_columns(name=trace.names.gather(rows["name_id"]))


def in_order(trace, table, *without):
    """Return a table with names for ids, in an order that does not depend on the file's."""
    rows = named(trace, table).drop("name_id", "process", *without, strict=False)
    return rows.sort("start_ns", "end_ns", "name", *(column for column in ("correlation", "thread") if column in rows))


def copy_is_without_process(copy, table):
    return getattr(copy, table)["process"].null_count() == getattr(copy, table).height


INTERNAL = ("MemoryAllocation", "MemoryDeallocation")  # which the profiler keeps from the viewer


def as_viewer(events):
    """Return the document that the profiler writes for the viewer."""
    lines = {line: at for at, line in enumerate(dict.fromkeys((one[0], one[1]) for one in events))}
    planes = {plane: at for at, plane in enumerate(dict.fromkeys(plane for plane, _ in lines))}
    named = [("process_name", planes[plane], 0, plane) for plane in planes]
    named += [("thread_name", planes[line[0]], at, line[1]) for line, at in lines.items()]
    document = [{"ph": "M", "pid": p, "tid": t, "name": kind, "args": {"name": n}} for kind, p, t, n in named]
    for plane, line, name, start, duration, stats in events:
        if name not in INTERNAL:
            place = {"pid": planes[plane], "tid": lines[plane, line], "name": name, "args": stats}
            document.append({"ph": "X", "ts": start / 1000, "dur": max(duration / 1000, 1e-6), **place})
    return json.dumps({"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*document, {}]})


def test_the_copy_made_here_is_like_the_real_one(recorded):
    (path,) = recorded.glob("plugins/profile/*/*.xplane.pb")
    (other,) = path.parent.glob("*.trace.json.gz")
    real = json.loads(gzip.decompress(other.read_bytes()))["traceEvents"]
    made = json.loads(as_viewer(jax_programs.list_events(path)))["traceEvents"]
    for key in ("name", "ts", "dur"):
        values = [sorted(one[key] for one in events if one.get("ph") == "X") for events in (real, made)]
        assert values[0] == (values[1] if key == "name" else pytest.approx(values[1]))
    assert real[-1] == made[-1] == {}
