"""nvprof's CSV: units, columns, kinds of rows, several tables, and what other programs make of it."""

from __future__ import annotations

import gzip
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.nvprof.csv_files import NvprofCsv, kind_of_text
from deepprof.collectors.importers.nvprof.csv_lines import numbers, split_lines
from tests.collectors.nvprof_files import (
    API_HEADER,
    BANNER,
    HEADER,
    RESULT,
    START,
    UNITS,
    copy,
    kernel,
    named,
    read_text,
    write,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.csv"


def test_a_kernel_and_a_copy(path):
    trace = read_text(path, START + copy(1, 1.5) + kernel(2.000001, 3))
    assert named(trace, "device_events", "start_ns", "end_ns", "activity", "name", "nbytes", "copy_kind") == [
        (1_000_000, 1_001_500, "memcpy", "[CUDA memcpy HtoD]", 2**20, "HtoD"),
        (2_000_001, 2_003_001, "kernel", "gemm(float*)", None, None),
    ]
    assert named(trace, "device_events", "device", "context", "stream", "correlation")[1] == (0, 1, 7, 11)
    assert trace.devices.select("device", "name").rows() == [(0, "Tesla K40c")]
    assert (trace.format, trace.clock, trace.accounting.read, trace.notes) == ("nvprof", "session", 2, ())


@pytest.mark.parametrize("unit", ["s", "ms", "us", "µs", "ns"])
@pytest.mark.parametrize(("size", "factor"), [("B", 1), ("KB", 2**10), ("MB", 2**20), ("GB", 2**30)])
def test_every_unit(path, unit, size, factor):
    units = UNITS.replace("ms,us", f"{unit},{unit}").replace("MB", size)
    trace = read_text(path, BANNER + RESULT + HEADER + units + copy(3, 2, "4"))
    nanoseconds = {"s": 10**9, "ms": 10**6, "us": 10**3, "µs": 10**3, "ns": 1}[unit]
    assert named(trace, "device_events", "start_ns", "end_ns", "nbytes") == [
        (3 * nanoseconds, 5 * nanoseconds, 4 * factor)
    ]
    assert bool(trace.notes) == (unit == "s")


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**7)), min_size=1, max_size=20))
def test_times_are_exact(tmp_path_factory, times):
    path = tmp_path_factory.mktemp("times") / "a.csv"
    content = "".join(
        kernel(f"{Decimal(start).scaleb(-6):f}", f"{Decimal(duration).scaleb(-3):f}") for start, duration in times
    )
    trace = read_text(path, START + content)
    assert sorted(trace.device_events.select("start_ns", "end_ns").rows()) == sorted(
        (start, start + duration) for start, duration in times
    )


@pytest.mark.parametrize(
    ("name", "activity", "kind"),
    [
        ("[CUDA memcpy DtoH]", "memcpy", "DtoH"),
        ("[CUDA memcpy DtoD]", "memcpy", "DtoD"),
        ("[CUDA memcpy PtoP]", "memcpy", "PtoP"),
        ("[CUDA memcpy HtoH]", "memcpy", "HtoH"),
        ("[CUDA memcpy HtoA]", "memcpy", "HtoD"),
        ("[CUDA memcpy AtoH]", "memcpy", "DtoH"),
        ("[CUDA peer-to-peer memcpy]", "memcpy", "PtoP"),
        ("[CUDA memcpy]", "memcpy", None),
        ("[CUDA memset]", "memset", None),
        ("[Unified Memory Memcpy HtoD]", "memcpy", "HtoD"),
        ("plain_kernel", "kernel", None),
    ],
)
def test_kinds_of_activities(path, name, activity, kind):
    trace = read_text(path, START + copy(name=name))
    assert named(trace, "device_events", "activity", "copy_kind", "name") == [(activity, kind, name)]


def test_unified_memory(path):
    header = HEADER.replace('"Name"', '"Unified Memory","Virtual Address","Name"')
    units = UNITS.replace("\n", ",,\n")
    row = '1,2,,,,,,,,,,,,"T (0)",,,{},0x7f00,"[Unified Memory {}]"\n'
    rows = [
        row.format("4.000000KB", "Memcpy HtoD"),
        row.format("1", "GPU page faults"),
        row.format("7", "page throttle"),
    ]
    fault = '3,,,,,,,,,,,,,,,,"PC 0x400b82",0x7f00,"[Unified Memory CPU page faults]"\n'
    trace = read_text(path, BANNER + RESULT + header + units + "".join(rows) + fault)
    assert named(trace, "device_events", "nbytes", "stream") == [(4096, -1)]
    assert trace.accounting.dropped == {"unified-memory": 3}


def test_gpu_and_api_rows_in_one_table(path):
    header = HEADER.replace('"Name"\n', '"Name","Correlation_ID"\n')
    units = UNITS.replace("\n", ",\n")
    gpu = kernel(name="gemm(int, <lambda>)").replace('"\n', '",5\n')
    calls = [
        '0.5,9,,,,,,,,,,,,,,,"cudaLaunchKernel (gemm(int, <lambda>) [5])",5\n',
        '0.1,1,,,,,,,,,,,,,,,"cudaFree",4\n',
    ]
    trace = read_text(path, BANNER + RESULT + header + units + "".join([*calls, gpu]))
    assert named(trace, "host_events", "name", "start_ns", "end_ns", "category", "correlation", "process") == [
        ("cudaFree", 100_000, 101_000, "runtime", 4, 7),
        ("cudaLaunchKernel", 500_000, 509_000, "runtime", 5, 7),
    ]
    assert named(trace, "device_events", "name", "correlation") == [("gemm(int, <lambda>)", 5)]
    assert "unlinked" not in trace.accounting.flagged


def test_a_launch_is_known_by_the_number_behind_its_kernel(path):
    api = RESULT + API_HEADER.replace(',"Correlation_ID"', "") + 'ms,us,\n0.5,9,"cudaLaunch (gemm(float*) [11])"\n'
    trace = read_text(path, START + kernel() + api)
    assert named(trace, "host_events", "name", "correlation") == [("cudaLaunch", 11)]
    assert trace.accounting.read == trace.accounting.kept == 2
    assert "unlinked" not in trace.accounting.flagged


def test_calls_alone_say_that_there_is_no_gpu(path):
    trace = read_text(path, "======== Profiling result:\n" + API_HEADER + 'us,us,,\n0.0,2.866,"cuDeviceGetCount",1\n')
    assert trace.device_events.is_empty()
    assert trace.host_events.height == 1
    assert "no GPU activities" in trace.notes[0]


def test_ranges_and_marks_of_nvtx(path):
    row = '{},{},"{}"\n'
    rows = [
        row.format(1, "", "[Marker] begin"),
        row.format(2, "", "[Range start] step (Domain: <unnamed>)"),
        row.format(3, "", "[Range start] forward (Domain: layers)"),
        row.format(4, "-", "[Range end] forward (Domain: layers)"),
        row.format(5, "", "[Range end] step"),
        row.format(6, "", "[Range end] never opened"),
        row.format(7, "", "[Range start] open"),
    ]
    trace = read_text(path, RESULT + '"Start","Duration","Name"\nns,ns,\n' + "".join(rows))
    assert named(trace, "annotations", "start_ns", "end_ns", "name", "domain") == [
        (1, 1, "begin", None),
        (2, 5, "step", None),
        (3, 4, "forward", "layers"),
        (7, None, "open", None),
    ]
    assert trace.accounting.dropped == {"range-end": 2, "unmatched": 1}


def test_ends_without_a_text_close_the_last_range(path):
    names = ("[Range start] a", "[Range start] b", "[Range end]", "[Range end]", "[Range start] a", "[Range end]")
    rows = "".join(f'{at},,"{name}"\n' for at, name in enumerate(names, start=1))
    trace = read_text(path, RESULT + '"Start","Duration","Name"\nns,ns,\n' + rows)
    assert named(trace, "annotations", "start_ns", "end_ns", "name") == [(1, 4, "a"), (2, 3, "b"), (5, 6, "a")]


def test_a_file_that_breaks_off_in_a_row(path):
    whole = START + kernel(1) + kernel(2)
    for cut in range(len(START + kernel(1)) + 1, len(whole) - 1):
        trace = read_text(path, whole[:cut])
        assert trace.accounting.read == 2
        assert trace.device_events.height == 1, whole[:cut][-40:]
        assert sum(trace.accounting.dropped.values()) == 1
    assert trace.accounting.dropped == {"truncated": 1}
    assert "breaks off" in trace.notes[0]
    assert read_text(path, whole[:-1]).device_events.height == 2


def test_what_the_program_prints_is_left_out_and_counted(path):
    content = "epoch 1, loss 3.2\n\n" + BANNER + "epoch 2\n" + RESULT + HEADER + UNITS + kernel() + "done, really\n\n"
    trace = read_text(path, content)
    assert trace.device_events.height == 1
    assert trace.accounting.dropped == {"text": 1}


def test_remarks_of_nvprof_stand_anywhere_and_warnings_are_quoted(path):
    warning = "==7== Warning: 376746 records have invalid timestamps due to insufficient device buffer space.\n"
    trace = read_text(path, START + kernel() + warning + kernel(5) + "======== some words\n")
    assert trace.device_events.height == trace.accounting.read == 2
    assert trace.notes[0].startswith("nvprof says: Warning: 376746 records")


def test_of_several_processes_the_busiest_is_read(path):
    second = RESULT.replace("7", "8") + HEADER + UNITS + kernel(5) + kernel(9)
    trace = read_text(path, START + kernel() + second)
    assert trace.device_events["start_ns"].to_list() == [5_000_000, 9_000_000]
    assert trace.accounting.dropped == {"other-process": 1}
    assert "2 processes" in trace.notes[0]
    assert "process 8 was read (2 of 3" in trace.notes[0]


def test_several_devices_and_streams(path):
    rows = [kernel(1), kernel(2, stream=14).replace("K40c (0)", "V100 (3)"), kernel(3).replace("K40c (0)", "Odd")]
    trace = read_text(path, START + "".join(rows))
    assert named(trace, "device_events", "device", "stream") == [(0, 7), (3, 14), (4, 7)]
    assert trace.devices.select("device", "name").rows() == [(0, "Tesla K40c"), (3, "Tesla V100"), (4, "Tesla Odd")]


def test_columns_may_be_fewer_or_more(path):
    few = '"Start","Duration","Name"\nus,us,\n1,2,"gemm(float*) [3]"\n2,3,"[CUDA memset]"\n'
    trace = read_text(path, RESULT + few)
    assert named(trace, "device_events", "activity", "device", "stream") == [("memset", 0, 0)]
    more = '"Start","Duration","SrcMemType","Device","Src Dev","Stream","Name","ipc","Correlation_ID"\nus,us,,,,,,,\n'
    trace = read_text(path, RESULT + more + '1,2,"Device","K (1)","K (0)","7","[CUDA memcpy PtoP]",,21\n')
    assert named(trace, "device_events", "device", "copy_kind", "correlation") == [(1, "PtoP", 21)]


def test_copies_are_named_with_the_memories_they_join(path):
    header = '"Start","Duration","Size","SrcMemType","DstMemType","Device","Context","Stream","Name"\nus,us,B,,,,,,\n'
    content = '1,2,3,"Pageable","Device","K (0)","1","7","[CUDA memcpy HtoD]"\n'
    content += '2,2,3,"Device",,"K (0)","1","7","[CUDA memset]"\n'
    trace = read_text(path, RESULT + header + content)
    assert trace.names.to_list() == ["[CUDA memcpy HtoD] (Pageable -> Device)", "[CUDA memset]"]


def test_names_with_commas_quotes_and_bad_utf8(path):
    odd = 'f<(char)34, ""x"">(int, int) [1]'
    trace = read_text(
        path,
        START.encode()
        + kernel(name=odd).encode()
        + kernel(9).replace("gemm", "g\udcff").encode("utf-8", "surrogateescape"),
    )
    assert named(trace, "device_events", "name") == [("f<(char)34, x>(int, int)",), ("g�(float*)",)]


def test_a_row_with_too_many_fields_is_malformed(path):
    unquoted = kernel(name="f<1, 2>()").replace('"f<1, 2>()"', "f<1, 2>()")
    trace = read_text(path, START + kernel() + unquoted)
    assert trace.accounting.dropped == {"malformed": 1}


def test_times_without_sense_are_dropped(path):
    rows = [kernel("1e300"), kernel(1, -5), kernel(1, "1e300"), kernel("nan"), kernel(2, "x")]
    trace = read_text(path, START + "".join(rows))
    assert trace.accounting.read == 5
    assert trace.accounting.dropped == {"invalid-time": 4, "text": 1}


def test_a_spreadsheet_wrote_it_again(path):
    semicolons = (START + copy("1234.5", "2.5", "1.5")).replace(",", ";").replace(".", ",").replace('"', "")
    trace = read_text(path, semicolons.replace("\n", "\r\n"))
    assert named(trace, "device_events", "start_ns", "end_ns", "nbytes") == [(1_234_500_000, 1_234_502_500, 1_572_864)]
    grouped = START + copy('"1,234.5"', '"2.5"', '"1.5"')
    assert named(read_text(path, grouped), "device_events", "start_ns") == [(1_234_500_000,)]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_windows_shell_wrote_it(path, encoding):
    mark = {"utf-16-le": "\ufeff", "utf-16-be": "\ufeff"}.get(encoding, "")
    content = (mark + START + kernel(name="gemm<Ċ>(int) [1]") * 3).replace("\n", "\r\n").encode(encoding)
    assert NvprofCsv().accepts(content[:65536], path)
    assert named(read_text(path, content), "device_events", "name") == [("gemm<Ċ>(int)",)] * 3


def test_gzip_is_read(path):
    assert read_text(path, gzip.compress((START + kernel()).encode())).device_events.height == 1


def test_an_empty_table(path):
    trace = read_text(path, START)
    assert trace.accounting.read == 0
    assert "no GPU activities" in trace.notes[0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,us,us,us,\n', "summary.*--print-gpu-trace"),
        ('==1== Profiling result:\n"Time(%)","Time","Calls","Avg","Min","Max","Name"\n', "summary.*--print-gpu-trace"),
        ("==1== Profiling result:\nTime(%)      Time     Calls       Avg  Name\n", "summary"),
        ("==1== Profiling result:\n            Type  Time(%)      Time     Calls\n", "summary"),
        ("==1== Profiling result:\n   Start  Duration   Grid Size   Device   Name\n", "form for reading.*--csv"),
        ('"Device","Kernel","Invocations","Metric Name","Metric Description","Min"\n', "metrics"),
        ('"Kernel","Module","Op","Direction","Sil(ns)","TC"\n', "pyprof.*database"),
        ('"Idx","Direction","Sub","Module","Op","Kernel","Params","Sil(ns)"\n', "pyprof"),
        (BANNER + "==7== No kernels were profiled.\n", "nvprof says “No kernels were profiled"),
        (BANNER + RESULT + HEADER + kernel(), "in which units"),
        (START + "x" * 900_000, None),
    ],
)
def test_relatives_are_refused_by_name(path, content, problem):
    write(path, content)
    assert NvprofCsv().accepts(content[:65536].encode(), path)
    if problem is None:
        assert NvprofCsv().read(path).accounting.dropped == {"text": 1}
        return
    with pytest.raises(TraceError, match=problem) as refusal:
        NvprofCsv().read(path)
    assert "\n" not in str(refusal.value)


def test_a_line_without_an_end_is_refused(path):
    write(path, START + "x" * 9_000_000)
    with pytest.raises(TraceError, match="a line of more than"):
        NvprofCsv().read(path)


def test_columns_without_number_are_refused(path):
    write(path, RESULT + API_HEADER.strip() + "," * 1_000_000 + "\n")
    with pytest.raises(TraceError, match="more than 1000 columns"):
        NvprofCsv().read(path)


def test_tables_without_number_are_refused(path):
    write(path, START + HEADER * 10_001)
    with pytest.raises(TraceError, match="more than 10000 tables"):
        NvprofCsv().read(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a,b\n1,2\n",
        b'"Start (ns)","Duration (ns)","CorrId","Name"\n',
        b'"Kind","Start_Timestamp"\n',
        b"{}",
        b"\0" * 99,
    ],
)
def test_other_texts_are_not_accepted(path, content):
    assert kind_of_text(content) is None
    with pytest.raises(TraceError):
        NvprofCsv().read(write(path, content))


def test_pieces_may_end_anywhere(path, monkeypatch):
    content = START + "".join(kernel(at, name=f"k{at}, ü<é>() [{at}]") for at in range(1, 40)) + copy(99)
    whole = read_text(path, content)
    for size in (100, 333, 1024):
        monkeypatch.setattr("deepprof.collectors.importers.nvprof.csv_files.PIECE_NBYTES", size)
        for encoding in ("utf-8", "utf-16"):
            pieces = read_text(path, content.encode(encoding))
            assert pieces.names.equals(whole.names)
            assert pieces.device_events.equals(whole.device_events)


FIELD = st.text(st.characters(codec="utf-8", exclude_characters='"\n\r\x1f\0'), max_size=8)


@given(st.lists(st.lists(FIELD, min_size=3, max_size=3), min_size=1, max_size=12))
def test_quoted_fields_come_back_as_they_were(table):
    content = "\n".join(",".join(f'"{field}"' for field in row) for row in table).encode()
    lines = split_lines(content, ["a", "b", "c"], b",")
    assert [list(row) for row in lines.fields.rows()] == table
    assert lines.closed.all()
    assert set(lines.separators) == {2}


@given(st.lists(st.text('ab,"', min_size=1, max_size=9), min_size=1, max_size=12), st.data())
def test_a_quote_spoils_its_own_line_only(lines, data):
    spoiled = data.draw(st.integers(0, len(lines) - 1))
    content = [*lines]
    content[spoiled] = '"' + lines[spoiled]
    before, after = (split_lines("\n".join(texts).encode(), ["a", "b"], b",") for texts in (lines, content))
    others = pl.Series([at != spoiled for at in range(len(lines))])
    assert before.fields.filter(others).equals(after.fields.filter(others))
    assert before.closed[spoiled] != after.closed[spoiled]


def test_numbers_in_every_spelling():
    texts = pl.Series(["1.5", " 2 ", "1,234.5", "", None, "-", "inf", "1e3"])
    assert numbers(texts, b",").to_list() == [1.5, 2.0, 1234.5, None, None, None, None, 1000.0]
    assert numbers(pl.Series(["1,5", "1234,25"]), b";").to_list() == [1.5, 1234.25]
