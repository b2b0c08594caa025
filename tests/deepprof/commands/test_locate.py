"""`deepprof locate`, as its users call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import deepprof
from deepprof.commands import main

KERNELS = ("kernel", "graph")


def located(capsys: pytest.CaptureFixture[str], *args: object) -> dict[str, Any]:
    assert main(["locate", *map(str, args), "--format", "json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["schema"] == "deepprof.locate/1"
    return report


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("most-called", pl.len()),
        ("longest", pl.col("ns").sum()),
        ("own:device_ns/calls", pl.col("ns").mean()),
        ("own:max_ns - min_ns", pl.col("ns").max() - pl.col("ns").min()),
    ],
)
def test_it_names_the_kernels_with_the_largest_values(
    recorded: Path, capsys: pytest.CaptureFixture[str], what: str, value: pl.Expr
) -> None:
    report = located(capsys, what, recorded, "--top", 5)
    trace = deepprof.read(recorded)
    events = trace.device_events.filter(pl.col("activity").is_in(KERNELS))
    rows = events.with_columns(name=trace.names.gather(events["name_id"]), ns=pl.col("end_ns") - pl.col("start_ns"))
    values = dict(rows.group_by("name").agg(value.cast(pl.Float64).alias("value")).rows())
    found = report["located"]
    assert [each["value"] for each in found] == pytest.approx(sorted(values.values(), reverse=True)[:5])
    assert [values[each["name"]] for each in found] == pytest.approx([each["value"] for each in found])
    assert report["total"] == len(values)
    for each in found:
        assert (each["stack"][0]["kind"], each["stack"][-1]["name"]) == ("thread", each["name"])
        assert each["stack_calls"] <= each["calls"]


def test_copies_count_where_bytes_do(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = located(capsys, "most-bytes", recorded, "--top", 99)
    trace = deepprof.read(recorded)
    moved = trace.device_events.group_by("name_id").agg(pl.col("nbytes").sum()).filter(pl.col("nbytes") > 0)
    assert [each["value"] for each in report["located"]] == moved["nbytes"].sort(descending=True).to_list()
    assert report["notes"] == [
        "the bytes of kernels are not known: no shapes of operators are recorded (record_shapes=True)"
    ]


def test_text_has_the_numbers_and_the_stack(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["locate", "most-called", str(recorded), "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "vectorized_elementwise_kernel"
    assert " calls · " in lines[1]
    assert sum(not line for line in lines) == 1
    assert [line.split()[0] for line in lines if line.startswith("    ")][-1] == "kernel"


def test_a_part_can_be_asked(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = located(capsys, "longest", recorded)["located"][0]
    part = located(capsys, "longest", recorded, "--iterations", "3:5")["located"][0]
    assert 0 < part["calls"] < whole["calls"]


MEMORY = """{"schemaVersion": 1, "traceEvents": [
{"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 1, "tid": 1, "ts": 10, "dur": 50,
 "args": {"External id": 1}},
{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 5,
 "args": {"device": 0, "stream": 7, "External id": 1}},
%s]}"""
ROW = (
    '{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": %d, "args": '
    '{"Total Reserved": 9000, "Total Allocated": %d, "Bytes": %d, "Addr": %d, "Device Id": 0, "Device Type": 1}}'
)


def test_memory_at_the_peak_is_told_by_operator_and_size(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [(15, 5500, 500, 1), (16, 6000, 500, 2), (17, 6300, 300, 3), (18, 5800, -500, 1), (70, 5900, 100, 4)]
    path = tmp_path / "memory.json"
    path.write_text(MEMORY % ",\n".join(ROW % row for row in rows))
    report = located(capsys, "most-memory", path, "--top", 3)
    told = [(each["name"], each["piece_nbytes"], each["calls"], each["nbytes"]) for each in report["located"]]
    assert told == [("aten::empty", 500, 2, 1000), ("aten::empty", 300, 1, 300)]
    assert report["in_use_nbytes"] == 6300
    assert [each["kind"] for each in report["located"][0]["stack"]] == ["thread", "operator"]
    assert main(["locate", "most-memory", str(path)]) == 0
    text = capsys.readouterr().out.replace("\n", " ")
    assert "aten::empty, pieces of 500 B" in text
    assert "at the peak 6.15 KiB are in use, of which 4.88 KiB were allocated before the recording began" in text


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("most", "'most' is none of most-called, longest, most-bytes, most-memory and own:EXPRESSION"),
        ("own:calls**2", "calls ** 2 is not allowed; use numbers, + - * / ( ) and the columns calls, device_ns,"),
        (
            "own:calls/0",
            "own:calls/0 has no value for any kernel: it divides by zero, or what it needs is not recorded;",
        ),
        ("most-memory", "has no allocations with their addresses"),
    ],
)
def test_what_cannot_be_said_is_one_line(
    recorded: Path, capsys: pytest.CaptureFixture[str], what: str, told: str
) -> None:
    assert main(["locate", what, str(recorded)]) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)


def test_another_rank_is_refused(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["locate", "longest", str(recorded), "--rank", "3"]) == 2
    assert "--rank 3: there is no such rank; there are 0 to 0" in capsys.readouterr().err


def test_a_trace_without_kernels_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text(MEMORY.replace('"cat": "kernel"', '"cat": "cpu_op"') % (ROW % (1, 2, 2, 3)))
    assert main(["locate", "longest", str(path)]) == 2
    assert "has no kernel or copy" in capsys.readouterr().err


def test_a_real_trace_shows_the_way_from_python_to_the_device(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = traces / "tl-resnet-ckpt" / "resnet_act_checkpoint.json.gz"
    (found,) = located(capsys, "own:nbytes/device_ns", path)["located"]
    kinds = [frame["kind"] for frame in found["stack"]]
    assert [kinds.index(kind) for kind in ("python", "module", "operator", "kernel")] == sorted(
        kinds.index(kind) for kind in ("python", "module", "operator", "kernel")
    )
