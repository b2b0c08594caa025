"""`deepprof export --to perfetto`: everything of the trace is in the file once, and no viewer drops any of it."""

import gzip
import io
import json
from collections import Counter, defaultdict

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import deepprof
from deepprof.collectors.trace import MEMORY_EVENTS, Accounting
from deepprof.commands import main
from deepprof.metrics.breakdown.parts import IDLE_PARTS
from deepprof.render.perfetto import write_perfetto
from deepprof.simulation import simulate, write
from tests import manifest
from tests.deepprof.builders import build_analysis, build_finding, build_loop
from tests.deepprof.render.test_lanes import drops
from tests.tables import copy, event, launch, make_trace, span
from tests.widening import first_of_each

FOUND = ("finding", "iteration", "stage", "layer", "section", "nested", "idle")


def export(analysis, **options):
    """The document as written, and what the writer states of it."""
    file = io.BytesIO()
    written = write_perfetto(analysis, file, **options)
    return json.loads(file.getvalue()), written


def slices_of(document):
    """The complete events of a document, with whole nanoseconds from its zero on."""
    found = [e for e in document["traceEvents"] if e["ph"] == "X"]
    for e in found:
        e["start"], e["end"] = round(e["ts"] * 1000), round(e["ts"] * 1000) + round(e["dur"] * 1000)
        assert int(e["ts"] * 1000) == e["start"], "a reader that cuts off loses a nanosecond"
        assert int(e["dur"] * 1000) == e["end"] - e["start"]
    return found


def names_of(document, what="thread_name"):
    """The names of the tracks (or processes) by id."""
    key = "tid" if what == "thread_name" else "pid"
    return {e[key]: e["args"]["name"] for e in document["traceEvents"] if e["ph"] == "M" and e["name"] == what}


def expected(traces, zero):
    """Every event of the traces as (category, name, start, end), counted."""
    rows = Counter()
    for trace in traces:
        tables = [
            (trace.device_events, pl.col("activity").cast(pl.String)),
            (trace.host_events, pl.col("category").cast(pl.String)),
            (trace.annotations, pl.lit("annotation")),
        ]
        for table, category in tables:
            for kind, name, start, end in table.select(
                category.alias("kind"), "name_id", "start_ns", "end_ns"
            ).iter_rows():
                last = max(start, start if end is None else end)
                rows[kind, trace.names[name] or "", start - zero, last - zero] += 1
    return rows


def check(analysis, **options):
    """Assert that the document contains the traces exactly, and return it."""
    document, written = export(analysis, **options)
    slices, zero = slices_of(document), document["otherData"]["zero_ns"]
    own = Counter((e["cat"], e["name"], e["start"], e["end"]) for e in slices if e["cat"] not in FOUND)
    assert own == expected(analysis.traces, zero)
    tracks = defaultdict(list)
    for e in slices:
        tracks[e["tid"]].append((e["start"], e["end"]))
    assert sum(drops(track) for track in tracks.values()) == 0
    assert (written.slices, written.tracks, written.dropped) == (len(slices), len(tracks), 0)
    assert set(tracks) == set(names_of(document))
    assert min((e["start"] for e in slices), default=0) >= 0
    assert {e["pid"] for e in slices} <= set(names_of(document, "process_name"))
    return document


@pytest.mark.traces
@pytest.mark.parametrize("row", first_of_each("format", manifest.rows()))
def test_a_real_trace_is_in_the_file_exactly(row, tmp_path):
    path = manifest.path_of(row)
    try:
        trace = deepprof.read(path)
    except deepprof.TraceError:
        assert main(["export", str(path), "--to", "perfetto", "-o", f"{tmp_path}/out.json"]) == 2
        assert list(tmp_path.iterdir()) == []
        return
    analysis = deepprof.analyze(trace)
    document = check(analysis)
    slices = slices_of(document)
    iterations = [e for e in slices if e["cat"] == "iteration"]
    assert len(iterations) == analysis.iterations.height
    lengths = sum(e["end"] - e["start"] for e in iterations)
    assert lengths == analysis.iterations.select(pl.col("busy_ns") + pl.col("idle_ns")).to_series().sum()
    idle = sum(e["end"] - e["start"] for e in slices if e["cat"] == "idle")
    assert idle == analysis.breakdown.select(IDLE_PARTS).sum_horizontal().sum()


NUMBERS = st.integers(0, 60)
EVENTS = st.lists(st.tuples(NUMBERS, st.integers(0, 15), st.sampled_from([7, 7, 7, 20])), max_size=30)


@given(EVENTS, EVENTS, EVENTS, st.integers(0, 10**18))
def test_whatever_overlaps_is_in_the_file_exactly(kernels, calls, ranges, base):
    trace = make_trace(
        [
            event(i % 3, base + start, base + start + length, stream=stream)
            for i, (start, length, stream) in enumerate(kernels)
        ],
        [
            launch(i, base + start, base + start + length) | {"thread": thread}
            for i, (start, length, thread) in enumerate(calls)
        ],
        [span(1, base + start, base + start + length, thread=thread) for start, length, thread in ranges],
    )
    check(deepprof.analyze(trace), flows=True)


@given(st.lists(st.text(), min_size=1, max_size=5), st.integers(0, 2**40))
def test_names_and_times_are_data(names, start):
    kernels = [event(i, start + i, start + i + 1) for i in range(len(names))]
    document = check(deepprof.analyze(make_trace(kernels, names=names)))
    kept = [e["name"] for e in slices_of(document) if e["cat"] == "kernel"]
    assert kept == names


def test_nothing_at_all():
    document = check(deepprof.analyze(make_trace()))
    assert slices_of(document) == []
    assert names_of(document, "process_name") == {1: "rank 0 host"}


def test_one_event():
    document = check(deepprof.analyze(make_trace([event(0, 5, 9)])))
    assert [(e["name"], e["start"], e["end"]) for e in slices_of(document)] == [("k0", 0, 4)]
    assert document["otherData"] == {"producer": "deepprof", "clock": "unix", "zero_ns": 5}


def test_what_has_no_length_or_no_end_is_a_mark():
    trace = make_trace([event(0, 5, 5)], [launch(1, 2, 3)], [span(1, 4, 4), span(1, 6, 9) | {"end_ns": None}])
    document = check(deepprof.analyze(trace))
    marks = [(e["cat"], e["start"], e["args"].get("closed")) for e in slices_of(document) if e["start"] == e["end"]]
    assert sorted(marks, key=str) == [("annotation", 2, None), ("annotation", 4, False), ("kernel", 3, None)]


def test_kernels_that_overlap_on_a_stream_stand_on_two_lanes():
    document = check(deepprof.analyze(make_trace([event(0, 0, 10), event(1, 5, 15), event(2, 12, 20)])))
    tracks = names_of(document)
    placed = {e["name"]: tracks[e["tid"]] for e in slices_of(document) if e["cat"] == "kernel"}
    assert placed == {"k0": "stream 7 main", "k1": "stream 7 main (2)", "k2": "stream 7 main"}


def job(iterations=8, layers=4):
    """A loop of `layers` equal parts and an optimizer, with a pause behind every iteration."""
    device, host, time, number = [], [], 1_000, 0
    for _ in range(iterations):
        host.append(launch(10_000 + number, time - 300, time - 100, name=9))
        for name in [0, *[1, 2, 3, 4, 5] * layers, 6, 7]:
            number += 1
            host.append(launch(number, time, time + 400, name=8))
            device.append(event(name, time + 5_000, time + 5_900, correlation=number))
            time += 1_000
        device.append(copy(time + 5_000, time + 5_500, 4096, stream=20))
        time += 50_000
    names = ["embed", "norm", "attend", "project", "expand", "shrink", "loss", "adam", "cudaLaunchKernel", "cudaMemcpy"]
    return make_trace(device, host, names=names)


def test_tracks_of_a_job_stand_in_order():
    analysis = deepprof.analyze(job())
    document = check(analysis)
    order = {e["tid"]: e["args"]["sort_index"] for e in document["traceEvents"] if e.get("name") == "thread_sort_index"}
    names = [name for _, name in sorted((order[tid], name) for tid, name in names_of(document).items())]
    wanted = [
        "iterations",
        "stages",
        "layers",
        "nested loops",
        "idle causes",
        "stream 7 main",
        "stream 20 copy",
        "thread 1",
    ]
    assert [name for name in names if name in wanted] == wanted
    assert names_of(document, "process_name") == {1: "rank 0 GPU 0", 2: "rank 0 host"}


def test_iterations_carry_their_numbers():
    analysis = deepprof.analyze(job())
    slices = [e for e in slices_of(check(analysis)) if e["cat"] == "iteration"]
    assert [e["name"] for e in slices] == [f"iteration {i}" for i in range(8)]
    table = analysis.iterations.to_dicts()
    for e, row in zip(slices, table, strict=True):
        assert e["args"]["complete"] is row["complete"]
        assert e["args"]["warmup"] is row["warmup"]
        assert e["args"].get("interval_ns") == row["interval_ns"]
        parts = sum(
            v for k, v in e["args"].items() if k.startswith(("idle_", "exposed_", "compute")) and k != "idle_ns"
        )
        assert parts == e["end"] - e["start"]


def test_stages_and_layers_lie_in_their_iterations():
    analysis = deepprof.analyze(job())
    slices = slices_of(check(analysis))
    (loop,) = analysis.loops
    stages = [e for e in slices if e["cat"] == "stage"]
    assert {e["name"] for e in stages} <= {*loop.anatomy.stages["stage"], "unknown"}
    iterations = [(e["start"], e["end"]) for e in slices if e["cat"] == "iteration"]
    for e in stages:
        assert any(start <= e["start"] and e["end"] <= end for start, end in iterations)
    assert sum(e["args"]["busy_ns"] for e in stages) == loop.table["busy_ns"].sum()
    blocks = [e for e in slices if e["cat"] == "layer"]
    assert {e["name"] for e in blocks} == set(loop.anatomy.layers["name"]) - {""}


def test_every_repetition_of_a_layer_is_in_its_iteration():
    analysis = deepprof.analyze(job())
    (loop,) = analysis.loops
    assert {"events": 5, "repeats": 4} in loop.nested
    document = check(analysis)
    slices = slices_of(document)
    nested = [e for e in slices if e["cat"] == "nested"]
    assert Counter(e["name"] for e in nested) == {"4 times 5 kernels": 8} | {f"{i} of 4": 8 for i in range(1, 5)}
    kernels = {e["start"]: e["name"] for e in slices if e["cat"] == "kernel"}
    firsts = {kernels[e["start"]] for e in nested}
    assert len(firsts) == 1
    for e in nested:
        inside = [name for start, name in kernels.items() if e["start"] <= start < e["end"]]
        assert len(inside) == (5 if " of " in e["name"] else 20)


def test_an_arrow_leads_from_every_launch_to_its_kernel():
    document, written = export(deepprof.analyze(job()), flows=True)
    begins = {e["id"]: e for e in document["traceEvents"] if e["ph"] == "s"}
    ends = {e["id"]: e for e in document["traceEvents"] if e["ph"] == "f"}
    slices = {(e["tid"], e["ts"]): e for e in slices_of(document)}
    assert len(begins) == len(ends) == written.flows == 8 * 23
    for number, begin in begins.items():
        at, to = slices[begin["tid"], begin["ts"]], slices[ends[number]["tid"], ends[number]["ts"]]
        assert at["args"]["correlation"] == to["args"]["correlation"]
    assert not [e for e in export(deepprof.analyze(job()))[0]["traceEvents"] if e["ph"] in "sf"]


def test_counters_say_how_busy_each_iteration_was():
    analysis = deepprof.analyze(job())
    document, written = export(analysis)
    counters = [e for e in document["traceEvents"] if e["ph"] == "C"]
    assert written.counters == len(counters)
    ratios = [e["args"]["value"] for e in counters if e["name"] == "busy ratio"]
    table = analysis.iterations
    assert ratios[:-1] == (table["busy_ns"] / (table["busy_ns"] + table["idle_ns"])).round(4).to_list()
    assert ratios[-1] == 0


def test_counters_say_how_much_memory_is_in_use():
    rows = [{"time_ns": 10 * i, "device": i % 3 - 1, "nbytes": 1, "allocated_nbytes": 2**40 + i} for i in range(6)]
    rows.append({"time_ns": 99, "device": 0, "nbytes": 1})  # the total was not recorded
    memory = pl.DataFrame([{key: row.get(key) for key in MEMORY_EVENTS} for row in rows], schema=MEMORY_EVENTS)
    events = [event(0, 3, 9, device=device) for device in range(2)]
    trace = replace(make_trace(events), memory_events=memory, accounting=Accounting(9, 9))
    document, written = export(deepprof.analyze(trace))
    counters = [e for e in document["traceEvents"] if e["ph"] == "C"]
    places = names_of(document, "process_name")
    assert written.counters == len(counters) == 6
    assert {e["name"] for e in counters} == {"memory in use"}
    assert {(places[e["pid"]][7:], round(1000 * e["ts"]), e["args"]["value"]) for e in counters} == {
        (("host", "GPU 0", "GPU 1")[i % 3], 10 * i, 2**40 + i) for i in range(6)
    }


def test_findings_stand_over_the_iterations_they_name():
    loop = build_loop([1_000_000] * 8)
    named = build_finding(iterations=(2, 4), title='say "when"', evidence={"slope_ns": 5, "absent": None})
    other = build_finding(iterations=None, rank=None, rule="drift")
    first = int(loop.iterations["start_ns"][0])
    trace = make_trace([event(0, first, first + 8_000_000)])
    analysis = build_analysis(traces=(trace,), loops=(loop,), findings=(named, other))
    slices = [e for e in slices_of(check(analysis)) if e["cat"] == "finding"]
    drift, growth = sorted(slices, key=lambda e: e["start"])
    assert (growth["name"], growth["start"], growth["end"]) == ('graph-growth: say "when"', 2_000_000, 5_000_000)
    assert growth["args"]["finding"]["evidence"] == {"slope_ns": 5, "absent": None}
    assert (drift["start"], drift["end"]) == (0, 8_000_000)


def test_findings_of_a_trace_without_devices_stand_with_its_host():
    trace = make_trace(host=[launch(1, 0, 10)])
    document = check(build_analysis(traces=(trace,), loops=(), findings=(build_finding(iterations=None),)))
    (found,) = [e for e in slices_of(document) if e["cat"] == "finding"]
    assert names_of(document, "process_name")[found["pid"]] == "rank 0 host"


def test_ranks_are_processes():
    traces = [make_trace([event(0, 10 * rank, 10 * rank + 5)], rank=rank) for rank in range(3)]
    document = check(deepprof.analyze(traces))
    names = list(names_of(document, "process_name").values())
    assert names == [f"rank {rank} {place}" for rank in range(3) for place in ("GPU 0", "host")]


def test_ranks_with_different_clocks_begin_together():
    base = 1_700_000_000_000_000_000
    session = replace(make_trace([event(0, 7, 12)], rank=1), clock="session")
    document, _ = export(deepprof.analyze([make_trace([event(0, base, base + 5)], rank=0), session]))
    assert [(e["start"], e["end"]) for e in slices_of(document) if e["cat"] == "kernel"] == [(0, 5), (0, 5)]
    about = document["otherData"]
    assert (about["clock"], about["zeros_ns"]) == ("session/unix", {"0": base, "1": 7})


def test_a_packed_file_is_the_same_whenever_it_is_written(tmp_path):
    write(simulate("healthy", iterations=5), tmp_path / "job.json.gz")
    for name in ("a.json.gz", "b.json.gz", "c.json"):
        assert main(["export", f"{tmp_path}/job.json.gz", "--to", "perfetto", "-o", f"{tmp_path}/{name}"]) == 0
    packed = (tmp_path / "a.json.gz").read_bytes()
    assert packed == (tmp_path / "b.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "c.json").read_bytes()
