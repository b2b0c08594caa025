"""nvprof's real files, counted a second way, their directory, and files that are damaged."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
import struct

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepprof.collectors import importers
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.directories import list_traces
from deepprof.collectors.importers.files import read_bytes, read_head
from deepprof.collectors.importers.nvprof import Nvprof
from deepprof.collectors.importers.nvprof.calls import DRIVER_CALLS, RUNTIME_CALLS
from deepprof.collectors.importers.nvprof.csv_files import NvprofCsv
from tests import manifest
from tests.chance import examples
from tests.collectors.damage import checked, read_or_refuse, read_within, survives
from tests.collectors.nvprof_files import (
    API_HEADER,
    DB_CALL,
    DB_COPY,
    DB_KERNEL,
    DB_MARKER,
    RESULT,
    START,
    build,
    copy,
    kernel,
    rows,
)
from tests.widening import slow_unless

OURS = {"nvprof-csv": NvprofCsv(), "pyprof-csv": NvprofCsv(), "nvprof-sqlite": Nvprof()}


@pytest.mark.traces
@pytest.mark.parametrize("row", manifest.rows())
def test_only_our_files_are_accepted(traces, row):
    path = manifest.path_of(row)
    head = read_head(path)
    accepting = [type(importer) for importer in (Nvprof(), NvprofCsv()) if importer.accepts(head, path)]
    ours = OURS.get(row["format"])
    assert accepting == ([type(ours)] if ours else [])
    assert not ours or importers.recognise(head, path).name == ours.name


@pytest.mark.traces
@pytest.mark.parametrize("row", manifest.rows("nvprof-csv", "nvprof-sqlite"))
def test_counts_are_those_of_the_manifest(traces, row):
    trace = OURS[row["format"]].read(manifest.path_of(row))
    kernels = trace.device_events.filter(pl.col("activity") == "kernel")
    streams = trace.device_events.filter(pl.col("activity") != "sync")["stream"]
    assert kernels.height == int(row["kernels"])
    assert streams.n_unique() == int(row["streams"])
    assert trace.devices.height == 1


@pytest.mark.traces
@pytest.mark.parametrize("row", manifest.rows("nvprof-csv"))
def test_every_row_is_what_the_csv_module_reads(traces, row):
    path = manifest.path_of(row)
    with path.open(newline="") as file:
        lines = [line for line in file if not line.startswith("=")]
    header, units, *records = list(csv.reader(lines))
    factors = {"s": 10**9, "ms": 10**6, "us": 10**3}
    start, duration = factors[units[0]], factors[units[1]]
    whole = [dict(zip(header, record, strict=True)) for record in records if len(record) == len(header)]
    expected = [
        (
            round(float(record["Start"]) * start),
            round(float(record["Start"]) * start) + round(float(record["Duration"]) * duration),
            int(record["Stream"]),
            re.sub(r" \[\d+\]$", "", record["Name"]),
        )
        for record in whole
    ]
    trace = NvprofCsv().read(path)
    events = trace.device_events.with_columns(name=trace.names.gather(trace.device_events["name_id"]))
    assert sorted(events.select("start_ns", "end_ns", "stream", "name").rows()) == sorted(expected)
    assert trace.accounting.read == len(records)
    assert trace.accounting.dropped.get("truncated", 0) == len(records) - len(whole)
    assert bool(trace.accounting.dropped) == ("TRUNCATED" in row["notes"])


@pytest.mark.traces
def test_the_database_holds_what_sqlite_counts(traces):
    path = traces / "nvprof-lm" / "net.sql"
    trace = Nvprof().read(path)
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:

        def ask(query: str) -> list[tuple[object, ...]]:
            return database.execute(query.replace("@", "CUPTI_ACTIVITY_KIND_")).fetchall()

        kernels = ask(
            "SELECT start, end, correlationId, value FROM @CONCURRENT_KERNEL k JOIN StringTable s ON k.name = s._id_ "
            "ORDER BY start"
        )
        ranges = ask(
            "SELECT a.timestamp, b.timestamp, value FROM @MARKER a JOIN @MARKER b ON a.id = b.id AND b.flags = 4 "
            "JOIN StringTable s ON a.name = s._id_ WHERE a.flags = 2 ORDER BY a.timestamp"
        )
        tables = ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET", "SYNCHRONIZATION", "RUNTIME", "OVERHEAD", "MARKER")
        counts = [ask(f"SELECT count(*) FROM @{table}")[0][0] for table in tables]
    database.close()
    assert trace.accounting.read == sum(counts)
    assert trace.accounting.dropped == {"range-end": len(ranges)}
    events = trace.device_events.filter(pl.col("activity") == "kernel")
    events = events.with_columns(name=trace.names.gather(events["name_id"]))
    assert events.select("start_ns", "end_ns", "correlation", "name").rows() == kernels
    found = trace.annotations.with_columns(name=trace.names.gather(trace.annotations["name_id"]))
    assert found.select("start_ns", "end_ns", "name").rows() == ranges
    assert trace.accounting.flagged == {}  # every GPU activity has its launch
    assert set(trace.annotations["process"]) == {15938}
    launching = trace.host_events.filter(pl.col("correlation").is_not_null())["thread"]
    assert set(launching) <= set(trace.annotations["thread"])


@pytest.mark.traces
def test_names_are_spelled_out_by_the_common_door(traces):
    trace = importers.read(traces / "nvprof-lm" / "net.sql")
    assert not trace.names.str.starts_with("_Z").any()
    assert trace.names.str.contains("at::native::elementwise_kernel<", literal=True).any()


@pytest.mark.traces
def test_the_table_of_pyprof_is_refused_and_is_no_trace_of_its_directory(traces):
    with pytest.raises(TraceError, match=r"pyprof.*give the database"):
        importers.read(traces / "nvprof-lm" / "lm.csv")
    assert list_traces(traces / "nvprof-lm").traces == [traces / "nvprof-lm" / "net.sql"]


def is_small(row):
    return not row or manifest.path_of(row).stat().st_size < 1 << 20


@pytest.mark.widens(6)
@pytest.mark.traces
@pytest.mark.parametrize("row", slow_unless(is_small, manifest.rows("kineto-json")[:12]))
def test_calls_have_the_names_that_pytorch_gives_their_numbers(traces, row):
    document = json.loads(bytes(read_bytes(manifest.path_of(row))), strict=False)
    tables = {"cuda_runtime": RUNTIME_CALLS, "Runtime": RUNTIME_CALLS, "cuda_driver": DRIVER_CALLS}
    for event in document["traceEvents"]:
        number = event.get("args", {}).get("cbid")
        known = tables.get(event.get("cat"), {}).get(number)
        assert known in (None, event["name"])


@pytest.fixture(scope="module")
def sound_text() -> bytes:
    calls = (
        RESULT + API_HEADER + 'us,us,,\n0.5,9,"cudaLaunch (gemm [3])",3\n1,,"[Range start] a",\n2,,"[Range end] a",\n'
    )
    return (START + copy() + "".join(kernel(at, name=f"k{at % 3} [{at}]") for at in range(30)) + calls).encode()


@pytest.fixture(scope="module")
def sound_database(tmp_path_factory) -> bytes:
    path = build(
        tmp_path_factory.mktemp("sound") / "a.nvvp",
        CONCURRENT_KERNEL=rows(DB_KERNEL, *({"streamId": at % 3} for at in range(60))),
        MEMCPY=rows(DB_COPY, {}, {"bytes": 2**50}),
        RUNTIME=rows(DB_CALL, *({"correlationId": at} for at in range(40))),
        MARKER=rows(DB_MARKER, *({"id": at // 2, "flags": 2 + at % 2 * 2} for at in range(40))),
        OVERHEAD=rows({"start": 1, "end": 2, "objectKind": 1, "objectId": struct.pack("<III", 7, 0, 0)}, {}, {}),
        DEVICE=[{"id": 0, "name": 3, "globalMemorySize": 5, "numMultiprocessors": 6}],
    )
    return path.read_bytes()


def test_damaged_texts_are_read_or_refused_in_one_line(tmp_path, sound_text):
    assert survives(NvprofCsv(), tmp_path / "a.csv", sound_text) > 0


def test_damaged_databases_are_read_or_refused_in_one_line(tmp_path, sound_database):
    assert survives(Nvprof(), tmp_path / "a.nvvp", sound_database) > 0


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_pages_are_read_or_refused_in_one_line(tmp_path, sound_database, data):
    content = bytearray(sound_database)
    for _ in range(data.draw(st.integers(1, 8))):
        # Most bytes that matter to SQLite are at the start of a page.
        page = data.draw(st.integers(0, len(content) // 4096 - 1)) * 4096
        content[page + data.draw(st.integers(0, 150) | st.integers(0, 4095))] = data.draw(st.integers(0, 255))
    path = tmp_path / "a.nvvp"
    path.write_bytes(content)
    read_or_refuse(Nvprof(), path)


@pytest.mark.widens(5)
@pytest.mark.parametrize("table", ["CONCURRENT_KERNEL", "MEMCPY", "RUNTIME", "MARKER", "DEVICE", "OVERHEAD"])
@pytest.mark.parametrize("value", [None, 2**63 - 1, -(2**63), "text", b"\xff", 1.5])
def test_columns_of_the_wrong_type(tmp_path, table, value):
    sound = {"RUNTIME": DB_CALL, "MARKER": DB_MARKER}.get(table, DB_COPY | DB_KERNEL)
    for column in sound:
        path = build(tmp_path / f"{column}.nvvp", **{table: rows(sound, {column: value}, {})})
        read_or_refuse(Nvprof(), path)


@pytest.mark.parametrize("text", [None, b"\xff\xfe", 7, "", "x" * 70_000])
def test_odd_texts(tmp_path, text):
    path = build(tmp_path / "a.nvvp", strings={1: text, None: "null"}, CONCURRENT_KERNEL=rows(DB_KERNEL, {}))
    trace = read_or_refuse(Nvprof(), path)
    assert not isinstance(trace, TraceError)
    assert trace.device_events.height == 1


def test_memory_is_bounded(tmp_path):
    row = kernel(1.5, name="void stencil<double>(double*, double*, int, int) [12]")
    path = tmp_path / "a.csv"
    path.write_text(START + row * (40_000_000 // len(row)))
    assert read_within(path, 700 * 1024**2) == {"kept": 40_000_000 // len(row)}


def test_missing_files_and_directories_are_one_line(tmp_path):
    for importer in (Nvprof(), NvprofCsv()):
        for path in (tmp_path / "none", tmp_path):
            with pytest.raises(TraceError) as refusal:
                importer.read(path)
            checked(refusal.value)


def test_summaries_beside_a_trace_are_covered(tmp_path):
    (tmp_path / "trace.csv").write_text(START + kernel())
    (tmp_path / "summary.csv").write_text('"Type","Time(%)","Time","Calls"\n')
    assert list_traces(tmp_path).traces == [tmp_path / "trace.csv"]
