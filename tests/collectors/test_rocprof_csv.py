"""rocprof's CSV files: the real ones against Python's csv module, other versions' columns, runs of several files."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from deepprof.collectors import importers
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.amd.rocprof import Rocprof
from deepprof.collectors.importers.amd.rocprof_csv import table_of
from deepprof.collectors.importers.directories import list_traces
from deepprof.collectors.trace import Trace
from tests.collectors.damage import damaged, read_or_refuse, survives
from tests.collectors.rocpd_database import Writer, process

KERNELS = '"Kind","Agent_Id","Queue_Id","Stream_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
KERNEL = '"KERNEL_DISPATCH","Agent {agent}","1","2","{name}","{id}","{start}","{end}"\n'
COPIES = (
    '"Kind","Direction","Stream_Id","Source_Agent_Id","Destination_Agent_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    '"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE","2","Agent 0","Agent 4","9","1","3"\n'
    '"MEMORY_COPY","MEMORY_COPY_DEVICE_TO_HOST","2","Agent 4","Agent 0","10","4","6"\n'
)
CALLS = (
    '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    '"HIP_RUNTIME_API_EXT","hipLaunchKernel","70","71","5","8","9"\n'
)
MARKERS = (
    '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    '"MARKER_CORE_RANGE_API","iteration, the first","70","71","6","1","90"\n'
)
MEMORY = (
    '"Kind","Operation","Agent_Id","Allocation_Size","Address","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
    '"MEMORY_ALLOCATION","MEMORY_ALLOCATION_ALLOCATE","Agent 4","512","0x00007f","1","1","2"\n'
    '"MEMORY_ALLOCATION","MEMORY_ALLOCATION_FREE","","0","0x00007f","1","7","8"\n'
)
AGENTS = (
    '"Node_Id","Logical_Node_Id","Agent_Type","Cu_Count","Name","Product_Name"\n'
    '0,0,"CPU",0,"EPYC","EPYC"\n3,3,"GPU",304,"gfx942","MI300X"\n4,4,"GPU",304,"gfx942","MI300X"\n'
)


def kernels(*starts: int, agent: int = 4, name: str = "k") -> str:
    return KERNELS + "".join(KERNEL.format(agent=agent, name=name, id=5, start=at, end=at + 5) for at in starts)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    assert Rocprof().accepts(path.read_bytes()[:65536], path) or table_of(path.read_bytes()) == "agents"
    return path


def names(trace: Trace, table: str = "device_events") -> list[str]:
    return [trace.name(i) for i in getattr(trace, table)["name_id"]]


@pytest.mark.traces
@pytest.mark.parametrize(("prefix", "streams", "calls"), [("decode", 1, True), ("prefill", 2, False)])
def test_a_real_file_holds_what_the_csv_module_reads(traces, prefix, streams, calls):
    directory = traces / "rocprofv3-csv-llamacpp"
    trace = importers.read(directory / f"{prefix}_kernel_trace.csv")
    with (directory / f"{prefix}_kernel_trace.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    expected = sorted(
        (
            int(r["Start_Timestamp"]),
            int(r["End_Timestamp"]),
            int(r["Correlation_Id"]),
            r["Kernel_Name"].removesuffix(".kd"),
            int(r["Stream_Id"]),
        )
        for r in rows
    )
    columns = trace.device_events.select("start_ns", "end_ns", "correlation").rows()
    found = zip(columns, names(trace), trace.device_events["stream"], strict=True)
    assert [(*times, name, stream) for times, name, stream in found] == expected
    assert trace.device_events["stream"].n_unique() == streams
    with (directory / "decode_hip_api_trace.csv").open(newline="") as file:
        host = list(csv.DictReader(file)) if calls else []
    assert trace.host_events.height == len(host) == (920 if calls else 0)
    assert trace.accounting.read == trace.accounting.kept == len(rows) + len(host)
    assert trace.device_events["device"].unique().to_list() == [0]
    assert trace.devices["name"].to_list() == ["Agent 1"]


@pytest.mark.traces
def test_the_real_directory_is_two_traces(traces):
    found = list_traces(traces / "rocprofv3-csv-llamacpp").traces
    assert [path.name for path in found] == ["decode_kernel_trace.csv", "prefill_kernel_trace.csv"]
    alone = importers.read(traces / "rocprofv3-csv-llamacpp" / "decode_hip_api_trace.csv")
    assert (alone.device_events.height, alone.host_events.height) == (0, 920)
    assert "no kernels and no copies" in alone.notes[0]
    assert "name decode_kernel_trace.csv" in alone.notes[1]


def test_the_files_of_a_run_are_one_trace(tmp_path):
    run = {
        "kernel_trace": kernels(10, 20),
        "memory_copy_trace": COPIES,
        "hip_api_trace": CALLS,
        "marker_api_trace": MARKERS,
        "memory_allocation_trace": MEMORY,
        "agent_info": AGENTS,
    }
    for end, text in run.items():
        write(tmp_path / f"70_{end}.csv", text)
    write(tmp_path / "8_hip_api_trace.csv", CALLS)  # another run
    write(tmp_path / "170_hip_api_trace.csv", CALLS)
    trace = Rocprof().read(tmp_path / "70_kernel_trace.csv")
    assert names(trace) == ["Memcpy HtoD", "Memcpy DtoH", "k", "k"]
    assert trace.device_events["device"].to_list() == [1, 1, 1, 1]  # the second GPU that agent_info lists
    assert trace.device_events["stream"].to_list() == [2, 2, 2, 2]
    assert names(trace, "host_events") == ["hipLaunchKernel"]
    assert names(trace, "annotations") == ["iteration, the first"]
    assert trace.memory_events.select("time_ns", "device", "nbytes", "address").rows() == [
        (2, 1, 512, 127),
        (8, 1, -512, 127),
    ]
    assert trace.devices.select("device", "name", "multiprocessors").rows() == [(1, "MI300X", 304)]
    assert trace.accounting.read == trace.accounting.kept == 8
    assert [path.name for path in list_traces(tmp_path).traces] == [
        *("8_hip_api_trace.csv", "70_kernel_trace.csv", "170_hip_api_trace.csv")
    ]
    alone = Rocprof().read(tmp_path / "70_memory_copy_trace.csv")
    assert alone.device_events["device"].to_list() == [1, 1]


def test_links_and_other_compressions_are_no_part_of_a_run(tmp_path):
    outside = write(tmp_path / "elsewhere.csv", CALLS)
    run = tmp_path / "run"
    run.mkdir()
    write(run / "a_kernel_trace.csv", kernels(1))
    (run / "a_hip_api_trace.csv").symlink_to(outside)
    (run / "a_marker_api_trace.csv").mkdir()
    with gzip.open(run / "a_hsa_api_trace.csv.gz", "wt") as file:
        file.write(CALLS)
    trace = Rocprof().read(run / "a_kernel_trace.csv")
    assert (trace.device_events.height, trace.host_events.height) == (1, 0)
    assert list(Rocprof().covers(run / "a_kernel_trace.csv")) == []


def test_a_damaged_part_of_a_run_is_named(tmp_path):
    with gzip.open(tmp_path / "a_kernel_trace.csv.gz", "wt") as file:
        file.write(kernels(1))
    (tmp_path / "a_hip_api_trace.csv.gz").write_bytes(gzip.compress(CALLS.encode())[:-9])
    with pytest.raises(TraceError, match=r"a_hip_api_trace.csv.gz: is truncated"):
        Rocprof().read(tmp_path / "a_kernel_trace.csv.gz")


VERSIONS = {
    "rocprofv3 before streams": (
        '"Kind","Agent_Id","Queue_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp","Private_Segment_Size"\n'
        '"KERNEL_DISPATCH",1,139690710949888,15,"k, (int)",0,14955949675563,14955950239443,0\n',
        (14955949675563, 14955950239443, "k, (int)", 139690710949888),
    ),
    "by GPU": (
        '"Kind","Agent_Id","Queue_Id","Stream_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"\n'
        '"KERNEL_DISPATCH","GPU 0","1","7","k, (int)","0","1","2"\n',
        (1, 2, "k, (int)", 7),
    ),
    "rocprof 2": (
        "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID\r\n"
        '1,4,3,1584730,1584730,10,"k, (int) [clone .kd]",100,200,8\r\n',
        (100, 200, "k, (int)", 3),
    ),
    "rocprof 1": (
        '"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","sig","obj","DispatchNs","BeginNs","EndNs","CompleteNs","DurationNs"\n'
        '0,"k, (int).kd",2,1,0,3495164,3495164,"0x0","0x1",900,1000,1100,1200,100\n',
        (1000, 1100, "k, (int)", 1),
    ),
    "through a spreadsheet": (
        "\ufeffKind;Agent_Id;Queue_Id;Kernel_Name;Start_Timestamp;End_Timestamp\n"
        "KERNEL_DISPATCH;Agent 4;2;k, (int);5;6\n",
        (5, 6, "k, (int)", 2),
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_versions_columns_are_understood(tmp_path, version):
    text, expected = VERSIONS[version]
    trace = Rocprof().read(write(tmp_path / "results.csv", text))
    row = trace.device_events.row(0, named=True)
    assert (row["start_ns"], row["end_ns"], names(trace)[0], row["stream"]) == expected
    assert (row["device"], trace.accounting.read) == (0, 1)


@pytest.mark.parametrize(("last", "said"), [(40, "36 of 40 dispatches are not in the file"), (4, "")])
def test_numbers_of_dispatches_show_how_many_are_missing(tmp_path, last, said):
    header = '"Kind","Agent_Id","Queue_Id","Dispatch_Id","Kernel_Name","Start_Timestamp","End_Timestamp"\n'
    rows = "".join(f'"KERNEL_DISPATCH","Agent 4",1,{at},"k",{at * 10},{at * 10 + 5}\n' for at in (1, 2, 3, last))
    notes = Rocprof().read(write(tmp_path / "a_kernel_trace.csv", header + rows)).notes
    assert [note.partition(":")[0] for note in notes if "dispatches" in note] == ([said] if said else [])


def test_counter_files_give_each_dispatch_once(tmp_path):
    header = '"Dispatch_Id","Agent_Id","Queue_Id","Kernel_Name","Counter_Name","Start_Timestamp","End_Timestamp"\n'
    rows = "".join(f'{at},"Agent 4",1,"k","{counter}",{at * 10},{at * 10 + 5}\n' for at in (1, 2) for counter in "ABC")
    path = write(tmp_path / "a_counter_collection.csv", header + rows)
    trace = Rocprof().read(path)
    assert (trace.device_events.height, trace.accounting.dropped) == (2, {"counter": 4})
    write(tmp_path / "a_kernel_trace.csv", kernels(10, 20))
    trace = Rocprof().read(tmp_path / "a_kernel_trace.csv")
    assert (trace.device_events.height, trace.accounting.dropped) == (2, {"counter": 6})


def test_a_header_alone_is_a_trace_without_events(tmp_path):
    trace = Rocprof().read(write(tmp_path / "a_kernel_trace.csv", KERNELS))
    assert (trace.accounting.read, trace.device_events.height) == (0, 0)
    assert "no kernels and no copies" in trace.notes[0]


def test_a_file_cut_in_a_row_loses_that_row_alone(tmp_path):
    text = kernels(1, 10, 20)
    trace = Rocprof().read(write(tmp_path / "a_kernel_trace.csv", text[: text.rindex('"20"') + 2]))
    assert (trace.device_events.height, trace.accounting.dropped) == (2, {"truncated": 1})


@pytest.mark.parametrize("value", ["", "x", "1.5", "-1", "99999999999999999999999", "1e400", "\xff"])
@pytest.mark.parametrize("column", range(8))
def test_values_that_make_no_sense_cost_one_row_at_most(tmp_path, column, value):
    rows = kernels(1, 10).splitlines()
    cells = next(csv.reader([rows[2]]))
    cells[column] = value
    text = "\n".join([*rows[:2], ",".join(f'"{cell}"' for cell in cells)])
    trace = Rocprof().read(write(tmp_path / "a_kernel_trace.csv", text))
    assert trace.accounting.read == 2
    assert trace.accounting.kept >= 1


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n", "a,b\n1,2\n", '"Name","Calls","TotalDurationNs"\n', AGENTS),
        *("Start,Duration,Name\ns,us,\n1,2,k\n", '"Kernel_Name"\n"k"\n', "x" * 300_000, '"' * 1000),
    ],
)
def test_other_files_are_one_line(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(text)
    assert not Rocprof().accepts(text.encode()[:65536], path)
    with pytest.raises(TraceError, match="is no JSON or CSV trace of rocprof"):
        Rocprof().read(path)


def test_damage_beside_a_sound_file_is_a_trace_or_one_line(tmp_path):
    write(tmp_path / "a_kernel_trace.csv", kernels(1, 2))
    sound = tmp_path / "a_kernel_trace.csv"
    for piece in damaged(AGENTS.encode(), count=15):
        (tmp_path / "a_agent_info.csv").write_bytes(piece)
        assert isinstance(read_or_refuse(Rocprof(), sound), Trace | TraceError)


def test_damaged_files_are_a_trace_or_one_line(tmp_path):
    path = write(tmp_path / "a_kernel_trace.csv", kernels(*range(0, 300, 10), name="void f<int, 3>(int const*)"))
    assert survives(Rocprof(), path, path.read_bytes()) > 0


def test_a_run_in_several_formats_counts_once(tmp_path):
    names = ("70_results.db", "70_results.json", "70_results.pftrace", "70_kernel_trace.csv", "70_hip_api_trace.csv")
    writer = Writer(tmp_path / names[0], "3.0")
    process(writer)
    writer.close()
    (tmp_path / names[1]).write_text('{"rocprofiler-sdk-tool": []}')
    (tmp_path / names[2]).write_bytes(b"\n\x05trace")
    write(tmp_path / names[3], kernels(1))
    write(tmp_path / names[4], CALLS)
    (tmp_path / "other").mkdir()
    write(tmp_path / "other" / "70_kernel_trace.csv", kernels(1))
    for at, first in enumerate((*names[:2], None, names[3], names[4])):
        if first is not None:
            found = list_traces(tmp_path).traces
            assert [path.relative_to(tmp_path).as_posix() for path in found] == [first, "other/70_kernel_trace.csv"]
        (tmp_path / names[at]).unlink()
