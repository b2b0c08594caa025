"""Nsight Systems directories: the same capture as a database and as one file per table gives the same trace.

No directory that nsys itself wrote is at hand: these are made from its databases, table by table.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.directories import list_traces
from deepprof.collectors.importers.files import read_head
from deepprof.collectors.importers.nsys import Nsys
from deepprof.collectors.importers.nsys.directory import NsysDirectory
from deepprof.collectors.importers.nsys.notes import NO_EVENTS
from deepprof.collectors.trace import TABLES, Trace
from tests.collectors.damage import checked, damaged, read_or_refuse
from tests.collectors.nsys_database import CALL, COPY, KERNEL, RANGE, build, rows
from tests.manifest import path_of
from tests.manifest import rows as listed

WRITERS: dict[str, Callable[[pl.DataFrame, Path], object]] = {
    "parquet": lambda frame, path: frame.write_parquet(path),
    "arrow": lambda frame, path: frame.write_ipc(path, compression="lz4"),
    "arrows": lambda frame, path: frame.write_ipc_stream(path),
}
NAMES = ("demangledName", "shortName", "nameId", "textId")


def export(database: Path, folder: Path, kind: str = "parquet", *, named: bool = False) -> Path:
    """Write the tables of `database` as files into `folder`; `named` puts texts in place of their ids."""
    folder.mkdir()
    connection = sqlite3.connect(database)
    connection.text_factory = lambda stored: stored.decode("utf-8", "replace")
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0").fetchall()
    strings = dict(connection.execute("SELECT id, value FROM StringIds")) if ("StringIds",) in tables else {}
    for (table,) in tables:
        cursor = connection.execute(f'SELECT * FROM "{table}"')
        columns = [column[0] for column in cursor.description]
        frame = pl.DataFrame(cursor.fetchall(), columns, orient="row", strict=False, infer_schema_length=None)
        texts = [name for name in NAMES if named and name in columns]
        frame = frame.with_columns(
            pl.col(name).cast(pl.Int64).replace_strict(strings, default=None, return_dtype=pl.String) for name in texts
        )
        if not (named and table == "StringIds"):
            WRITERS[kind](frame, folder / f"{table}.{kind}")
    connection.close()
    return folder


def assert_same(found: Trace, expected: Trace) -> None:
    """Compare everything but the path, and names by text: their order may differ."""
    for table in TABLES:
        assert_frame_equal(spelled(found, table), spelled(expected, table))
    for field in ("format", "clock", "epoch_ns", "rank", "notes", "accounting"):
        assert getattr(found, field) == getattr(expected, field), field


def spelled(trace: Trace, table: str) -> pl.DataFrame:
    frame: pl.DataFrame = getattr(trace, table)
    if "name_id" not in frame.columns:
        return frame
    return frame.with_columns(trace.names.gather(frame["name_id"]).alias("name_id"))


def small(path: Path) -> Path:
    return build(
        path,
        CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, *({"start": at, "streamId": at % 3} for at in range(99))),
        CUPTI_ACTIVITY_KIND_MEMCPY=rows(COPY, {}, {"bytes": 2**50}),
        CUPTI_ACTIVITY_KIND_RUNTIME=rows(CALL, *({"correlationId": at} for at in range(50))),
        NVTX_EVENTS=rows(RANGE, *({"text": f"range {at}", "domainId": at % 2} for at in range(30))),
        TARGET_INFO_GPU=[{"id": 0, "cuDevice": 0, "name": "GPU", "totalMemory": 5, "smCount": 6}],
        DIAGNOSTIC_EVENT=[{"severity": 2, "text": "careful", "globalPid": 0}],
    )


def read(path: Path) -> Trace:
    assert NsysDirectory().accepts(b"", path)
    return NsysDirectory().read(path)


def refusal(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        NsysDirectory().read(path)
    return str(checked(caught.value))


@pytest.mark.traces
@pytest.mark.parametrize("row", listed("nsys-sqlite"))
def test_real_captures_are_the_same_in_both_forms(traces, tmp_path, row):
    database = path_of(row)
    expected = Nsys().read(database)
    assert_same(read(export(database, tmp_path / "a")), expected)
    kernels = expected.device_events.filter(pl.col("activity") == "kernel")
    assert kernels.height == int(row["kernels"])


@pytest.mark.traces
@pytest.mark.parametrize("kind", ["arrow", "arrows"])
@pytest.mark.parametrize("named", [False, True])
def test_a_real_capture_is_the_same_in_arrow_and_with_names_in_place_of_ids(traces, tmp_path, kind, named):
    database = traces / "cs336-zx-2_7B-nvtx" / "result_2_7B_nvtx.sqlite"
    assert_same(read(export(database, tmp_path / "a", kind, named=named)), Nsys().read(database))


@pytest.mark.parametrize("kind", WRITERS)
def test_a_small_capture_is_the_same_in_every_form(tmp_path, kind):
    database = small(tmp_path / "a.sqlite")
    assert_same(read(export(database, tmp_path / "b", kind)), Nsys().read(database))


def test_columns_of_other_types_are_read(tmp_path):
    frame = pl.DataFrame(
        {
            "start": pl.Series([5, 20], dtype=pl.Datetime("ns")),
            "end": [10.0, 30.0],
            "deviceId": pl.Series([0, 0], dtype=pl.UInt32),
            "streamId": ["7", "7"],
            "correlationId": pl.Series([1, 2**63 + 1], dtype=pl.UInt64),
            "shortName": pl.Series(["gemm", None], dtype=pl.Categorical),
        }
    )
    frame.write_parquet(tmp_path / "CUPTI_ACTIVITY_KIND_KERNEL.parquet")
    trace = read(tmp_path)
    assert trace.device_events["start_ns"].to_list() == [5, 20]
    assert trace.device_events["end_ns"].to_list() == [10, 30]
    assert trace.device_events["stream"].to_list() == [7, 7]
    assert trace.device_events["correlation"].to_list() == [1, None]
    assert spelled(trace, "device_events")["name_id"].to_list() == ["gemm", "unknown kernel"]
    assert trace.accounting.flagged["unnamed"] == 1


def test_one_event_and_none(tmp_path):
    database = build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, {}))
    assert read(export(database, tmp_path / "b")).device_events.height == 1
    pl.DataFrame(schema={"start": pl.Int64}).write_parquet(tmp_path / "NVTX_EVENTS.parquet")
    trace = read(tmp_path)
    assert trace.accounting.read == 0
    assert NO_EVENTS in trace.notes


def test_one_table_asks_for_its_directory(tmp_path):
    folder = export(small(tmp_path / "a.sqlite"), tmp_path / "b")
    table = folder / "StringIds.parquet"
    if not table.exists():
        table = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    assert NsysDirectory().accepts(table.read_bytes()[:100], table)
    assert f"name the directory {folder}" in refusal(table)


def test_other_directories_and_files_are_not_accepted(tmp_path):
    importer = NsysDirectory()
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    assert not importer.accepts(b"", tmp_path)
    assert not importer.accepts(b"PAR1", tmp_path / "table.parquet")
    assert not importer.accepts(b"", tmp_path / "none")
    assert not importer.accepts(b"text", tmp_path / "StringIds.parquet")
    assert "is a directory of something else" in refusal(tmp_path)


@pytest.mark.traces
@pytest.mark.parametrize("row", listed())
def test_no_real_file_of_another_format_is_accepted(traces, row):
    path = path_of(row)
    assert not NsysDirectory().accepts(read_head(path), path)
    assert not NsysDirectory().accepts(b"", path.parent)


def test_a_directory_is_one_trace_with_the_report_beside_it(tmp_path):
    database = small(tmp_path / "report.sqlite")
    folder = export(database, tmp_path / "report_pqtdir")
    assert set(NsysDirectory().covers(folder)) >= {database, tmp_path / "report.nsys-rep"}
    assert list_traces(tmp_path).traces == [folder]
    assert list_traces(folder).traces == [folder]


def test_links_that_lead_out_are_refused(tmp_path):
    folder = export(small(tmp_path / "a.sqlite"), tmp_path / "b")
    table = folder / "NVTX_EVENTS.parquet"
    shutil.move(table, tmp_path / "elsewhere.parquet")
    table.symlink_to(tmp_path / "elsewhere.parquet")
    assert "a link that leads out of it (NVTX_EVENTS.parquet)" in refusal(folder)


def test_a_table_in_two_formats_is_refused(tmp_path):
    folder = export(small(tmp_path / "a.sqlite"), tmp_path / "b")
    shutil.copy(folder / "NVTX_EVENTS.parquet", folder / "NVTX_EVENTS.arrow")
    assert "holds a table in two formats" in refusal(folder)


def test_a_table_of_something_else_and_a_fifo_are_one_line(tmp_path):
    folder = export(small(tmp_path / "a.sqlite"), tmp_path / "b")
    (folder / "NVTX_EVENTS.parquet").write_bytes(b"hello")
    assert "is neither a Parquet nor an Arrow file" in refusal(folder)
    (folder / "NVTX_EVENTS.parquet").unlink()
    (folder / "NVTX_EVENTS.parquet").mkdir()
    assert "is a directory" in refusal(folder)


def test_a_table_of_billions_of_equal_rows_is_not_read(tmp_path):
    rows_each = 40_000_000
    zeros = pl.repeat(0, rows_each, dtype=pl.Int64, eager=True)
    path = tmp_path / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    pl.DataFrame({"start": zeros, "end": zeros}).write_parquet(path, compression="zstd")
    assert path.stat().st_size < rows_each / 100
    assert f"it states {rows_each} rows" in refusal(tmp_path)


def test_a_long_text_that_stands_in_every_row_is_not_read(tmp_path):
    texts = pl.repeat("x" * 100_000, 2_000, eager=True).cast(pl.Categorical)
    frame = pl.DataFrame({"id": pl.arange(0, 2_000, eager=True), "value": texts}).cast({"value": pl.String})
    frame.write_parquet(tmp_path / "StringIds.parquet")
    assert (tmp_path / "StringIds.parquet").stat().st_size < 10**6
    assert "bytes of text" in refusal(tmp_path)


def test_missing_tables_and_columns_are_null(tmp_path):
    folder = export(small(tmp_path / "a.sqlite"), tmp_path / "b")
    (folder / "CUPTI_ACTIVITY_KIND_RUNTIME.parquet").unlink()
    kernels = pl.read_parquet(folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet")
    kernels.select("start", "end").write_parquet(folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet")
    trace = read(folder)
    assert trace.device_events.filter(pl.col("activity") == "kernel")["stream"].to_list() == [0] * 99
    assert trace.host_events.is_empty()


@pytest.mark.parametrize("kind", WRITERS)
def test_damage_gives_a_trace_or_one_line(tmp_path, kind):
    folder = export(small(tmp_path / "a.sqlite"), tmp_path / "b", kind)
    table = folder / f"CUPTI_ACTIVITY_KIND_KERNEL.{kind}"
    refused = 0
    for piece in damaged(table.read_bytes(), seed=len(kind), count=40):
        table.write_bytes(piece)
        refused += isinstance(read_or_refuse(NsysDirectory(), folder), TraceError)
    assert refused
