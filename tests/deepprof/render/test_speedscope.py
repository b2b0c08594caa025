"""`deepprof export --to speedscope`: the rules of its format, and the times that the template must have."""

import io
import json
from dataclasses import replace

import polars as pl
import pytest

import deepprof
from deepprof.commands import main
from deepprof.metrics.breakdown.parts import PART_NAMES
from deepprof.render.speedscope import SCHEMA, write_speedscope
from tests import manifest
from tests.deepprof.builders import build_analysis, build_loop
from tests.deepprof.render.test_perfetto import job
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
        check(profile, len(frames))
    return document


def check(profile, frames):
    assert profile["type"] == "evented"
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


def test_a_loop_without_kernels_in_the_trace_has_no_profile():
    analysis = build_analysis(loops=(build_loop(),))
    assert export(analysis)["profiles"] == []


def test_every_rank_has_its_profiles():
    analysis = deepprof.analyze([replace(job(), rank=rank) for rank in range(2)])
    names = [profile["name"] for profile in export(analysis)["profiles"]]
    assert [name[:6] for name in names] == ["rank 0", "rank 0", "rank 1", "rank 1"]


def test_a_trace_without_iterations_is_one_line(tmp_path, capsys, monkeypatch):
    short = deepprof.analyze(make_trace([event(0, 5, 9)]))
    monkeypatch.setattr("deepprof.commands.export.analyze_paths", lambda args, **_: short)
    for target in ("speedscope", "csv", "parquet"):
        assert main(["export", "x", "--to", target, "-o", f"{tmp_path}/out"]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "no iteration found" in said
        assert "--to perfetto" in said
    assert main(["export", "x", "--to", "perfetto", "-o", f"{tmp_path}/out"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.traces
@pytest.mark.parametrize("row", first_of_each("format", manifest.rows()))
def test_the_iteration_of_a_real_trace(row):
    try:
        trace = deepprof.read(manifest.path_of(row))
    except deepprof.TraceError:
        return
    analysis = deepprof.analyze(trace)
    document = export(analysis)
    assert len(document["profiles"]) == 2 * len(analysis.loops)
    for number, loop in enumerate(analysis.loops):
        rows = loop.usual if loop.usual.height else loop.table
        lengths = rows["busy_ns"] + rows["idle_ns"]
        # Medians of positions add up to no iteration's time, but to none beyond all of them either.
        assert 0.95 * lengths.min() <= document["profiles"][2 * number]["endValue"] <= 1.05 * lengths.max()
