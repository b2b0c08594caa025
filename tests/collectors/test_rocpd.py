"""rocprofv3 databases: made by hand in both layouts, since no recorded one was at hand (see `rocpd_database`)."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.amd.rocpd import Rocpd, list_parts
from deepprof.collectors.trace import Trace
from tests.collectors.damage import survives
from tests.collectors.rocpd_database import Writer, process, symbol

LAYOUTS = pytest.mark.parametrize("layout", ["3.0", "4.1"])


def names(trace: Trace, table: pl.DataFrame) -> list[str]:
    return [trace.name(i) for i in table["name_id"]]


def job(path: Path, layout: str, ending: str = "_0000f2a1_aaaa_bbbb") -> Path:
    """Write a small job: three kernels, two copies, calls of two runtimes, markers, memory."""
    writer = Writer(path, layout, ending)
    process(writer)
    symbol(writer, 1, "gemm(float*)", "_Z4gemmPf.kd")
    symbol(writer, 2, None, "_Z4bareP.kd")
    writer.call(("HIP_RUNTIME_API_EXT", "hipLaunchKernel"), 1, 5, 11)
    writer.call(("HSA_CORE_API", "hsa_signal_wait"), 6, 8, 12)
    writer.call(("RCCL_API", "ncclAllReduce"), 6, 9, 13)
    writer.call(("MARKER_CORE_RANGE_API", "roctxThreadRangeA"), 1, 90, 14, '{"message": "iteration 1"}')
    writer.call(("MARKER_CORE_RANGE_API", "roctxThreadRangeA"), 91, 95, 15, "\x04\x22compressed")
    mark = writer.event("MARKER_CORE_RANGE_API", 16, '{"message": "here"}')
    track = writer.track({"nid": 1, "pid": 900, "tid": 901}, "MARKER_CORE_RANGE_API")
    writer.insert("sample", {"track_id": track, "timestamp": 50, "event_id": mark})
    writer.kernel(1, 30, 40, 11, stream_id=3)  # not sorted
    writer.kernel(1, 10, 20, 11, stream_id=3)
    writer.kernel(2, 50, 60, 99, stream_id=4)
    writer.kernel(77, 70, 80, None, stream_id=3)
    writer.copy("HOST_TO_DEVICE", 2, 4, 17, size=4096, stream_id=3)
    writer.copy("DEVICE_TO_DEVICE", 5, 6, 18, src_agent_id=5, stream_id=3)
    writer.add("memory_allocate", {"address": 64, "size": 1000, "start": 1, "end": 2})
    writer.add("memory_allocate", {"address": 64, "size": 0, "start": 8, "end": 9, "type": "FREE", "agent_id": None})
    writer.insert("pmc_event", {"event_id": 1, "pmc_id": 1, "value": 3.5})
    writer.close()
    return path


@LAYOUTS
def test_a_job_is_read_whole(tmp_path, layout):
    path = job(tmp_path / "a.db", layout)
    assert Rocpd().accepts(path.read_bytes()[:65536], path)
    trace = Rocpd().read(path)
    device = trace.device_events
    assert (trace.format, trace.clock, trace.notes) == ("rocpd", "session", ())
    assert names(trace, device) == [
        *("Memcpy HtoD", "Memcpy PtoP", "gemm(float*)", "gemm(float*)", "_Z4bareP", "unknown kernel 77")
    ]
    assert device["start_ns"].to_list() == [2, 5, 10, 30, 50, 70]
    assert device["correlation"].to_list() == [17, 18, 11, 11, 99, None]
    assert device["stream"].to_list() == [3, 3, 3, 3, 4, 3]
    assert device["copy_kind"].to_list() == ["HtoD", "PtoP", None, None, None, None]
    assert device["nbytes"].to_list() == [4096, 8, None, None, None, None]
    assert names(trace, trace.host_events) == ["hipLaunchKernel", "hsa_signal_wait", "ncclAllReduce"]
    assert trace.host_events["category"].to_list() == ["runtime", "runtime", "other"]
    assert trace.host_events.select("process", "thread").unique().rows() == [(900, 901)]
    assert names(trace, trace.annotations) == ["iteration 1", "here", "roctxThreadRangeA"]
    assert trace.annotations.select("start_ns", "end_ns").rows() == [(1, 90), (50, 50), (91, 95)]
    assert trace.memory_events.select("time_ns", "device", "nbytes").rows() == [(2, 0, 1000), (9, 0, -1000)]
    assert trace.devices.select("device", "name").rows() == [(0, "MI300X")]
    assert trace.accounting.dropped == {"counter": 1}
    assert (trace.accounting.read, trace.accounting.flagged["unnamed"]) == (15, 1)


def test_both_layouts_give_the_same_trace(tmp_path):
    old, new = (Rocpd().read(job(tmp_path / f"{layout}.db", layout)) for layout in ("3.0", "4.1"))
    for table in ("device_events", "host_events", "annotations", "memory_events"):
        assert getattr(old, table).equals(getattr(new, table)), table
    assert old.names.equals(new.names)


@LAYOUTS
def test_times_in_a_table_of_their_own_are_found(tmp_path, layout):
    path = job(tmp_path / "a.db", layout)
    before = Rocpd().read(path)
    connection = sqlite3.connect(path)
    ending = "_0000f2a1_aaaa_bbbb"
    connection.execute(f"CREATE TABLE rocpd_timestamp{ending} (id INTEGER PRIMARY KEY, value BIGINT)")
    connection.executemany(f"INSERT INTO rocpd_timestamp{ending} VALUES (?, ?)", [(at + 500, at) for at in range(99)])
    connection.execute("DROP VIEW rocpd_kernel_dispatch")
    for time in ("start", "end"):
        connection.execute(f'ALTER TABLE rocpd_kernel_dispatch{ending} RENAME COLUMN "{time}" TO {time}_id')
        connection.execute(f"UPDATE rocpd_kernel_dispatch{ending} SET {time}_id = {time}_id + 500")
    connection.commit()
    connection.close()
    assert Rocpd().read(path).device_events.equals(before.device_events)


@LAYOUTS
def test_merged_processes_share_the_devices_of_a_node_and_nothing_else(tmp_path, layout):
    path = tmp_path / "a.db"
    for pid, node, gpu in ((900, "n1", 4), (901, "n1", 5), (902, "n2", 4)):
        writer = Writer(path, layout, f"_{pid}")
        agents = [{"id": key, "type_index": key - 4, "product_name": f"{node} {key}"} for key in (4, 5)]
        process(writer, [{"id": 0, "type": "CPU", "type_index": 0}, *agents], node, pid)
        symbol(writer, 1, f"k{pid}")
        writer.call(("HIP_RUNTIME_API", "hipLaunchKernel"), 1, 2, 8)
        writer.kernel(1, pid, pid + 1, 8, agent_id=gpu, pid=pid)
        writer.close()
    trace = Rocpd().read(path)
    assert names(trace, trace.device_events) == ["k900", "k901", "k902"]
    assert trace.device_events["device"].to_list() == [0, 1, 2]
    assert trace.devices["name"].to_list() == ["n1 4", "n1 5", "n2 4"]
    correlations = trace.device_events["correlation"].to_list()
    assert correlations == [8, 8 + 2**40, 8 + 2 * 2**40]
    assert sorted(trace.host_events["correlation"].to_list()) == correlations
    assert trace.notes == ("3 processes are merged in this file, each with a clock of its own node",)


@LAYOUTS
def test_a_row_without_its_event_track_or_name_is_kept(tmp_path, layout):
    path = job(tmp_path / "a.db", layout)
    whole = Rocpd().read(path).accounting
    connection = sqlite3.connect(path)
    for table in ("event", "track", "string", "info_kernel_symbol", "info_agent", "info_process", "info_node"):
        connection.execute(f"DELETE FROM rocpd_{table}_0000f2a1_aaaa_bbbb")
        connection.commit()
        assert Rocpd().read(path).accounting.kept == whole.kept, table
    connection.close()


@pytest.mark.widens(3)
@LAYOUTS
@pytest.mark.parametrize(
    "table", ["kernel_dispatch", "event", "track", "string", "region", "info_agent", "memory_copy", "sample"]
)
def test_any_table_may_be_missing(tmp_path, layout, table):
    path = job(tmp_path / "a.db", layout)
    connection = sqlite3.connect(path)
    ending = "_0000f2a1_aaaa_bbbb"
    lost = connection.execute(f"SELECT count(*) FROM rocpd_{table}{ending}").fetchone()[0]
    connection.execute(f"DROP TABLE rocpd_{table}{ending}")
    connection.commit()
    connection.close()
    records = table in ("kernel_dispatch", "region", "memory_copy", "sample")
    assert Rocpd().read(path).accounting.read == 15 - (lost if records else 0)


@LAYOUTS
def test_the_applications_own_ids_serve_where_the_recorder_has_none(tmp_path, layout):
    writer = Writer(tmp_path / "a.db", layout)
    process(writer)
    event = writer.insert("event", {"stack_id": 0, "correlation_id": 5})
    writer.add("kernel_dispatch", {"start": 1, "end": 2, "event_id": event})
    writer.close()
    assert Rocpd().read(tmp_path / "a.db").device_events["correlation"].to_list() == [5]


def test_tables_without_an_ending_are_read_too(tmp_path):
    path = tmp_path / "a.db"
    connection = sqlite3.connect(path)
    connection.execute(
        'CREATE TABLE rocpd_kernel_dispatch (id INTEGER PRIMARY KEY, kernel_id INT, start INT, "end" INT)'
    )
    connection.execute("CREATE TABLE rocpd_info_kernel_symbol (id INTEGER PRIMARY KEY, display_name TEXT)")
    connection.execute("INSERT INTO rocpd_kernel_dispatch VALUES (1, 9, 5, 7)")
    connection.execute("INSERT INTO rocpd_info_kernel_symbol VALUES (9, 'k')")
    connection.commit()
    connection.close()
    assert Rocpd().accepts(path.read_bytes(), path)
    trace = Rocpd().read(path)
    assert names(trace, trace.device_events) == ["k"]


def test_endings_are_told_from_the_names():
    tables = ["rocpd_kernel_dispatch_a", "rocpd_region_a", "rocpd_region_b_c", "rocpd_op", "rocpd_api", "regions"]
    assert list_parts(tables) == ["_a", "_b_c"]


@LAYOUTS
def test_an_empty_database_is_a_trace_without_events(tmp_path, layout):
    Writer(tmp_path / "a.db", layout).close()
    trace = Rocpd().read(tmp_path / "a.db")
    assert trace.accounting.read == 0
    assert "no kernels and no copies" in trace.notes[0]


def test_files_of_something_else_are_one_line(tmp_path):
    path = tmp_path / "a.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE rocpd_op (id integer)")
    connection.commit()
    connection.close()
    assert not Rocpd().accepts(path.read_bytes(), path)
    with pytest.raises(TraceError, match="is no database of rocprofv3"):
        Rocpd().read(path)


@pytest.mark.widens(7)
@LAYOUTS
@pytest.mark.parametrize("value", [None, "text", b"\xff\xfe", 1.5, 2**63 - 1, -(2**63) + 1])
@pytest.mark.parametrize("column", ["start", "end", "kernel_id", "event_id"])
def test_values_that_make_no_sense_cost_one_row_at_most(tmp_path, layout, column, value):
    path = job(tmp_path / "a.db", layout)
    whole = Rocpd().read(path).accounting
    connection = sqlite3.connect(path)
    connection.execute(f'UPDATE rocpd_kernel_dispatch_0000f2a1_aaaa_bbbb SET "{column}" = ? WHERE id = 1', (value,))
    connection.commit()
    connection.close()
    found = Rocpd().read(path).accounting
    assert found.read == whole.read
    assert found.kept >= whole.kept - 1


@LAYOUTS
def test_damaged_files_are_a_trace_or_one_line(tmp_path, layout):
    path = job(tmp_path / "a.db", layout)
    assert survives(Rocpd(), tmp_path / "damaged.db", path.read_bytes()) > 0
