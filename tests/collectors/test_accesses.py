"""Recordings of accesses: exact tables of small ones, and damaged and hostile ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import deepprof
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import accesses, importers
from deepprof.collectors.importers.accesses import AccessRecording
from deepprof.collectors.store.rank import open_rank, write_rank
from deepprof.collectors.trace import ACCESSES
from deepprof.live.wire.sent_tables import as_sent
from tests.collectors.damage import read_or_refuse, survives

from .access_files import BLOCK_NBYTES, END, START, encode, launch, memory

T = 1_700_000_000 * 10**9


def write(path: Path, *lines: Mapping[str, Any] | bytes) -> Path:
    path.write_bytes(encode(lines))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.accesses"


SMALL = (
    START | {"rank": 3},
    memory(T, 1 << 21, 8 << 20),
    launch(0, T + 10, [(1 << 21, 10, 40, 0, 0), (2 << 21, 0, 0, 10, 40)], name="_Z4copyPfS_"),
    launch(1, T + 30, [], stream=0x7F00, full=[1, 4, 2, 8], tensor_copies=2),
    launch(2, T + 20, [(1 << 21, 1, 16, 1, 16)]),
    memory(T + 99, 1 << 21, -8 << 20),
    END | {"lost": {"copy": 2, "skipped": 0, "of a later version": 1}},
)


def test_a_small_recording(path: Path) -> None:
    trace = deepprof.read(write(path, *SMALL), details=True)
    events = trace.device_events
    assert (trace.format, trace.clock, trace.rank) == ("accesses", "unix", 3)
    assert trace.names.gather(events["name_id"]).to_list() == ["copy(float*, float*)", "kernel", "kernel"]
    assert events.select("start_ns", "end_ns", "context", "stream", "correlation").rows() == [
        (T + 10, T + 15, 1, 0, None),
        (T + 20, T + 25, 1, 0, None),
        (T + 30, T + 35, 1, 1, None),
    ]
    assert trace.accesses.rows() == [
        (0, 1 << 21, BLOCK_NBYTES, 10, 40, 0, 0),
        (0, 2 << 21, BLOCK_NBYTES, 0, 0, 10, 40),
        (1, 1 << 21, BLOCK_NBYTES, 1, 16, 1, 16),
        (2, None, BLOCK_NBYTES, 1, 4, 2, 8),
    ]
    assert trace.memory_events["allocated_nbytes"].to_list() == [8 << 20, 0]
    assert trace.launch_shapes.select("event", "grid", "block").rows() == [(0, 4, 256), (1, 4, 256), (2, 4, 256)]
    assert trace.accounting.dropped == {"copy": 2, "other": 1}
    assert trace.accounting.flagged["tensor-copies"] == 1
    assert trace.accounting.read == 8
    assert len(trace.notes) == 1


@pytest.mark.parametrize("lines", [(START, END), (START, launch(0, T, []), END)], ids=["empty", "one kernel"])
def test_little(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    trace = deepprof.read(write(path, *lines))
    assert trace.accesses.is_empty()
    assert trace.device_events.height == len(lines) - 2


def test_it_is_recognised_among_all_formats(path: Path) -> None:
    head = write(path, *SMALL).read_bytes()
    assert [each.name for each in importers() if each.accepts(head, path)] == ["accesses"]


def test_it_is_stored_and_not_sent(path: Path, tmp_path: Path) -> None:
    trace = deepprof.read(write(path, *SMALL))
    write_rank(trace, tmp_path / "rank")
    assert open_rank(tmp_path / "rank").read().accesses.equals(trace.accesses)
    assert as_sent(trace).accesses.is_empty()
    assert as_sent(trace).accounting == trace.accounting


def test_a_part_keeps_the_accesses_of_its_kernels(path: Path) -> None:
    from deepprof.collectors.time_range import cut

    part = cut(deepprof.read(write(path, *SMALL)), T + 18, T + 28)
    assert part.accesses.rows() == [(0, 1 << 21, BLOCK_NBYTES, 1, 16, 1, 16)]


def test_what_is_missing_and_what_failed_is_said(path: Path) -> None:
    problem = {"kind": "problem", "what": "sanitizerAlloc", "why": "no memory"}
    trace = deepprof.read(write(path, START | {"sees_tensor_copies": False}, *[problem] * 5))
    assert [note.split()[0] for note in trace.notes] == ["accesses", "copies", "the", *["sanitizerAlloc"] * 3, "2"]


@pytest.mark.parametrize(
    ("line", "dropped"),
    [
        (launch(0, T, []) | {"blocks": [1, 2, 3, 4]}, {"invalid": 1}),
        (launch(0, T, []) | {"blocks": [1 << 63, 0, 0, 0, 0]}, {"invalid": 1}),
        (launch(0, T, []) | {"blocks": [-1, 0, 0, 0, 0]}, {"invalid": 1}),
        (launch(0, T, []) | {"start_ns": 10**30}, {"invalid": 1}),
        (launch(0, T, []) | {"device": 70_000}, {"invalid": 1}),
        (launch(0, T, []) | {"start_ns": T + 99}, {"invalid-time": 1}),
        (memory(T, 1, 1 << 50), {"invalid": 1}),
        (b'{"kind":"launch"}\n', {"invalid": 1}),
        (b"[" * 100_000 + b"\n", {"invalid": 1}),
        (b'{"kind":"memory","time_ns":1', {"truncated": 1}),
        (b"\xff\xfe\n", {"invalid": 1}),
    ],
)
def test_a_line_that_is_none_is_counted(path: Path, line: Mapping[str, Any] | bytes, dropped: dict[str, int]) -> None:
    trace = deepprof.read(write(path, START, launch(0, T, [(0, 1, 4, 0, 0)]), line))
    assert trace.accounting.dropped == dropped
    assert trace.accesses.height == 1


def test_a_name_is_data(path: Path) -> None:
    trace = deepprof.read(write(path, START, launch(0, T, [], name="\x1b[31m\u2028\x00"), launch(1, T, [], name="")))
    assert trace.names.gather(trace.device_events["name_id"]).to_list()[1] == "unknown"


@pytest.mark.parametrize(
    "lines",
    [
        (START | {"format": "deepprof.accesses/9"},),
        (START | {"block_nbytes": 0},),
        (START, *[launch(at, T, [(0, 1 << 61, 0, 0, 0)]) for at in range(3)]),
    ],
    ids=["version", "block", "sum"],
)
def test_what_cannot_be_is_refused_in_a_line(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    assert isinstance(read_or_refuse(AccessRecording(), write(path, *lines)), TraceError)


@pytest.mark.parametrize(
    ("limit", "value", "dropped"),
    [("BLOCKS_LIMIT", 3, {"too-many": 2}), ("RECORDS_LIMIT", 3, {"too-many": 1})],
)
def test_more_than_there_may_be(
    path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, dropped: dict[str, int]
) -> None:
    write(path, START, *[launch(at, T + at, [(0, 1, 4, 0, 0)] * 2) for at in range(3)], memory(T, 1, 1))
    monkeypatch.setattr(accesses, limit, value)
    assert deepprof.read(path).accounting.dropped == dropped


@pytest.mark.parametrize("limit", ["FILE_LIMIT_NBYTES", "LINE_LIMIT_NBYTES"])
def test_more_bytes_than_there_may_be(path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    write(path, *SMALL)
    monkeypatch.setattr(accesses, limit, 200)
    with pytest.raises(TraceError, match=r"limit of .* record fewer launches"):
        AccessRecording().read(path)


def test_problems_without_end_take_no_memory(path: Path) -> None:
    problem = {"kind": "problem", "what": "patching", "why": "no room"}
    write(path, START, *[problem] * 5000, END)
    assert len(accesses._read_lines(path).problems) == accesses.PROBLEMS
    notes = deepprof.read(path).notes
    assert [note for note in notes if "fail" in note][-1] == "4,997 more calls of the sanitizer failed"


def test_more_losses_than_can_be_are_refused(path: Path) -> None:
    write(path, START, END | {"lost": {f"reason {at}": 2**62 for at in range(9)}})
    with pytest.raises(TraceError, match="counts more launches than there can be"):
        AccessRecording().read(path)


def test_damaged_recordings(path: Path) -> None:
    survives(AccessRecording(), path, encode(SMALL))


def test_the_table_of_a_whole_recording_has_its_schema(path: Path) -> None:
    rows = deepprof.read(write(path, *SMALL)).accesses
    assert rows.schema == pl.Schema(ACCESSES)
    assert json.loads(encode(SMALL).splitlines()[0])["format"] == accesses.FORMAT
