"""Layers in traces: given by the user, in the header of a Kineto trace, and kept in stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import deepprof
from deepprof.collectors.errors import TraceError
from deepprof.collectors.layers.given_layers import give_layers
from deepprof.collectors.layers.layers_file import ModelLayers, decode_layers
from deepprof.collectors.live import model_forward
from deepprof.collectors.store.rank import open_rank, write_rank
from deepprof.collectors.trace import LAYERS, empty_table
from tests.collectors.layers.test_layers_file import CONTENT
from tests.tables import make_trace

EVENTS = [{"ph": "X", "cat": "cpu_op", "name": "aten::linear", "pid": 1, "tid": 1, "ts": 10, "dur": 5}]
PATH = Path("layers.json")


def layers() -> pl.DataFrame:
    return decode_layers(json.dumps(CONTENT).encode(), PATH)


def write(path: Path, told: object) -> Path:
    document: dict[str, Any] = {"schemaVersion": 1, "deepprof_layers": told, "traceEvents": EVENTS}
    path.write_text(json.dumps(document))
    return path


def test_a_trace_brings_its_layers_and_a_store_keeps_them(tmp_path: Path) -> None:
    trace = deepprof.read(write(tmp_path / "t.json", CONTENT))
    assert trace.layers.equals(layers())
    write_rank(trace, tmp_path / "rank")
    assert open_rank(tmp_path / "rank").read().layers.equals(layers())
    assert open_rank(tmp_path / "rank").read(0, 1).layers.equals(layers())


@pytest.mark.parametrize("told", [1, [], {}, "text", CONTENT | {"operators": [["aten::add", 9, 0]]}])
def test_layers_that_cannot_be_read_are_told_and_the_trace_is_read(tmp_path: Path, told: object) -> None:
    trace = deepprof.read(write(tmp_path / "t.json", told))
    assert trace.layers.is_empty()
    assert trace.host_events.height == 1
    assert any("deepprof_layers" in note for note in trace.notes)


def test_too_many_of_them_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepprof.collectors.layers.layers_file.EMBEDDED_NBYTES", 100)
    trace = deepprof.read(write(tmp_path / "t.json", CONTENT))
    assert trace.layers.is_empty()
    assert any("deepprof_layers" in note for note in trace.notes)


def test_without_them_there_is_no_note(tmp_path: Path) -> None:
    trace = deepprof.read(write(tmp_path / "t.json", None))
    assert trace.layers.equals(empty_table(LAYERS))
    assert not any("deepprof_layers" in note for note in trace.notes)


def test_given_layers_are_those_of_every_trace_or_none() -> None:
    host = {"start_ns": 0, "end_ns": 1, "process": 1, "thread": 1, "category": "op"}
    some = make_trace(host=[host | {"name_id": 0}], names=["aten::add"])
    other = make_trace(host=[host | {"name_id": 0}], names=["aten::sub"])
    given = ModelLayers(PATH, layers())
    assert [each.layers.equals(layers()) for each in give_layers([some, other], given)] == [True, True]
    with pytest.raises(TraceError, match="no trace has any of its 4 operators"):
        give_layers([other], given)


def test_what_a_trace_cannot_hold_is_written_without() -> None:
    forward = model_forward.RecordedForward((('a"b\\é', "A\n"),), (("aten::add", 0, 0),))
    told = json.loads(model_forward.write_embedded(forward))
    assert told["modules"] == [{"path": "a?b??", "class": "A?"}]
