"""The Kineto importer on real files, counted again independently, and on damaged ones."""

import csv
import gzip
import json
import warnings
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import read_head
from deepprof.collectors.importers.kineto import Kineto
from deepprof.collectors.trace import Trace
from tests.chance import examples

SMALL = "hta-event-sync/event_sync_trace.json.gz"
HAND_MADE = json.dumps(
    {
        "schemaVersion": 1,
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "distributedInfo": {"rank": 0, "world_size": 2},
        "deviceProperties": [{"id": 0, "name": "GPU", "totalGlobalMem": 5, "numSms": 3}],
        "traceEvents": [
            {
                "ph": "X",
                "cat": cat,
                "name": "Memcpy HtoD",
                "pid": 1,
                "tid": "stream 7",
                "ts": 5.125,
                "dur": 1.5,
                "args": args,
            }
            for cat in ("kernel", "gpu_memcpy", "cpu_op", "cuda_runtime", "python_function", "gpu_user_annotation")
            for args in ({}, {"device": 0, "stream": 7, "correlation": 9, "bytes": 3, "External id": 4})
        ],
    }
).encode()


def kineto_rows(traces):
    with (traces / "manifest.csv").open() as manifest:
        return [row for row in csv.DictReader(manifest) if row["format"] == "kineto-json"]


def read_whatever(path):
    """Return the trace or the error's text; anything else is a failure of the importer."""
    try:
        return Kineto().read(path, details=True)
    except TraceError as error:
        return str(error)


@pytest.mark.traces
def test_every_real_file_reads_and_counts_as_the_manifest_says(traces):
    files = kineto_rows(traces)
    assert len(files) > 20
    for row in files:
        path = traces / row["file"]
        assert Kineto().accepts(read_head(path), path), path
        trace = Kineto().read(path)
        accounting = trace.accounting
        assert accounting.read == accounting.kept + sum(accounting.dropped.values()), path
        assert not accounting.dropped.keys() - {"metadata", "flow", "profiler", "counter", "other-device"}, path
        kernels = trace.device_events.filter(activity="kernel")
        counts = kernels.height, kernels.select("device", "stream").n_unique() if kernels.height else 0
        assert counts == (int(row["kernels"]), int(row["streams"])), path
        assert bool(trace.notes) == (not kernels.height), path


@pytest.mark.traces
@pytest.mark.parametrize("name", ["hta-nccl-parser/nccl_data.json.gz", "tl-resnet-ckpt/resnet_act_checkpoint.json.gz"])
def test_an_independent_count_agrees(traces, name):
    with gzip.open(traces / name) as file:
        document = json.load(file, parse_float=Decimal)  # a float times 1000 is not exact
    events = document["traceEvents"]
    trace = Kineto().read(traces / name)
    activities = trace.device_events["activity"].cast(str)
    cats = Counter(event.get("cat") for event in events)
    expected = {"kernel": cats["kernel"], "memcpy": cats["gpu_memcpy"], "memset": cats["gpu_memset"]}
    assert Counter(activities) == expected
    base = document["baseTimeNanoseconds"]
    starts = sorted(base + round(event["ts"] * 1000) for event in events if event.get("cat") == "kernel")
    assert trace.device_events.filter(activity="kernel")["start_ns"].to_list() == starts
    launches = {e["args"]["correlation"] for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    device = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    unlinked = sum(e["args"]["correlation"] not in launches for e in device)
    assert trace.accounting.flagged.get("unlinked", 0) == unlinked
    assert trace.world_size == document["distributedInfo"]["world_size"]


@pytest.mark.traces
def test_details_of_a_real_file(traces):
    path = traces / "tb-resnet50-nw0-c/worker0.1623143089861.pt.trace.json.gz"
    plain, detailed = Kineto().read(path), Kineto().read(path, details=True)
    assert plain.host_events.drop("stack_id").equals(detailed.host_events.drop("stack_id"))
    assert detailed.host_events["stack_id"].max() == detailed.stacks.height - 1
    assert json.loads(detailed.operands["dims"][0]) == [[], [], [], [], []]
    assert plain.memory_events.height == 12838


@pytest.mark.traces
def test_same_stream_overlap_of_dependent_launches_is_counted(traces):
    trace = Kineto().read(traces / "tl-b200-eager/eager_trace.json.gz")
    assert trace.accounting.flagged == {"overlapping": 74}


@pytest.mark.traces
def test_a_truncated_real_file_is_one_line(traces, tmp_path):
    content = (traces / SMALL).read_bytes()
    for name, cut in (("a.json.gz", content[:-100]), ("b.json", gzip.decompress(content)[:-100])):
        path = tmp_path / name
        path.write_bytes(cut)
        assert "is truncated: its" in read_whatever(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is truncated: its JSON breaks off at byte 0"),
        (HAND_MADE[:-3], f"is truncated: its JSON breaks off at byte {len(HAND_MADE) - 3}"),
        (HAND_MADE.replace(b'"ph"', b"ph", 1), f"is damaged: its JSON breaks near byte {HAND_MADE.index(b'ph') - 1}"),
        (HAND_MADE + b"]", f"is damaged: its JSON breaks near byte {len(HAND_MADE) + 1}"),
        (b"[" * 100_000, "is truncated: its JSON breaks off at byte 100000"),
        (b'{"traceEvents": {}}', "is no Kineto trace"),
        (b'{"events": []}', "is no Kineto trace"),
        (b"17", "is no Kineto trace"),
        (b"[yes, 1]", "is damaged: its JSON breaks near byte 1"),
    ],
)
def test_what_is_no_trace_says_why(tmp_path, content, message):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        Kineto().read(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "trace.json"


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(HAND_MADE) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_flipped_bytes_give_a_trace_or_an_error(scratch, flips):
    content = bytearray(HAND_MADE)
    for position, value in flips:
        content[position] = value
    scratch.write_bytes(content)
    found = read_whatever(scratch)
    assert isinstance(found, Trace) or "\n" not in found


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, len(HAND_MADE) - 1), st.booleans())
def test_cut_content_is_an_error(scratch, cut, compressed):
    content = gzip.compress(HAND_MADE) if compressed else HAND_MADE
    scratch.write_bytes(content[: cut * len(content) // len(HAND_MADE)])
    assert isinstance(read_whatever(scratch), str)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.integers(2**62, 2**70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
CATS = ["kernel", "gpu_memcpy", "cuda_sync", "cpu_op", "Operator", "cuda_runtime", "python_function", "Trace"]
ARGS = ["device", "stream", "context", "correlation", "bytes", "External id", "Sequence number", "Python id", "flops"]
ARGS += [
    "Bytes",
    "Device Type",
    "Device Id",
    "Input Dims",
    "Call stack",
    "Collective name",
    "Group size",
    "graph node id",
]
EVENTS = st.fixed_dictionaries(
    {"ph": st.sampled_from("XXXXiM"), "cat": st.sampled_from([*CATS, "user_annotation", "gpu_user_annotation"])},
    optional={
        "name": st.just("[memory]") | VALUES,
        "pid": st.integers(0, 9) | VALUES,
        "tid": st.integers(0, 9) | VALUES,
        "ts": st.floats(0, 1e6) | VALUES,
        "dur": st.floats(0, 1e6) | VALUES,
        "args": st.dictionaries(st.sampled_from(ARGS), VALUES, max_size=8) | VALUES,
    },
)


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(EVENTS, max_size=8), VALUES, st.booleans())
def test_wrong_types_give_a_trace_that_accounts_for_every_event(scratch, events, odd, details):
    document = {"traceEvents": events, "baseTimeNanoseconds": odd, "deviceProperties": [odd], "distributedInfo": odd}
    scratch.write_text(json.dumps(document))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace = Kineto().read(scratch, details=details)
    assert trace.accounting.read == len(events)
