"""Any table with a mapping of its columns: CSV in every dialect, Parquet, Arrow, and what is said of those without."""

from __future__ import annotations

import csv
import gzip
import random
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deepprof
from deepprof.collectors.errors import DeepProfError, TraceError, UsageError
from deepprof.collectors.importers.files import read_head
from deepprof.collectors.importers.generic import Csv, Parquet, explain
from deepprof.collectors.importers.generic.columns import EXAMPLE, KEYS, GenericColumns, parse_columns, suggest
from deepprof.collectors.importers.generic.values import activities, copy_kinds, durations, numbers, places
from deepprof.collectors.trace import Trace
from tests.chance import examples
from tests.collectors.damage import checked, damaged
from tests.manifest import path_of
from tests.manifest import rows as listed

MAPPING = {"start": "Start", "duration": "Length", "name": "Kernel", "stream": "Stream", "unit": "us"}
TEXT = "Kernel,Start,Length,Stream\ngemm,10.5,2,7\nrelu,13.25,0.001,7\n[CUDA memcpy HtoD],1,1,13\n"


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def events(trace: Trace) -> list[tuple[object, ...]]:
    named = trace.device_events.with_columns(trace.names.gather(trace.device_events["name_id"]).alias("name"))
    return named.select("name", "start_ns", "end_ns", "stream", "activity").rows()


def refusal(path: Path, columns: object = None) -> str:
    with pytest.raises(DeepProfError) as caught:
        deepprof.read(path, columns=columns)
    assert str(caught.value).isprintable()
    return str(caught.value)


EXPECTED = [
    ("[CUDA memcpy HtoD]", 1000, 2000, 13, "memcpy"),
    ("gemm", 10500, 12500, 7, "kernel"),
    ("relu", 13250, 13251, 7, "kernel"),
]


def test_a_mapped_csv_is_a_trace(tmp_path):
    trace = deepprof.read(write(tmp_path / "a.csv", TEXT), columns=MAPPING)
    assert events(trace) == EXPECTED
    assert trace.format == "csv"
    assert trace.clock == "session"
    assert trace.device_events["copy_kind"].to_list() == ["HtoD", None, None]
    assert trace.accounting.read == trace.accounting.kept == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(",", "\t"),
        lambda text: text.replace(",", ";").replace(".", ","),
        lambda text: text.replace(",", "|"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: "# made by a tool, version 1\n\n" + text,
        lambda text: text.replace("\n", ",extra\n").replace("Stream,extra", "Stream,Other"),
        lambda text: text + "\n\n",
        lambda text: text.rstrip("\n"),
        lambda text: "\n".join(",".join(f'"{field}"' for field in line.split(",")) for line in text.split("\n")),
        lambda text: text.replace(",7\n", ",stream 7\n").replace(",13\n", ",stream 13\n"),
    ],
)
def test_every_dialect_is_read(tmp_path, change):
    assert events(deepprof.read(write(tmp_path / "a.csv", change(TEXT)), columns=MAPPING)) == EXPECTED


def test_a_packed_csv_is_read(tmp_path):
    path = write(tmp_path / "a.csv.gz", gzip.compress(TEXT.encode()))
    assert events(deepprof.read(path, columns=MAPPING)) == EXPECTED


@pytest.mark.parametrize("form", ["parquet", "ipc", "ipc_stream"])
def test_parquet_and_arrow_are_read(tmp_path, form):
    frame = pl.read_csv(TEXT.encode())
    getattr(frame, f"write_{form}")(tmp_path / "a")
    trace = deepprof.read(tmp_path / "a", columns=MAPPING)
    assert events(trace) == EXPECTED
    assert trace.format == "parquet"


def test_the_mapping_may_be_a_text_or_a_file(tmp_path):
    path = write(tmp_path / "a.csv", TEXT)
    text = "start=Start,duration=Length, name=Kernel,stream=Stream,unit=us"
    assert events(deepprof.read(path, columns=text)) == EXPECTED
    toml = write(tmp_path / "m.toml", "".join(f'{key} = "{value}"\n' for key, value in MAPPING.items()))
    assert events(deepprof.read(path, columns=str(toml))) == EXPECTED
    assert parse_columns(toml) == parse_columns(MAPPING) == parse_columns(text)


def test_a_column_may_have_commas_and_signs_in_its_name():
    columns = parse_columns("start=Start, in us,end=End (=last),name=N")
    assert columns == GenericColumns(start="Start, in us", end="End (=last)", name="N")


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("start=a,end=b,name=c,colour=d", "unknown key 'colour'; keys are start, name, end"),
        ("start=a,name=c", "either end or duration is needed"),
        ("start=a,end=b", "missing required field name"),
        ("start=a,end=b,name=c,unit=days", "unit"),
        ("start", "'start' names no column"),
        ("start=,end=b,name=c", "'start' names no column"),
        ("", "names no column"),
        ("start=a,start=b,end=c,name=d", "'start' comes twice"),
        ({"start": "a", "end": 5, "name": "c"}, "Expected str"),
        ("none.toml", "no such file"),
    ],
)
def test_a_mapping_that_makes_no_sense_is_one_line(tmp_path, columns, problem):
    assert problem in refusal(write(tmp_path / "a.csv", TEXT), columns)


def test_a_mapping_file_that_is_no_toml_is_one_line(tmp_path):
    toml = write(tmp_path / "m.toml", "start = [\n")
    with pytest.raises(TraceError, match="is no TOML"):
        parse_columns(toml)
    with pytest.raises(UsageError, match=r"unknown key 'tool'; keys are"):
        parse_columns(write(tmp_path / "p.toml", "[tool]\na = 1\n"))


def test_a_missing_column_is_named_with_those_that_come_near(tmp_path):
    path = write(tmp_path / "a.csv", TEXT)
    said = refusal(path, {**MAPPING, "start": "start"})
    assert "has no column 'start' for start; did you mean 'Start'" in said
    assert "its columns are 'Kernel', 'Start', 'Length', 'Stream'" in refusal(path, {**MAPPING, "device": "???"})


def test_a_table_without_a_mapping_is_told_of_the_flag(tmp_path):
    said = refusal(write(tmp_path / "a.csv", TEXT))
    assert "is a table of 'Kernel', 'Start', 'Length', 'Stream'" in said
    assert "--columns start=COLUMN,duration=COLUMN,name=COLUMN" in said
    pl.DataFrame({"A": [1], "B": [2]}).write_parquet(tmp_path / "b.parquet")
    assert "is a table of 'A', 'B'" in refusal(tmp_path / "b.parquet")


@pytest.mark.parametrize(
    "content", [b"", b"hello\n", b"a, b and c\nd\n", b"\0a,b,c\n1,2,3\n", b"1,2,3\n4,5,6\n", b"{}"]
)
def test_what_is_no_table_is_not_called_one(tmp_path, content):
    assert explain(content, write(tmp_path / "a", content)) is None
    assert "no table with a header" in refusal(tmp_path / "a", MAPPING)


OWN = "start_ns,end_ns,name,device,stream,activity,correlation,nbytes,copy_kind,thread\n"


def test_the_flag_is_shown_filled_in_where_the_columns_have_usual_names(tmp_path):
    header = "Start (ns),Duration (ns),CorrId,GrdX,Bytes (MB),Device,Ctx,Strm,Name\n"
    row = "1200,300,17,8,,NVIDIA H100 (1),1,7,gemm\n"
    path = write(tmp_path / "gpu_trace.csv", header + row)
    said = refusal(path)
    flag = "start=Start (ns),duration=Duration (ns),name=Name,stream=Strm,device=Device,correlation=CorrId,unit=ns"
    assert f"--columns '{flag}'" in said
    trace = deepprof.read(path, columns=flag)
    assert trace.device_events.select("start_ns", "end_ns", "device", "stream", "correlation").rows() == [
        (1200, 1500, 1, 7, 17)
    ]
    assert suggest(["ts", "dur", "name"]) == "start=ts,duration=dur,name=name,unit=us"
    assert suggest(["Begin", "End", "Kernel", "x; rm -rf"]) == "start=Begin,end=End,name=Kernel,unit=us"
    assert suggest(["Start", "Name"]) == suggest([]) == EXAMPLE


def test_our_own_names_need_no_mapping(tmp_path):
    rows = "5,9,gemm,1,7,kernel,3,,,\n1,2,copy,1,8,memcpy,4,100,D2H,\n0,1,cudaLaunchKernel,,,runtime,3,,,42\n"
    ranges = "0,20,iteration,,,annotation,,,,42\n1,,open,,,annotation,,,,42\n"
    path = write(tmp_path / "a.csv", OWN + rows + ranges)
    assert Csv().accepts(read_head(path), path)
    trace = deepprof.read(path)
    assert events(trace) == [("copy", 1, 2, 8, "memcpy"), ("gemm", 5, 9, 7, "kernel")]
    assert trace.device_events.select("device", "correlation", "nbytes", "copy_kind").rows() == [
        (1, 4, 100, "DtoH"),
        (1, 3, None, None),
    ]
    assert trace.host_events.select("category", "thread", "correlation").rows() == [("runtime", 42, 3)]
    assert trace.annotations["end_ns"].to_list() == [20, None]
    assert trace.accounting.read == trace.accounting.kept == 5
    pl.read_csv(path).write_parquet(tmp_path / "a.parquet")
    assert Parquet().accepts(read_head(tmp_path / "a.parquet"), tmp_path / "a.parquet")
    assert events(deepprof.read(tmp_path / "a.parquet")) == events(trace)


def test_one_event_and_none(tmp_path):
    assert deepprof.read(write(tmp_path / "a.csv", "start_ns,duration_ns,name\n1,2,a")).device_events.height == 1
    assert deepprof.read(write(tmp_path / "b.csv", "start_ns,duration_ns,name\n")).accounting.read == 0
    pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64, "name": pl.String}).write_parquet(tmp_path / "c")
    assert deepprof.read(tmp_path / "c").accounting.read == 0


def test_rows_that_make_no_sense_are_counted(tmp_path):
    rows = [
        "x,1,a,1",
        "1,x,b,1",
        "5,1,c,1",
        "1,99999999999999999999999,d,1",
        "1,2,,1",
        "1,2,f,-1",
        "1,2,g,70000",
        "1,2,h,",
    ]
    trace = deepprof.read(write(tmp_path / "a.csv", "start_ns,end_ns,name,device\n" + "\n".join(rows)))
    assert trace.accounting.read == 8
    assert trace.accounting.dropped == {"invalid-time": 4, "invalid-place": 3}
    assert trace.accounting.flagged["unnamed"] == 1


def test_host_rows_alone_are_said_to_be_so(tmp_path):
    trace = deepprof.read(write(tmp_path / "a.csv", "start_ns,end_ns,name,activity\n1,2,a,op\n"))
    assert "no row of the table is of a device" in trace.notes


def test_streams_without_numbers_are_numbered_and_told(tmp_path):
    trace = deepprof.read(write(tmp_path / "a.csv", TEXT.replace(",7\n", ",main\n")), columns=MAPPING)
    assert [row[3] for row in events(trace)] == [0, 1, 1]
    assert "stream has no numbers, so its values are numbered: 0 is '13', 1 is 'main'" in trace.notes


@given(
    st.decimals(-(10**12), 10**12, places=9, allow_nan=False, allow_infinity=False),
    st.sampled_from(["ns", "us", "ms", "s"]),
)
def test_times_written_as_text_are_exact_to_the_last_digit(value, unit):
    if abs(value) > 10**9 and unit == "s":
        value /= 1000
    power = {"ns": 0, "us": 3, "ms": 6, "s": 9}[unit]
    text = f"{value:f}"
    whole, _, fraction = text.lstrip("-").partition(".")
    expected = int(whole + fraction[:power].ljust(power, "0")) * (-1 if text.startswith("-") else 1)
    assert durations(pl.Series([text]), unit).to_list() == [expected]


def test_numbers_of_other_places_are_read():
    assert durations(pl.Series(["1,234,567.5", "1.5e3", " 7 ", "-0.5", "", None, "a"]), "us").to_list() == [
        1_234_567_500,
        1_500_000,
        7000,
        -500,
        None,
        None,
        None,
    ]
    assert durations(pl.Series(["1,5"]), "us", decimal_comma=True).to_list() == [1500]
    assert durations(pl.Series([1.5, float("nan"), float("inf"), -2.0, 1e300]), "s").to_list() == [
        1_500_000_000,
        None,
        None,
        -2_000_000_000,
        None,
    ]
    assert durations(pl.Series([5, 2**62, None]), "us").to_list() == [5000, None, None]
    assert durations(pl.Series([datetime(1970, 1, 1, 0, 0, 1)]), "us").to_list() == [10**9]
    assert durations(pl.Series([Decimal("1.5"), None]), "us").to_list() == [1500, None]
    assert numbers(pl.Series(["1,024", "7.0", "x", None])).to_list() == [1024, 7, None, None]


def test_places_are_the_numbers_that_texts_end_in():
    found, named = places(pl.Series(["NVIDIA H100 (0)", "NVIDIA H100 (1)", None]))
    assert (found.to_list(), named) == ([0, 1, None], [])
    found, named = places(pl.Series(["b 1", "a 1"]))
    assert (found.to_list(), named) == ([1, 0], ["a 1", "b 1"])
    assert places(pl.Series([3, 4]))[0].to_list() == [3, 4]


def test_words_tell_activities_and_directions():
    words = ["Kernel", "gpu_memcpy", "MEMSET", "cuda_runtime", "cpu_op", "user_annotation", "GEMM", None, ""]
    names = pl.Series(["x"] * 7 + ["Memcpy HtoD (Pinned -> Device)", "[CUDA memset]"])
    assert activities(pl.Series(words), names).to_list() == [
        *("kernel", "memcpy", "memset", "runtime", "op", "annotation", "kernel", "memcpy", "memset")
    ]
    kinds = ["HtoD", "[CUDA memcpy DtoH]", "Host-to-Device", "CopyDeviceToDevice", "p2p", "H2H", "gemm", None]
    assert copy_kinds(pl.Series(kinds)).to_list() == ["HtoD", "DtoH", "HtoD", "DtoD", "PtoP", "HtoH", None, None]


@pytest.mark.traces
@pytest.mark.parametrize("row", listed("rocprofv3-csv"))
def test_a_real_table_is_read_through_a_mapping(traces, row):
    path = path_of(row)
    with path.open(newline="") as lines:
        table = list(csv.DictReader(lines))
    mapping = {"start": "Start_Timestamp", "end": "End_Timestamp", "name": "Kernel_Name", "stream": "Queue_Id"}
    trace = deepprof.read(path, columns=mapping)
    assert trace.accounting.read == len(table)
    assert trace.device_events["start_ns"].to_list() == sorted(int(record["Start_Timestamp"]) for record in table)


@pytest.mark.traces
@pytest.mark.parametrize("row", listed())
def test_no_real_file_is_accepted_without_a_mapping(traces, row):
    path = path_of(row)
    head = read_head(path)
    assert not Csv().accepts(head, path)
    assert not Parquet().accepts(head, path)
    explain(head, path)


def test_directories_and_missing_files_are_one_line(tmp_path):
    assert "is a directory" in refusal(tmp_path, MAPPING)
    assert "no such file" in refusal(tmp_path / "none", MAPPING)
    assert not Csv().accepts(b"", tmp_path)
    assert not Parquet().accepts(b"", tmp_path)


def test_two_columns_of_one_name_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", TEXT.replace("Length", "Start"))
    assert "has two columns called 'Start'" in refusal(path, {**MAPPING, "duration": "Start"})


@pytest.mark.parametrize("form", ["csv", "parquet", "ipc", "ipc_stream"])
def test_damage_gives_a_trace_or_one_line(tmp_path, form):
    frame = pl.read_csv((OWN + "5,9,gemm,1,7,kernel,3,,,\n1,2,copy,1,8,memcpy,4,100,D2H,\n" * 40).encode())
    getattr(frame, f"write_{form}")(tmp_path / "a")
    importer = Csv() if form == "csv" else Parquet()
    for piece in damaged((tmp_path / "a").read_bytes(), random.Random(form).randrange(99), 50):
        path = write(tmp_path / "b", piece)
        importer.accepts(piece[:65536], path)
        explain(piece, path)
        try:
            counts = importer.read(path).accounting
            assert counts.read == counts.kept + sum(counts.dropped.values())
        except TraceError as error:
            checked(error)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(st.lists(st.lists(st.text(max_size=8) | st.integers().map(str), min_size=3, max_size=5), max_size=8))
def test_any_fields_give_a_trace_or_one_line(tmp_path, table):
    path = tmp_path / "a.csv"
    with path.open("w", newline="", encoding="utf-8", errors="replace") as file:
        csv.writer(file).writerows([["start_ns", "end_ns", "name"], *table])
    try:
        counts = deepprof.read(path).accounting
        assert counts.read == counts.kept + sum(counts.dropped.values())
    except TraceError as error:
        checked(error)


def test_the_keys_are_those_of_the_documentation():
    assert set(KEYS) == {
        *("start", "end", "duration", "unit", "name", "device", "stream", "thread"),
        *("activity", "copy_kind", "nbytes", "correlation"),
    }
