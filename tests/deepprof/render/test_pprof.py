"""pprof profiles and collapsed stacks, read back: pprof with the library of Protocol Buffers."""

from __future__ import annotations

import gzip
from collections import Counter
from io import BytesIO
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import deepprof
from deepprof.analysis import Analysis
from deepprof.collectors.trace import Trace
from deepprof.render.collapsed import write_collapsed
from deepprof.render.flame import MEASURES
from deepprof.render.pprof import PprofPeriod, PprofProfile, write_pprof
from tests.metrics.contexts.test_tree import training
from tests.tables import event, make_trace

MESSAGES = {  # of profile.proto: name, number, type (a message's name), and whether there are several
    "Profile": (
        ("sample_type", 1, "ValueType", True),
        ("sample", 2, "Sample", True),
        ("location", 4, "Location", True),
        ("function", 5, "Function", True),
        ("string_table", 6, "string", True),
        ("time_nanos", 9, "int64", False),
        ("duration_nanos", 10, "int64", False),
        ("period_type", 11, "ValueType", False),
        ("period", 12, "int64", False),
        ("comment", 13, "int64", True),
        ("default_sample_type", 14, "int64", False),
    ),
    "ValueType": (("type", 1, "int64", False), ("unit", 2, "int64", False)),
    "Sample": (("location_id", 1, "uint64", True), ("value", 2, "int64", True), ("label", 3, "Label", True)),
    "Label": (("key", 1, "int64", False), ("str", 2, "int64", False)),
    "Location": (("id", 1, "uint64", False), ("line", 4, "Line", True)),
    "Line": (("function_id", 1, "uint64", False), ("line", 2, "int64", False)),
    "Function": (
        ("id", 1, "uint64", False),
        ("name", 2, "int64", False),
        ("filename", 4, "int64", False),
        ("start_line", 5, "int64", False),
    ),
}
TYPES = {"int64": 3, "uint64": 4, "string": 9}


def profile_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="test", syntax="proto3")
    for message, fields in MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, kind, several in fields:
            plain = {"type": TYPES[kind]} if kind in TYPES else {"type": 11, "type_name": f".test.{kind}"}
            described.field.add(name=name, number=number, label=3 if several else 1, **plain)
    pool = descriptor_pool.DescriptorPool()
    return message_factory.GetMessageClass(pool.Add(file).message_types_by_name["Profile"])


def read_pprof(content: bytes) -> Counter[tuple[tuple[str, ...], str]]:
    """Return the value of every type of every stack, the outermost frame first."""
    profile = profile_class().FromString(gzip.decompress(content))
    texts = list(profile.string_table)
    names = {function.id: texts[function.name] for function in profile.function}
    places = {location.id: names[location.line[0].function_id] for location in profile.location}
    found = Counter[tuple[tuple[str, ...], str]]()
    for sample in profile.sample:
        path = tuple(places[each] for each in reversed(sample.location_id))
        for kind, value in zip(profile.sample_type, sample.value, strict=True):
            found[path, texts[kind.type]] += value
    return found


def job(*traces: Trace) -> Analysis:
    return deepprof.analyze(traces)


def test_the_contexts_come_back() -> None:
    analysis, file = job(training()), BytesIO()
    assert write_pprof(analysis.contexts, file) == "10 samples of 9 frames"
    found = read_pprof(file.getvalue())
    for name, measure in MEASURES.items():
        total = analysis.contexts.select(measure.own.sum()).item()
        assert sum(value for (_, kind), value in found.items() if kind == name) == total
    linear = ("thread 1", "step", "Linear_0", "aten::linear")
    assert found[(*linear, "cudaLaunchKernel", "gemm"), "device"] == 100
    assert found[(*linear, "LinearBackward0", "cudaLaunchKernel", "gemm"), "device"] == 140


def test_lines_and_files_are_those_of_the_functions() -> None:
    file = BytesIO()
    write_pprof(job(training()).contexts, file)
    profile = profile_class().FromString(gzip.decompress(file.getvalue()))
    texts = list(profile.string_table)
    (step,) = [each for each in profile.function if texts[each.name] == "step"]
    assert (texts[step.filename], step.start_line) == ("train.py", 5)
    assert texts[profile.default_sample_type] == "device"
    assert texts[0] == ""


@pytest.mark.parametrize("measure", MEASURES)
def test_collapsed_stacks_have_the_same(measure: str) -> None:
    analysis, file, pprof = job(training()), BytesIO(), BytesIO()
    write_collapsed(analysis.contexts, file, MEASURES[measure])
    write_pprof(analysis.contexts, pprof)
    lines = (line.rpartition(" ") for line in file.getvalue().decode().splitlines())
    stacks = Counter({tuple(stack.split(";")): int(value) for stack, _, value in lines})
    expected = Counter({path: value for (path, kind), value in read_pprof(pprof.getvalue()).items() if kind == measure})
    assert {tuple(name.split(" train.py")[0] for name in path): value for path, value in stacks.items()} == +expected


def test_ranks_stand_around_their_contexts() -> None:
    traces = [make_trace([event(0, 0, 5)], rank=rank) for rank in (0, 1)]
    file, pprof = BytesIO(), BytesIO()
    assert write_collapsed(job(*traces).contexts, file, MEASURES["device"]) == "2 stacks by device time"
    assert [line.split(";")[0] for line in file.getvalue().decode().splitlines()] == ["rank 0", "rank 1"]
    write_pprof(job(*traces).contexts, pprof)
    assert {path[0] for path, _ in read_pprof(pprof.getvalue())} == {"rank 0", "rank 1"}


def test_a_name_breaks_no_line() -> None:
    file = BytesIO()
    trace = make_trace([event(0, 0, 5, activity="memset")], names=["a;b\nc 1"])
    write_collapsed(job(trace).contexts, file, MEASURES["device"])
    assert file.getvalue().decode() == "the recording has no launch calls;a:b c 1 5\n"


def test_nothing_is_a_profile_without_samples() -> None:
    file = BytesIO()
    assert write_pprof(job(make_trace()).contexts, file) == "0 samples of 0 frames"
    assert read_pprof(file.getvalue()) == Counter()


@pytest.mark.parametrize("most", [1, 2, 3, 9, 10, 11])
def test_of_too_many_samples_the_smallest_are_one(most: int) -> None:
    contexts = job(training()).contexts
    profile, file = PprofProfile(MEASURES), BytesIO()
    merged = profile.add(contexts, (), {"rank": "0"}, most)
    assert len(profile.samples) == min(most, 10)
    assert merged == (11 - most if most < 10 else 0)
    profile.write(file)
    found = read_pprof(file.getvalue())
    for name, measure in MEASURES.items():
        whole = contexts.select(measure.own.sum()).item()
        assert sum(value for (_, kind), value in found.items() if kind == name) == whole
    assert merged == 0 or any(path == (f"{merged} smaller ones",) for path, _ in found)


def check_invariants(content: bytes) -> Any:
    """Check what profile.proto states of every profile; return it."""
    profile = profile_class().FromString(gzip.decompress(content))
    texts = list(profile.string_table)
    assert texts[0] == ""
    assert len(set(texts)) == len(texts)
    functions, locations = ({each.id for each in some} for some in (profile.function, profile.location))
    assert 0 not in functions | locations
    assert (len(functions), len(locations)) == (len(profile.function), len(profile.location))
    assert {line.function_id for each in profile.location for line in each.line} <= functions
    used = [each.name for each in profile.function] + [each.filename for each in profile.function]
    used += [number for each in (*profile.sample_type, profile.period_type) for number in (each.type, each.unit)]
    used += [number for sample in profile.sample for each in sample.label for number in (each.key, each.str)]
    assert all(0 <= number < len(texts) for number in (*used, *profile.comment, profile.default_sample_type))
    for sample in profile.sample:
        assert len(sample.value) == len(profile.sample_type)
        assert sample.location_id
        assert set(sample.location_id) <= locations
        assert all(each.key and each.str for each in sample.label)
    return profile


def test_a_profile_keeps_what_its_format_demands() -> None:
    profile, file = PprofProfile(MEASURES), BytesIO()
    profile.add(job(training()).contexts, labels={"job_id": "train", "rank": "0"}, most=4)
    profile.write(file, PprofPeriod(5, 7, ["a remark"]))
    found = check_invariants(file.getvalue())
    texts = list(found.string_table)
    assert (found.time_nanos, found.duration_nanos, found.period) == (5, 7, 1)
    assert texts[found.period_type.type] == "device"
    assert [texts[each] for each in found.comment] == ["a remark"]
    file = BytesIO()
    write_pprof(job(training()).contexts, file)
    check_invariants(file.getvalue())
