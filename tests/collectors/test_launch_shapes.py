"""How kernels were launched: registers, shared memory, grid and block, from every format that records them."""

from __future__ import annotations

import gzip
import json
from math import prod
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace

from deepprof.collectors.importers import read as read_any
from deepprof.collectors.importers.amd.rocpd import Rocpd
from deepprof.collectors.importers.amd.rocprof import Rocprof
from deepprof.collectors.importers.amd.rpd import Rpd
from deepprof.collectors.importers.assembly import Records, assemble
from deepprof.collectors.importers.kineto import Kineto
from deepprof.collectors.importers.launch_shapes import blocks_of, launch_shapes, product_of, shape_columns, volume_of
from deepprof.collectors.importers.nsys import Nsys
from deepprof.collectors.processes import split_processes
from deepprof.collectors.time_range import cut
from deepprof.collectors.trace import LAUNCH_SHAPES, Process, Trace, empty_table
from tests.collectors import nsys_database, rocpd_database, rpd_database
from tests.collectors.damage import survives
from tests.collectors.documents import event, kernel
from tests.collectors.test_rocprof_json import dispatch, process
from tests.tables import event as on_device
from tests.tables import make_trace, table

SIDES = {"gridX": 2, "gridY": 3, "gridZ": 4, "blockX": 32, "blockY": 8, "blockZ": 1}


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        (b"[1568, 1, 4]", 6272),
        (b"[\n 7\n]", 7),
        (b"[4294967296, 1, 1]", 2**32),
        (b"[4294967297, 1, 1]", None),
        (b"[4294967296, 4294967296, 1]", None),
        *((text, None) for text in (b"[]", b"[1, 0, 1]", b"[1, -1, -1]", b"[1, 1, 1, 1]", b"[1.5]", b"[true]", b"3")),
        *((text, None) for text in (b"null", b'"[1]"', b"[[1]]", b"", b"[" * 5000)),
    ],
)
def test_the_volume_of_a_list_of_sides(text, volume):
    assert volume_of(text) == volume


@pytest.mark.parametrize(
    ("sides", "product"),
    [((2, 3, 4), 24), ((2, None, 4), None), ((2, 0, 4), None), ((2**32, 2**31, 1), None), ((2**31, 2**31, 1), 2**62)],
)
def test_the_product_of_columns_of_sides_never_wraps(sides, product):
    rows = pl.DataFrame(
        {name: [value] for name, value in zip("xyz", sides, strict=True)}, schema=dict.fromkeys("xyz", pl.Int64)
    )
    assert rows.select(product_of([pl.col(name) for name in "xyz"])).item() == product


def test_a_block_that_is_not_full_is_a_block():
    rows = pl.DataFrame({"threads": [256, 257, 1, None], "block": [256, 256, 256, 256]})
    assert rows.select(blocks_of(pl.col("threads"), pl.col("block"))).to_series().to_list() == [1, 2, 1, None]


def test_impossible_values_are_null_and_a_row_without_any_is_none():
    rows = pl.DataFrame(
        {"activity": ["kernel"] * 3 + ["memcpy"], "r": [-1, 2**32, None, 1], "s": [-5, 0, None, 1]}
        | {"g": [0, 2**40, None, 1], "b": [0, 2**32, None, 1]}
    )
    columns = shape_columns(registers=pl.col("r"), shared_nbytes=pl.col("s"), grid=pl.col("g"), block=pl.col("b"))
    found = launch_shapes(rows.with_columns(**columns))
    assert found.schema == LAUNCH_SHAPES
    assert found.rows() == [(1, None, 0, 2**40, None)]
    assert launch_shapes(rows).equals(empty_table(LAUNCH_SHAPES))


# Formats


def test_kineto_has_them_unless_shapes_are_left_out(read):
    args = {"registers per thread": 32, "shared memory": 2112, "grid": [1568, 1, 4], "block": [256, 1, 1]}
    events = [
        kernel(ts=9, **args),
        kernel(ts=1),
        kernel(ts=5, **{**args, "grid": "wide", "registers per thread": None}),
    ]
    trace = read(events)
    assert trace.launch_shapes.rows() == [(1, None, 2112, None, 256), (2, 32, 2112, 6272, 256)]
    assert read(events, shapes=False).launch_shapes.is_empty()
    assert read([event("cpu_op", "aten::add", 1, 1)]).launch_shapes.is_empty()


def test_kineto_on_amd_states_the_grid_of_some_calls_in_threads(read):
    names = {
        1: "hipLaunchKernel",
        2: "hipExtModuleLaunchKernel",
        3: "hipModuleLaunchKernel",
        4: "hipHccModuleLaunchKernel",
    }
    calls = [event("cuda_runtime", name, at, 1, correlation=at) for at, name in names.items()]
    kernels = [kernel(ts=at + 9, correlation=at, grid=[65536, 2, 1], block=[256, 1, 1]) for at in (*names, 5)]
    shapes = read([*calls, *kernels]).launch_shapes
    assert shapes["grid"].to_list() == [131072, 512, 131072, 512, 131072]


def test_kineto_collectives_have_them_too(read):
    args = {"Collective name": "allreduce", "Group size": 8, "grid": [2, 1, 1]}
    trace = read([kernel("nccl", ts=9, **args), kernel(ts=1, grid=[3, 1, 1])])
    assert trace.collectives.select("event", "collective", "group_size").rows() == [(1, "allreduce", 8)]
    assert trace.launch_shapes["grid"].to_list() == [3, 2]


def test_nsys_adds_static_and_dynamic_memory_and_keeps_to_the_sorted_rows(tmp_path):
    shape = {**SIDES, "registersPerThread": 40, "staticSharedMemory": 1024, "dynamicSharedMemory": 512}
    kernels = nsys_database.rows({**nsys_database.KERNEL, **shape}, {"start": 150}, {"gridX": 1, "blockX": 0})
    copies = nsys_database.rows(nsys_database.COPY, {"start": 120, "end": 130})
    path = nsys_database.build(
        tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=kernels, CUPTI_ACTIVITY_KIND_MEMCPY=copies
    )
    trace = Nsys().read(path)
    assert trace.launch_shapes.rows() == [(0, 40, 1536, 12, None), (2, 40, 1536, 24, 256)]
    assert Nsys().read(path, shapes=False).launch_shapes.is_empty()


def test_nsys_without_the_columns_has_none(tmp_path):
    kernels = nsys_database.rows(nsys_database.KERNEL, {})
    path = nsys_database.build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=kernels)
    assert Nsys().read(path).launch_shapes.is_empty()


@pytest.mark.parametrize("layout", ["3.0", "4.1"])
def test_rocpd_states_a_grid_in_threads(tmp_path, layout):
    writer = rocpd_database.Writer(tmp_path / "a.db", layout)
    rocpd_database.process(writer)
    rocpd_database.symbol(writer, 1, "gemm", arch_vgpr_count=64, accum_vgpr_count=32)
    rocpd_database.symbol(writer, 2, "bare")
    writer.copy("HOST_TO_DEVICE", 1, 2, 1)
    writer.kernel(2, 50, 60)
    sides = {"workgroup_size_x": 64, "workgroup_size_y": 4, "grid_size_x": 640, "grid_size_y": 8, "grid_size_z": 3}
    writer.kernel(1, 10, 20, group_segment_size=2048, **sides)
    writer.close()
    trace = Rocpd().read(tmp_path / "a.db")
    assert trace.launch_shapes.rows() == [(1, 96, 2048, 60, 256), (2, None, 0, 1, 64)]
    plain = Rocpd().read(tmp_path / "a.db", shapes=False)
    assert plain.launch_shapes.is_empty()
    assert plain.device_events.equals(trace.device_events)


def rocprof_json(path: Path, **lists: Any) -> Trace:
    made = process(**lists)
    made["kernel_symbols"][0] |= {"arch_vgpr_count": 28, "accum_vgpr_count": 4}
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [made]}))
    return Rocprof().read(path)


def shaped(start: int, **info: Any) -> dict[str, Any]:
    made = dispatch(start)
    made["dispatch_info"] |= {"workgroup_size": {"x": 128, "y": 1, "z": 1}, "grid_size": {"x": 300, "y": 2, "z": 1}}
    made["dispatch_info"] |= {"group_segment_size": 2049, **info}
    return made


def test_rocprof_json_has_them_in_dispatches_and_in_counted_ones(tmp_path):
    trace = rocprof_json(tmp_path / "a.json", kernel_dispatch=[shaped(50), dispatch(1)])
    assert trace.launch_shapes.rows() == [(0, 32, None, None, None), (1, 32, 2049, 5, 128)]
    counted = [{"dispatch_data": {**shaped(7)}}]
    trace = rocprof_json(tmp_path / "b.json", counter_collection=counted)
    assert trace.launch_shapes.select("grid", "block").rows() == [(5, 128)]
    assert Rocprof().read(tmp_path / "a.json", shapes=False).launch_shapes.is_empty()


def test_rocprof_json_of_another_shape_loses_that_record_alone_and_counts_it(tmp_path):
    trace = rocprof_json(tmp_path / "a.json", kernel_dispatch=[shaped(50), shaped(1, grid_size="wide")])
    assert trace.launch_shapes.height == trace.device_events.height == 1
    assert trace.accounting.dropped == {"invalid": 1}


CSVS = {
    "rocprofv3": (
        "Kind,Agent_Id,Kernel_Name,Start_Timestamp,End_Timestamp,LDS_Block_Size,VGPR_Count,Accum_VGPR_Count,"
        "Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,Grid_Size_X,Grid_Size_Y,Grid_Size_Z",
        "KERNEL_DISPATCH,Agent 4,k,1,2,512,8,4,256,1,1,24576,2,1",
    ),
    "rocprof 2": (
        "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Arch_VGPR,Accum_VGPR,Kernel_Name,"
        "Start_Timestamp,End_Timestamp",
        "1,0,49152,256,512,8,4,k,1,2",
    ),
    "rocprof 1": (
        "Index,KernelName,gpu-id,grd,wgr,lds,arch_vgpr,accum_vgpr,BeginNs,EndNs",
        "0,k,0,49152,256,512,8,4,1,2",
    ),
}


@pytest.mark.parametrize(("header", "row"), CSVS.values(), ids=CSVS)
def test_csv_of_each_version(tmp_path, header, row):
    path = tmp_path / "kernel_trace.csv"
    path.write_text(f"{header}\n{row}\n")
    assert Rocprof().read(path).launch_shapes.rows() == [(0, 12, 512, 192, 256)]
    assert Rocprof().read(path, shapes=False).launch_shapes.is_empty()


def test_rpd_has_grid_and_block_and_divides_where_a_call_takes_threads(tmp_path):
    strings = ("", "KernelExecution", "gemm", "hipLaunchKernel", "hipExtModuleLaunchKernel")
    sides = {"gridX": 1792, "gridY": 3, "gridZ": 1, "workgroupX": 256, "workgroupY": 1, "workgroupZ": 1}
    path = rpd_database.build(
        tmp_path / "a.rpd",
        strings,
        rocpd_op=[rpd_database.op(start, 2, 3) for start in (10, 30, 50)],
        rocpd_api=[rpd_database.call(1, 4), rpd_database.call(2, 5)],
        rocpd_api_ops=[{"api_id": at, "op_id": at} for at in (1, 2)],
        rocpd_kernelapi=[{"api_ptr_id": at, "stream": "0x0", **sides} for at in (1, 2)],
    )
    trace = Rpd().read(path)
    assert trace.launch_shapes.rows() == [(0, None, None, 5376, 256), (1, None, None, 21, 256)]
    assert Rpd().read(path, shapes=False).launch_shapes.is_empty()


def test_loose_columns_make_the_table_in_the_order_of_the_trace(tmp_path):
    rows = pl.DataFrame({"start_ns": [9, 1, 5], "end_ns": [10, 2, 6], "name": ["a", "b", "c"], "grid": [9, 1, None]})
    whole = rows.with_columns(registers=pl.lit(None), shared_nbytes=pl.lit(None), block=pl.lit(None))
    trace = assemble(tmp_path, "x", Records(device=whole), read=3)
    assert trace.launch_shapes.select("event", "grid").rows() == [(0, 1), (2, 9)]
    assert assemble(tmp_path, "x", Records(device=rows), read=3).launch_shapes.is_empty()


def test_damaged_files_are_a_trace_or_one_line(tmp_path):
    rocprof_json(tmp_path / "a.json", kernel_dispatch=[shaped(50), shaped(1)])
    content = (tmp_path / "a.json").read_bytes()
    assert survives(Rocprof(), tmp_path / "damaged.json", content) > 0
    text = "\n".join(CSVS["rocprofv3"]) + "\n"
    assert survives(Rocprof(), tmp_path / "damaged.csv", text.encode()) > 0
    args = {"registers per thread": 32, "shared memory": 2112, "grid": [1568, 1, 4], "block": [256, 1, 1]}
    document = json.dumps({"schemaVersion": 1, "traceEvents": [kernel(ts=9, **args), kernel(ts=1, **args)]})
    assert survives(Kineto(), tmp_path / "kineto.json", document.encode()) > 0


# Parts of a trace


def test_they_follow_their_kernels_into_parts():
    shapes = table([{"event": at, "grid": 10 + at} for at in range(3)], LAUNCH_SHAPES)
    trace = replace(make_trace([on_device(0, at, at + 1, context=at % 2) for at in range(3)]), launch_shapes=shapes)
    assert cut(trace, 1).launch_shapes.select("event", "grid").rows() == [(0, 11), (1, 12)]
    processes = (Process(1, contexts=(0,)), Process(2, contexts=(1,)))
    one, other = split_processes(replace(trace, processes=processes))
    assert one.launch_shapes.select("event", "grid").rows() == [(0, 10), (1, 12)]
    assert other.launch_shapes.select("event", "grid").rows() == [(0, 11)]


# Real traces


@pytest.mark.traces
def test_those_of_a_real_kineto_trace_are_what_its_json_says(traces):
    path = traces / "tl-h100-falcon/Falconsai_nsfw_image_detection__1016002.json.gz"
    said = [
        each for each in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if each.get("cat") == "kernel"
    ]
    expected = sorted(
        (a["registers per thread"], a["shared memory"], prod(a["grid"]), prod(a["block"]))
        for a in (s["args"] for s in said)
    )
    shapes = read_any(path).launch_shapes
    assert sorted(shapes.drop("event").rows()) == expected
    assert len(expected) == 154


@pytest.mark.traces
@pytest.mark.parametrize(
    ("file", "height", "first"),
    [
        ("cs336-zx-2_7B-compile/result_2_7B_compile_ro.sqlite", 30, (31, 0, 1, 512)),
        ("rpd-matmul/matmul_result.rpd", 29, (None, None, 5474, 256)),
        ("rocprofv3-json-excerpt/excerpt_results.json.gz", 600, (28, 2049, 128, 128)),
        ("rocprofv3-csv-llamacpp/decode_kernel_trace.csv", 144, (8, 0, 96, 256)),
        ("tl-mi300-falcon/Falconsai_nsfw_image_detection__1016002.json.gz", 155, (None, None, 256, 256)),
    ],
)
def test_every_kernel_of_real_traces_has_its_shape(traces, file, height, first):
    trace = read_any(traces / file)
    assert trace.launch_shapes.height == (trace.device_events["activity"] == "kernel").sum() == height
    assert trace.launch_shapes.drop("event").row(0) == first
