"""Parquet and Arrow files: what they hold, and what is not read."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import frames
from deepprof.collectors.importers.frames import FrameFile, is_table_file, whole_numbers

FRAME = pl.DataFrame({"start": [3, 1, None], "name": ["a", None, "ü"], "other": [0.5, 1.0, 2.0]})
FORMS = ("parquet", "ipc", "ipc_stream")


@pytest.fixture(params=FORMS)
def path(request, tmp_path) -> Path:
    getattr(FRAME, f"write_{request.param}")(tmp_path / "a")
    return tmp_path / "a"


def test_columns_rows_and_schema(path):
    table = FrameFile(path)
    assert table.schema == FRAME.schema
    assert table.rows == 3
    assert_frame_equal(table.read(["name", "start"]), FRAME.select("name", "start"))
    assert table.read([]).is_empty()
    assert is_table_file(path.read_bytes())


def test_a_table_without_rows_keeps_its_columns(tmp_path):
    for form in FORMS:
        getattr(FRAME.clear(), f"write_{form}")(tmp_path / form)
        table = FrameFile(tmp_path / form)
        assert table.rows == 0
        assert table.read(["start"]).schema == {"start": pl.Int64}


def test_what_takes_too_much_is_refused(path, monkeypatch):
    monkeypatch.setattr(frames, "LIMIT_NBYTES", path.stat().st_size - 1)
    with pytest.raises(TraceError, match="holds more than the limit"):
        FrameFile(path)
    monkeypatch.setattr(frames, "LIMIT_NBYTES", path.stat().st_size)
    monkeypatch.setattr(frames, "VALUE_NBYTES", 10**6)
    with pytest.raises(TraceError, match="has 3 rows, which take more than the limit"):
        FrameFile(path).read(["start"])


def test_more_rows_than_a_file_can_hold_are_refused(path, monkeypatch):
    monkeypatch.setattr(frames, "ROWS_FLOOR", 0)
    monkeypatch.setattr(frames, "ROWS_PER_BYTE", 0)
    with pytest.raises(TraceError, match="it states 3 rows in"):
        FrameFile(path).read(["start"])


def test_more_text_than_a_file_can_hold_is_refused(path, monkeypatch):
    monkeypatch.setattr(frames, "RATIO_FROM_NBYTES", 2)
    monkeypatch.setattr(frames, "RATIO_LIMIT", 0)
    with pytest.raises(TraceError, match="it holds 3 bytes of text"):
        FrameFile(path).read(["name"])


@pytest.mark.parametrize("content", [b"", b"hello", b"PAR1", b"ARROW1", b"\xff\xff\xff\xff", b"PAR1" * 9])
def test_what_is_none_is_one_line(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(TraceError) as caught:
        FrameFile(tmp_path / "a").read(["start"])
    assert str(caught.value).isprintable()


def test_whole_numbers_of_every_type():
    cases = {
        (1.0, 2.5, None): [1, None, None],
        (float("nan"), float("inf"), 1e300): [None, None, None],
        ("7", "x", ""): [7, None, None],
        (True, False): [1, 0],
    }
    for values, expected in cases.items():
        assert whole_numbers(pl.Series(values)).to_list() == expected
    assert whole_numbers(pl.Series([2**64 - 1, 5], dtype=pl.UInt64)).to_list() == [None, 5]
    assert whole_numbers(pl.Series([5], dtype=pl.Duration("us"))).to_list() == [5000]
    assert whole_numbers(pl.Series([[1], [2]])).to_list() == [None, None]
