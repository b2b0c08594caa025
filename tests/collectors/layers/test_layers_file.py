"""Files of layers, written and read, and what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepprof.collectors.errors import TraceError
from deepprof.collectors.layers.layers_file import read_layers, write_layers
from deepprof.collectors.trace import LAYERS

CONTENT: dict[str, Any] = {
    "schema": "deepprof.layers/1",
    "modules": [{"path": "Net", "class": "Net"}, {"path": "body.0", "class": "Linear"}, {"path": "x", "class": None}],
    "operators": [["aten::linear", 1, 0], ["aten::linear", 1, 1], ["aten::add_", 0, 0], ["aten::mul", 2, 0]],
}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    path.write_bytes(write_layers(CONTENT))
    assert json.loads(path.read_text()) == CONTENT
    table = read_layers(path).table
    assert table.schema == LAYERS
    assert table.rows() == [
        (0, "aten::linear", "body.0", "Linear", 0),
        (1, "aten::linear", "body.0", "Linear", 1),
        (2, "aten::add_", "Net", "Net", 0),
        (3, "aten::mul", "x", None, 0),
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "deepprof.layers/2"}, "schema"),
        ({"operators": []}, "length >= 1"),
        ({"modules": []}, "length >= 1"),
        ({"operators": [["aten::add", 3, 0]]}, "an operator of module 3, of 3"),
        ({"operators": [["aten::add", -1, 0]]}, ">= 0"),
        ({"operators": [["aten::add", 0]]}, "length 3"),
        ({"operators": [["a" * 1001, 0, 0]]}, "length <= 1000"),
        ({"modules": [{"path": "", "class": "Net"}]}, "length >= 1"),
        ({"more": 1}, "unknown field"),
    ],
)
def test_other_content_is_refused_in_one_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "layers.json"
    path.write_text(json.dumps(CONTENT | change))
    with pytest.raises(TraceError, match="is no file of layers") as raised:
        read_layers(path)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"[" * 100_000, b"\xff\xfe", b"{}", b"null"])
def test_what_is_no_such_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "layers.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match="is no file of layers"):
        read_layers(path)
    with pytest.raises(TraceError, match="no such file"):
        read_layers(tmp_path / "none.json")


def test_paths_that_would_make_millions_of_layers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "layers.json"
    modules = [{"path": f"{number}.{'a.' * 480}b", "class": None} for number in range(2100)]
    path.write_bytes(write_layers(CONTENT | {"modules": modules}))
    with pytest.raises(TraceError, match="1,000,000 parts"):
        read_layers(path)
