"""`deepprof export --to speedscope`: the rules of its format, and the times that the template must have."""

import io
import json

import polars as pl
import pytest
from msgspec.structs import replace

import deepprof
from deepprof.commands import main
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.render.flame import MEASURES
from deepprof.render.pprof import write_pprof
from deepprof.render.speedscope import SCHEMA, write_speedscope
from tests import manifest
from tests.deepprof.builders import build_analysis, build_loop
from tests.deepprof.render.test_perfetto import job
from tests.deepprof.render.test_pprof import read_pprof
from tests.metrics.contexts.test_tree import training
from tests.tables import event, launch, make_trace
from tests.widening import first_of_each


def export(analysis):
    """The document, checked against the rules of the format."""
    file = io.BytesIO()
    write_speedscope(analysis, file)
    document = json.loads(file.getvalue())
    assert document["$schema"] == SCHEMA
    frames = document["shared"]["frames"]
    assert all(isinstance(frame["name"], str) for frame in frames)
    for profile in document["profiles"]:
        {"evented": check, "sampled": check_samples}[profile["type"]](profile, len(frames))
    return document


def check_samples(profile, frames):
    assert profile["unit"] in {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}
    assert len(profile["samples"]) == len(profile["weights"])
    assert all(stack and all(0 <= frame < frames for frame in stack) for stack in profile["samples"])
    assert all(weight > 0 for weight in profile["weights"])
    assert (profile["startValue"], profile["endValue"]) == (0, sum(profile["weights"]))


def check(profile, frames):
    assert profile["unit"] in {"none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"}
    stack, now = [], profile["startValue"]
    for e in profile["events"]:
        assert 0 <= e["frame"] < frames
        assert e["at"] >= now
        now = e["at"]
        if e["type"] == "O":
            stack.append(e["frame"])
        else:
            assert (e["type"], stack.pop()) == ("C", e["frame"])
    assert not stack
    assert now == profile["endValue"]


def own_times(document, number):
    """Time per stack of names in which its last frame is on top."""
    names = [frame["name"] for frame in document["shared"]["frames"]]
    found, stack, since = {}, [], 0
    for e in document["profiles"][number]["events"]:
        key = tuple(stack)
        found[key] = found.get(key, 0) + e["at"] - since
        since = e["at"]
        if e["type"] == "O":
            stack.append(names[e["frame"]])
        else:
            stack.pop()
    return {key: time for key, time in found.items() if time}


def with_operators(iterations=6):
    """Iterations of three kernels launched within operators within operators, 100 ns apart."""
    device, host, correlation = [], [], 0
    for i in range(iterations):
        base = 100_000 * i
        host.append(launch(0, base, base + 900, name=10) | {"category": "op", "correlation": None})
        host.append(launch(0, base + 100, base + 500, name=11) | {"category": "op", "correlation": None})
        for place, time in enumerate((200, 300, 700, 950, 980, 990)):
            correlation += 1
            host.append(launch(correlation, base + time, base + time + 5, name=12))
            start = base + 2_000 + 1_000 * place
            device.append(event(place, start, start + 900 + i, correlation=correlation))
    names = ["a", "b", "c", "d", "void ns::e<float>(int)", "f", "", "", "", "", "model", "linear", "cudaLaunchKernel"]
    return deepprof.analyze(make_trace(device, host, names=names))


def test_kernels_stand_in_the_operators_that_launched_them():
    analysis = with_operators()
    (loop,) = analysis.loops
    first = loop.usual["index"][0]
    times = own_times(export(analysis), 0)
    kernels = {key[1:]: time for key, time in times.items() if key[-1] in "abcdef"}
    assert set(kernels) == {("model", "linear", "a"), ("model", "linear", "b"), ("model", "c"), ("d",), ("e",), ("f",)}
    assert all(900 + first <= time <= 906 for time in kernels.values())


def test_times_are_medians_of_each_position():
    analysis = deepprof.analyze(job())
    document = export(analysis)
    (loop,) = analysis.loops
    profile = document["profiles"][0]
    assert profile["endValue"] == loop.usual.select(pl.col("operation_ns") + pl.col("interval_ns")).to_series()[0]
    times = own_times(document, 0)
    assert sum(time for key, time in times.items() if key[-1] == "attend") == 4 * 900
    assert ("iteration", "4 times 5 kernels", "5 kernels") in {key[:3] for key in times}


def test_the_second_profile_adds_the_parts_up():
    analysis = deepprof.analyze(job())
    times = own_times(export(analysis), 1)
    (loop,) = analysis.loops
    medians = {part.removesuffix("_ns").replace("_", " "): round(loop.usual[part].median()) for part in PART_NAMES}
    assert {key[-1]: time for key, time in times.items()} == {part: time for part, time in medians.items() if time}


def sampled(document):
    return {each["name"]: each for each in document["profiles"] if each["type"] == "sampled"}


def stacks_of(document, profile):
    """The weight of every stack of names, the outermost first."""
    names = [frame["name"] for frame in document["shared"]["frames"]]
    pairs = zip(profile["samples"], profile["weights"], strict=True)
    return {tuple(names[frame] for frame in stack): weight for stack, weight in pairs}


def test_the_contexts_have_a_profile_of_each_measure():
    analysis = deepprof.analyze(training())
    document = export(analysis)
    profiles = sampled(document)
    for measure in MEASURES.values():
        total = analysis.contexts.select(measure.own.sum()).item()
        assert total == analysis.contexts.select(measure.whole).row(0)[0]
        profile = profiles.pop(f"calling contexts: {measure.title}", None)
        assert (profile["endValue"] if profile else 0) == total
    assert not profiles


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("name", MEASURES)
def test_the_stacks_are_those_of_the_other_formats(name, ranks):
    analysis = deepprof.analyze([replace(training(), rank=rank) for rank in range(ranks)])
    document, pprof, measure = export(analysis), io.BytesIO(), MEASURES[name]
    write_pprof(analysis.contexts, pprof)
    expected = {path: value for (path, kind), value in read_pprof(pprof.getvalue()).items() if kind == name and value}
    profile = sampled(document).get(f"calling contexts: {measure.title}")
    assert (stacks_of(document, profile) if profile else {}) == expected


def test_frames_have_the_places_of_functions():
    frames = export(deepprof.analyze(training()))["shared"]["frames"]
    assert {"name": "step", "file": "train.py", "line": 5} in frames
    assert {"name": "aten::linear"} in frames


def test_what_lies_in_one_frame_is_side_by_side():
    document = export(deepprof.analyze(training()))
    for profile in sampled(document).values():
        seen, before = set(), ()
        for path in map(tuple, profile["samples"]):
            opened = {path[:end] for end in range(1, len(path)) if path[:end] != before[:end]}
            assert not opened & seen
            seen |= {path[:end] for end in range(1, len(path) + 1)}
            before = path


def test_the_smallest_stacks_are_put_together_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr("deepprof.render.speedscope_contexts.MOST_REFERENCES", 12)
    analysis, file = deepprof.analyze(training()), io.BytesIO()
    whole = analysis.contexts["device_ns"][0]
    document = export(analysis)
    stacks = stacks_of(document, sampled(document)["calling contexts: device time"])
    (others,) = [path for path in stacks if path[-1].endswith("smaller ones")]
    assert sum(stacks.values()) == whole
    assert all(weight >= 100 for path, weight in stacks.items() if path != others)
    assert sum(map(len, stacks)) - 1 <= 12
    assert "small stacks put together)" in write_speedscope(analysis, file)


def test_names_of_contexts_are_text_of_a_bounded_length():
    name = "a\x1b[31m\u202e" + "b" * 5_000
    document = export(deepprof.analyze(make_trace([event(0, 0, 5, activity="memset")], names=[name])))
    (shown,) = [frame["name"] for frame in document["shared"]["frames"] if frame["name"].startswith("a")]
    assert shown.isprintable()
    assert 990 < len(shown) <= 1_000


def test_nothing_recorded_is_a_document_without_profiles():
    assert export(deepprof.analyze(make_trace()))["profiles"] == []


def test_a_loop_without_kernels_in_the_trace_has_no_profile():
    analysis = build_analysis(loops=(build_loop(),))
    assert export(analysis)["profiles"] == []


def test_every_rank_has_its_profiles():
    analysis = deepprof.analyze([replace(job(), rank=rank) for rank in range(2)])
    names = [profile["name"] for profile in export(analysis)["profiles"] if profile["type"] == "evented"]
    assert [name[:6] for name in names] == ["rank 0", "rank 0", "rank 1", "rank 1"]


def test_a_trace_without_iterations_is_one_line(tmp_path, capsys, monkeypatch):
    short = deepprof.analyze(make_trace([event(0, 5, 9)]))
    monkeypatch.setattr("deepprof.commands.export.analyze_paths", lambda args, **_: short)
    for target in ("csv", "parquet"):
        assert main(["export", "x", "--to", target, "-o", f"{tmp_path}/out"]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "no iteration found" in said
        assert "--to perfetto" in said
    for target in ("perfetto", "speedscope"):
        assert main(["export", "x", "--to", target, "-o", f"{tmp_path}/out"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_stacks_are_read_where_they_are_asked_for(tmp_path, monkeypatch):
    asked = []

    def analyze(args, details):
        asked.append(details)
        return deepprof.analyze(training())

    monkeypatch.setattr("deepprof.commands.export.analyze_paths", analyze)
    for more in ([], ["--stacks"]):
        assert main(["export", "x", "--to", "speedscope", "-o", f"{tmp_path}/out", *more]) == 0
    assert asked == [None, True]


@pytest.mark.traces
@pytest.mark.parametrize("row", first_of_each("format", manifest.rows()))
def test_the_iteration_of_a_real_trace(row):
    try:
        trace = deepprof.read(manifest.path_of(row))
    except deepprof.TraceError:
        return
    analysis = deepprof.analyze(trace)
    document = export(analysis)
    assert len(document["profiles"]) - len(sampled(document)) == 2 * len(analysis.loops)
    device = sampled(document).get("calling contexts: device time", {"endValue": 0})
    assert device["endValue"] == analysis.contexts["own_device_ns"].sum()
    for number, loop in enumerate(analysis.loops):
        rows = loop.usual if loop.usual.height else loop.table
        lengths = rows["busy_ns"] + rows["idle_ns"]
        # Medians of positions add up to no iteration's time, but to none beyond all of them either.
        assert 0.95 * lengths.min() <= document["profiles"][2 * number]["endValue"] <= 1.05 * lengths.max()
