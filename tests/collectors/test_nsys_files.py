"""Nsight Systems files: the real captures, files of something else, and damaged ones."""

from __future__ import annotations

import csv
import gzip
import sqlite3
import struct
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import read_head
from deepprof.collectors.importers.nsys import Nsys
from deepprof.collectors.importers.sqlite.sqlite_database import open_database
from tests.chance import examples
from tests.collectors.nsys_database import CALL, COPY, KERNEL, RANGE, accepts, build, read, rows


@pytest.mark.traces
def test_real_captures_hold_what_the_manifest_says(traces):
    found = {}
    with (traces / "manifest.csv").open() as file:
        listed = [row for row in csv.DictReader(file) if "nsys-sqlite" in row.values()]
    assert len(listed) == 7
    for row in listed:
        values = list(row.values())
        at = values.index("nsys-sqlite")
        path = traces / values[0]
        assert accepts(path)
        trace = read(path)
        kernels = trace.device_events.filter(pl.col("activity") == "kernel")
        assert kernels.height == int(values[at + 1]), path
        assert kernels["stream"].n_unique() == int(values[at + 2]), path
        assert trace.accounting.read == count_rows(path), path
        assert trace.accounting.read == trace.accounting.kept + sum(trace.accounting.dropped.values())
        found[path.parent.name] = trace
    assert "nsys warning: No CUDA events collected. Does the process use CUDA?" in found["cs336-ihor"].notes
    assert found["ecf-baseline-0"].annotations.height == 649
    compiled = found["cs336-zx-2_7B-compile"].device_events.group_by("activity").len()
    assert dict(compiled.rows()) == {"kernel": 30, "graph": 10, "sync": 2}
    names = set(found["cs336-zx-2_7B-nvtx"].names)
    assert {"Stream Sync", "Memcpy HtoD (Pageable -> Device)", "warmup", "cudaLaunchKernel"} <= names


def count_rows(path: Path) -> int:
    tables = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "SYNCHRONIZATION", "RUNTIME")
    names = [f"CUPTI_ACTIVITY_KIND_{t}" for t in tables] + ["NVTX_EVENTS", "OSRT_API", "PROFILER_OVERHEAD"]
    with open_database(path) as database:
        return sum(database.count(name) for name in names)


@pytest.mark.traces
def test_the_papers_profiler_is_not_taken_for_nsys(traces):
    assert not accepts(traces / "nvprof-lm" / "net.sql")


def test_an_nvprof_database_is_not_accepted(tmp_path):
    path = tmp_path / "a.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY, value TEXT)")
    connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (_id_ INTEGER PRIMARY KEY, start INT, end INT)")
    connection.commit()
    connection.close()
    assert not accepts(path)
    with pytest.raises(TraceError, match="SQLite database of something else"):
        read(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"\x1f\x8b\x08", "is truncated"),
        (b"hello", "not an SQLite database"),
        (b"SQLite format 3\0" + b"x" * 5000, "damaged or no SQLite database"),
    ],
)
def test_other_files_are_one_line(tmp_path, content, problem):
    path = tmp_path / "a.sqlite"
    path.write_bytes(content)
    assert not accepts(path)
    with pytest.raises(TraceError, match=problem) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_directory_are_one_line(tmp_path):
    for path in (tmp_path / "none.sqlite", tmp_path):
        with pytest.raises(TraceError, match="cannot be read"):
            read(path)


def test_a_compressed_database_is_the_same_capture(tmp_path):
    path = build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, {}))
    packed = path.with_name("a.sqlite.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert Nsys().accepts(read_head(packed), packed)
    assert read(packed).device_events.equals(read(path).device_events)
    assert read(packed).path == str(packed)


def test_names_with_odd_characters_open_and_leave_nothing_behind(tmp_path):
    directory = tmp_path / "a b?c#d%41&mode=rwc"
    directory.mkdir()
    path = build(directory / "ü;.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, {}))
    before = path.read_bytes()
    assert read(path).device_events.height == 1
    assert [entry.name for entry in directory.iterdir()] == [path.name]
    assert path.read_bytes() == before


def test_a_database_in_wal_mode_gets_no_side_files(tmp_path):
    path = build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, {}))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    assert read(path).device_events.height == 1
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> bytes:
    path = build(
        tmp_path_factory.mktemp("sound") / "a.sqlite",
        CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, *({"start": at, "streamId": at % 3} for at in range(99))),
        CUPTI_ACTIVITY_KIND_MEMCPY=rows(COPY, {}, {"bytes": 2**50}),
        CUPTI_ACTIVITY_KIND_RUNTIME=rows(CALL, *({"correlationId": at} for at in range(50))),
        NVTX_EVENTS=rows(RANGE, *({"text": f"range {at}", "domainId": at % 2} for at in range(30))),
        TARGET_INFO_GPU=[{"id": 0, "cuDevice": 0, "name": "GPU", "totalMemory": 5, "smCount": 6}],
        DIAGNOSTIC_EVENT=[{"severity": 2, "text": "careful", "globalPid": 0}],
    )
    return path.read_bytes()


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_gives_a_trace_or_one_line(tmp_path, sound, data):
    content = bytearray(sound)
    for _ in range(data.draw(st.integers(0, 8))):
        # Most bytes that matter to SQLite are at the start of a page.
        page = data.draw(st.integers(0, len(content) // 4096 - 1)) * 4096
        content[page + data.draw(st.integers(0, 150) | st.integers(0, 4095))] = data.draw(st.integers(0, 255))
    size = data.draw(st.just(len(content)) | st.integers(0, len(content)))
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(content[:size])
    accepts(path)
    assert "\n" not in outcome(path)


def outcome(path: Path) -> str:
    try:
        return read(path).format
    except TraceError as error:
        return str(error)


def interior_page(child: int, size: int, cells: int) -> bytes:
    """An interior page of a table whose children are all the same page."""
    start = size - 5 * cells
    header = struct.pack(">BHHHBI", 5, 0, cells, start, 0, child)
    pointers = struct.pack(f">{cells}H", *range(start, size, 5))
    content = b"".join(struct.pack(">IB", child, at) for at in range(cells))
    return (header + pointers).ljust(start, b"\0") + content


def test_a_page_tree_that_repeats_itself_ends(tmp_path):
    path = build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=rows(KERNEL, *({"start": at} for at in range(2000))))
    connection = sqlite3.connect(path)
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'"
    root = connection.execute(query).fetchone()[0]
    connection.close()
    content, size = bytearray(path.read_bytes()), 4096
    chain = [root, *range(root + 1, root + 8)]  # 90 ** 7 leaves
    for page, child in pairwise(chain):
        content[(page - 1) * size : page * size] = interior_page(child, size, 90)
    path.write_bytes(content)
    with pytest.raises(TraceError, match="its pages lead nowhere"):
        read(path)
