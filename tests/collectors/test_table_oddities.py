"""Tables and CSV files as spreadsheets, other tools and hostile hands write them."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from deepprof.collectors import importers
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import frames
from deepprof.collectors.importers.frames import FrameFile, plain_texts, whole_numbers
from tests.collectors import test_nsys_jax
from tests.collectors.damage import checked

OWN = "start_ns,end_ns,name,stream,device\n"
ROCPROF = '"Kind","Agent_Id","Queue_Id","Stream_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
FORMATS = {"own.csv": (OWN, "1,2,k,7,1\n"), "x_kernel_trace.csv": (ROCPROF, '"K","Agent 4",1,2,"k",9,1,2\n')}
BASE = {
    **{"start_ns": [1, 2], "end_ns": [3, 4], "name": ["k", "l"], "stream": [1, 2], "device": [0, 1], "thread": [1, 2]},
    **{"activity": ["kernel", "op"], "copy_kind": ["HtoD", ""], "nbytes": [1, 2], "correlation": [1, 2]},
}
ODD = {
    "bytes": [b"a", b"\xff"],
    "lists": [["a"], ["b"]],
    "arrays": pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int64, 2)),
    "structures": [{"a": 1}, {"a": 2}],
    "spans": [timedelta(days=1), timedelta(days=2)],
    "long spans": pl.Series([10**18, -(10**18)], dtype=pl.Duration("ms")),
    "late dates": pl.Series([datetime(9999, 1, 1)] * 2, dtype=pl.Datetime("ms")),
    "days": [date(2020, 1, 1)] * 2,
    "unsigned": pl.Series([2**63, 2**64 - 1], dtype=pl.UInt64),
    "floats": [float("nan"), float("inf")],
    "categories": pl.Series(["a", "7"], dtype=pl.Categorical),
    "nothing": [None, None],
}


def read(path: Path, text: str) -> pl.DataFrame:
    path.write_text(text, encoding="utf-8")
    return importers.read(path).device_events


@pytest.mark.parametrize("file", FORMATS)
def test_lines_of_other_lengths_below_the_header_are_read(tmp_path, file):
    header, row = FORMATS[file]
    expected = read(tmp_path / file, header + row * 2)
    assert expected.height == 2
    for text in (f"\n{row}\n{row}", f"\r\n{row * 2}", row[:-1] + ",\n" + row, row[:-1] + ",,,\r\n" + row):
        assert read(tmp_path / file, header + text).equals(expected), text


@pytest.mark.parametrize("file", FORMATS)
def test_a_short_first_line_costs_itself_alone(tmp_path, file):
    header, row = FORMATS[file]
    assert read(tmp_path / file, header + row.split(",", 1)[0] + ",x\n" + row).height == 1


def test_whole_numbers_may_have_a_fraction_of_zeros(tmp_path):
    own = read(tmp_path / "own.csv", OWN + "1.0,2.0,k,7.0,1.0\n3.0,4.0,k,20.0,1.0\n")
    assert own.select("start_ns", "end_ns", "stream", "device").rows() == [(1, 2, 7, 1), (3, 4, 20, 1)]
    trace = read(tmp_path / "x_kernel_trace.csv", ROCPROF + '"K","Agent 4",1.0,2.0,"k",9.0,10.0,20.00\n')
    assert trace.select("start_ns", "end_ns", "stream", "correlation").row(0) == (10, 20, 2, 9)


def test_a_copy_whose_column_says_nothing_is_known_by_its_name(tmp_path):
    text = "start_ns,end_ns,name,copy_kind\n1,2,[CUDA memcpy HtoD],\n3,4,[CUDA memcpy HtoD],DtoH\n"
    assert read(tmp_path / "own.csv", text)["copy_kind"].to_list() == ["HtoD", "DtoH"]


@pytest.mark.widens(5)
@pytest.mark.parametrize("form", ["parquet", "ipc"])
@pytest.mark.parametrize("kind", ODD)
def test_columns_of_any_type_are_a_trace(tmp_path, form, kind):
    path = tmp_path / "table.parquet"
    for column in (*BASE, "duration_ns"):
        frame = pl.DataFrame({**BASE, column: ODD[kind]})
        frame = frame.drop("end_ns") if column == "duration_ns" else frame
        getattr(frame, f"write_{form}")(path)
        assert importers.read(path).accounting.read == 2, column


@pytest.mark.widens(5)
@pytest.mark.parametrize("kind", ODD)
def test_ranges_of_any_type_are_a_trace(tmp_path, kind):
    projection = test_nsys_jax.projection()
    launchers = pl.DataFrame({"PID": [1, 1], "TID": [7, 8], "Name": ["XlaLauncher:#global=0,", "x"]})
    odd = pl.Series(ODD[kind]).gather([0, 1] * 4)
    for column in projection.columns:
        rows = projection.with_columns(odd.head(projection.height).alias(column))
        files = {"nvtx_gpu_proj_trace/trace.parquet": rows}
        files |= {"thread-metadata.parquet": launchers.with_columns(odd.head(2).alias("Name"))}
        packed = {name: test_nsys_jax.content(frame) for name, frame in files.items()}
        trace = importers.read(test_nsys_jax.pack(tmp_path / f"{column}.zip", packed))
        assert trace.accounting.read == projection.height


def test_times_and_texts_of_other_types():
    assert whole_numbers(pl.Series([5, None], dtype=pl.Duration("us"))).to_list() == [5_000, None]
    assert whole_numbers(pl.Series(ODD["late dates"])).to_list() == [None, None]
    assert plain_texts(pl.Series([b"a", None, b"\xff"])).to_list() == ["a", None, "\ufffd"]
    assert plain_texts(pl.Series([["a"], ["b"]])).to_list() == [None, None]
    assert plain_texts(pl.Series(["a", "b"], dtype=pl.Categorical)).to_list() == ["a", "b"]


@pytest.mark.parametrize("kind", [pl.Binary, pl.Categorical, pl.Enum(["xxx"]), pl.String])
def test_long_texts_of_any_type_are_refused_before_they_are_spelled_out(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(frames, "RATIO_FROM_NBYTES", 2)
    monkeypatch.setattr(frames, "RATIO_LIMIT", 0)
    text = pl.Series("name", ["xxx"]).cast(kind)
    text.to_frame().write_ipc(tmp_path / "a.arrow")
    with pytest.raises(TraceError, match="it holds 3 bytes of text"):
        FrameFile(tmp_path / "a.arrow").read(["name"])


def test_lists_are_not_read(tmp_path, monkeypatch):
    pl.DataFrame({"name": ["k"] * 3, "list": [[1] * 9] * 3}).write_parquet(tmp_path / "a.parquet")
    table, loaded = FrameFile(tmp_path / "a.parquet"), []
    load = table._load
    monkeypatch.setattr(table, "_load", lambda columns, rows: loaded.append(columns) or load(columns, rows))
    assert table.read(["list", "name"]).rows() == [(None, "k")] * 3
    assert table.read(["list"]).rows() == [(None,)] * 3
    assert loaded == [["name"]]


@pytest.mark.parametrize("file", FORMATS)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_other_encodings_are_one_line(tmp_path, file, encoding):
    (tmp_path / file).write_bytes("".join(FORMATS[file]).encode(encoding))
    with pytest.raises(TraceError) as refusal:
        importers.read(tmp_path / file)
    checked(refusal.value)
