"""nsys-jax archives: the real one, made ones of other releases, and damaged ones."""

from __future__ import annotations

import io
import lzma
import re
import zipfile
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import deepprof
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import read_head
from deepprof.collectors.importers.nsys import jax_programs
from deepprof.collectors.importers.nsys.jax_archive import NsysJax
from deepprof.collectors.trace import Trace
from tests.collectors.damage import checked, survives
from tests.collectors.hlo_programs import computation, instruction, program
from tests.hidden import without_ranges
from tests.manifest import path_of
from tests.manifest import rows as listed

MODULE, THUNK = "TSL:XlaModule:#prefix=jit(f)/x,hlo_module=jit_f,program_id=3#", "TSL:Thunk:#name=a/b,hlo_op=fusion.1#"
TARGET = 'gpu_device_info { core_count: 132 device_memory_size: 84929478656 }\ndevice_description_str: "H100"'


def projection(thread: int = 7, base: int = 0, process: int = 1) -> pl.DataFrame:
    """A module of two thunks, the second of which contains two more, and a range of NCCL in the first of those."""
    rows = [
        (None, 5, 900, None, None, 40),
        (MODULE, 10, 90, 1, None, 4),
        (THUNK, 10, 10, 2, 1, 1),
        (THUNK.replace("fusion.1", "while.2"), 20, 80, 3, 1, 3),
        (THUNK.replace("fusion.1", "all-reduce-start"), 20, 30, 4, 3, 1),
        ("NCCL:ncclGroupEnd", 20, 30, 5, 4, 1),
        ("TSL:Thunk:#hlo_op=copy#", 60, 0, 6, 3, 1),
    ]
    columns = ("Name", "Projected Start", "Projected Duration", "RangeId", "ParentId", "NumGPUOps")
    return pl.DataFrame(rows, columns, orient="row").with_columns(
        pl.col("Projected Start") + base,
        pl.col("RangeId") + base,
        (pl.col("ParentId") + base).cast(pl.Float64),
        PID=pl.lit(process),
        TID=pl.lit(thread),
        Rank=pl.lit(0),
    )


def content(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return buffer.getvalue()


def launchers(*threads: tuple[int, int], process: int = 1) -> bytes:
    names = [f"XlaLauncher:#global={device},local=0,process=0,slice=0#" for _, device in threads] + ["main"]
    return content(pl.DataFrame({"Name": names, "PID": process, "TID": [*(thread for thread, _ in threads), 1]}))


def pack(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def unpack(path: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def read(path: Path) -> Trace:
    assert NsysJax().accepts(b"" if path.is_dir() else read_head(path), path)
    return NsysJax().read(path)


def events(trace: Trace) -> list[tuple[object, ...]]:
    named = trace.device_events.with_columns(trace.names.gather(trace.device_events["name_id"]).alias("name"))
    return named.select("name", "start_ns", "end_ns", "device", "stream").rows()


@pytest.mark.traces
@pytest.mark.parametrize("row", listed("nsys-jax zip (parquet/csv)"))
def test_the_real_archive_holds_five_train_steps_on_each_of_four_devices(traces, row):
    path = path_of(row)
    trace = read(path)
    with zipfile.ZipFile(path) as archive:
        table = pl.read_parquet(io.BytesIO(archive.read("nvtx_gpu_proj_trace/trace.parquet"))).to_dicts()
    thunks = [record for record in table if "Thunk:#" in str(record["Name"])]
    holding = {record["ParentId"] for record in thunks}
    inner = Counter(record["TID"] for record in thunks if record["RangeId"] not in holding)
    found = Counter(trace.device_events["stream"].to_list())
    assert found == inner
    assert trace.accounting.read == len(table) == trace.accounting.kept + 1
    assert trace.accounting.dropped == {"outside-ranges": 1}
    names = trace.annotations.with_columns(trace.names.gather(trace.annotations["name_id"]).alias("name"))
    steps = names.filter(pl.col("name") == "jit_train_step")
    assert steps.group_by("device").len().sort("device").rows() == [(device, 5) for device in range(4)]
    expected = {r["Projected Start"] for r in table if re.search("XlaModule.*jit_train_step", str(r["Name"]))}
    assert set(steps["start_ns"]) == expected
    assert steps["framework"].all()
    assert trace.devices["name"].to_list() == ["NVIDIA H100 80GB HBM3"] * 4
    assert "2211 GPU operations ran outside of every range and are in no table" in trace.notes


@pytest.mark.traces
@pytest.mark.parametrize("row", listed("nsys-jax zip (parquet/csv)"))
def test_the_iteration_of_the_real_archive_is_found_on_every_device(traces, row):
    trace = NsysJax().read(path_of(row))
    for told in (trace, without_ranges(trace)):
        loops = deepprof.analyze(told).loops
        found = sorted((loop.device, loop.period, len(loop.iterations)) for loop in loops)
        assert found == [(device, 985, 5) for device in range(4)]


@pytest.mark.traces
@pytest.mark.parametrize("row", listed())
def test_no_real_file_of_another_format_is_accepted(traces, row):
    path = path_of(row)
    assert NsysJax().accepts(read_head(path), path) == row["format"].startswith("nsys-jax")
    assert not NsysJax().accepts(b"", path.parent)


FILES = {"nvtx_gpu_proj_trace/trace.parquet": content(projection()), "thread-metadata.parquet": launchers((7, 5))}


@pytest.mark.parametrize("make", [pack, unpack])
def test_innermost_thunks_are_events_and_all_else_annotations(tmp_path, make):
    trace = read(make(tmp_path / "a", {**FILES, "dump/m.gpu_target_config.pbtxt.xz": lzma.compress(TARGET.encode())}))
    assert events(trace) == [
        ("fusion.1", 10, 20, 5, 7),
        ("all-reduce-start", 20, 50, 5, 7),
        ("copy", 60, 60, 5, 7),
    ]
    assert trace.annotations["domain"].to_list() == ["XlaModule", "Thunk", "NCCL"]
    assert trace.accounting.read == 7
    assert trace.accounting.dropped == {"outside-ranges": 1}
    assert trace.devices.select("device", "name", "multiprocessors").rows() == [(5, "H100", 132)]
    assert "40 GPU operations ran outside of every range and are in no table" in trace.notes


def test_the_other_spelling_of_the_columns_is_the_same(tmp_path):
    old = projection()
    new = old.select(
        pl.col("Name").str.strip_prefix("TSL:").alias("Text"),
        pl.col("Projected Start").alias("Start"),
        (pl.col("Projected Start") + pl.col("Projected Duration")).alias("End"),
        pl.col("RangeId").alias("Range ID"),
        pl.col("ParentId").alias("Parent ID"),
        *("PID", "TID"),
    )
    files = {**FILES, "nvtx_gpu_proj_trace/trace.parquet": content(new)}
    trace = read(pack(tmp_path / "a", files))
    assert events(trace) == events(read(pack(tmp_path / "b", FILES)))
    assert trace.annotations["domain"].to_list() == ["XlaModule", "Thunk", "NCCL"]


def test_several_reports_combined_are_one_trace(tmp_path):
    files = {
        "nvtx_gpu_proj_trace/trace.parquet/a.parquet": content(projection(process=1)),
        "nvtx_gpu_proj_trace/trace.parquet/b.parquet": content(projection(process=1)),
        "thread-metadata.parquet/a.parquet": launchers((7, 0)),
        "thread-metadata.parquet/b.parquet": launchers((7, 8)),
    }
    trace = read(pack(tmp_path / "a", files))
    assert trace.device_events.group_by("device").len().sort("device").rows() == [(0, 3), (8, 3)]


def test_devices_are_numbered_by_threads_where_nothing_tells_them(tmp_path):
    parts = [projection(9, 1000), projection(8, 2000), projection(8, 3000), projection(4, 9000, process=2)]
    alone = projection(3, 4000).with_columns(pl.col("Name").str.replace("jit_f", "jit_g"))
    files = {"nvtx_gpu_proj_trace/trace.parquet": content(pl.concat([*parts, alone]))}
    trace = read(pack(tmp_path / "a", files))
    places = set(trace.device_events.select("stream", "device").unique().rows())
    assert places == {(8, 0), (9, 1), (3, 0), (4, 2)}
    assert any("does not say which thread" in note for note in trace.notes)


def test_modules_stand_in_where_there_are_no_thunks(tmp_path):
    frame = projection().filter(pl.col("Name").str.contains("XlaModule"))
    trace = read(pack(tmp_path / "a", {**FILES, "nvtx_gpu_proj_trace/trace.parquet": content(frame)}))
    assert events(trace) == [("jit_f", 10, 100, 5, 7)]


def test_ranges_of_something_else_are_no_events(tmp_path):
    frame = projection().head(0)
    trace = read(pack(tmp_path / "a", {**FILES, "nvtx_gpu_proj_trace/trace.parquet": content(frame)}))
    assert trace.accounting.read == 0
    assert "the capture has no ranges of XLA on a GPU" in trace.notes


def test_ranges_that_hold_each_other_end(tmp_path):
    frame = projection().with_columns(ParentId=pl.lit(3.0))
    trace = read(pack(tmp_path / "a", {**FILES, "nvtx_gpu_proj_trace/trace.parquet": content(frame)}))
    assert trace.accounting.kept == 6


def refusal(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        NsysJax().read(path)
    return str(checked(caught.value))


def test_what_is_none_is_one_line(tmp_path):
    assert "holds no ranges" in refusal(pack(tmp_path / "a", {"b": b""}))
    assert not NsysJax().accepts(b"PK\x03\x04", tmp_path / "a")
    assert not NsysJax().accepts(b"PK\x03\x04", tmp_path / "none")
    assert not NsysJax().accepts(b"", tmp_path)
    files = {"nvtx_gpu_proj_trace/trace.parquet": content(pl.DataFrame({"Name": ["a"], "x": [1]}))}
    assert "trace.parquet has no column for start_ns, end_ns, only Name, x" in refusal(pack(tmp_path / "a", files))
    files = {"nvtx_gpu_proj_trace/trace.parquet": content(pl.DataFrame({"Name": ["a"], "Start": [1]}))}
    assert "no column for end_ns," in refusal(pack(tmp_path / "a", files))


def test_a_link_that_leads_out_of_the_directory_is_refused(tmp_path):
    folder = unpack(tmp_path / "a", FILES)
    (folder / "thread-metadata.parquet").rename(tmp_path / "b.parquet")
    (folder / "thread-metadata.parquet").symlink_to(tmp_path / "b.parquet")
    assert "a link that leads out of it" in refusal(folder)


def test_impossible_values_are_counted(tmp_path):
    frame = projection().with_columns(pl.Series("Projected Start", [0, 2**63 - 1, -(2**62), 5, 6, 7, 8]))
    files = {"nvtx_gpu_proj_trace/trace.parquet": content(frame), "thread-metadata.parquet": launchers((7, 99_999))}
    trace = read(pack(tmp_path / "a", files))
    assert trace.accounting.dropped == {"outside-ranges": 1, "invalid-time": 2, "invalid-place": 2}


def test_damage_gives_a_trace_or_one_line(tmp_path):
    whole = pack(tmp_path / "a", FILES).read_bytes()
    assert survives(NsysJax(), tmp_path / "b.zip", whole)
    table, refused = FILES["nvtx_gpu_proj_trace/trace.parquet"], 0
    for at in range(40, len(table), 97):
        broken = table[:at] + bytes([table[at] ^ 0x55]) + table[at + 1 :]
        path = pack(tmp_path / "c", {**FILES, "nvtx_gpu_proj_trace/trace.parquet": broken})
        try:
            NsysJax().read(path)
        except TraceError as error:
            refused += 1
            checked(error)
    assert refused


def test_a_bug_in_looking_at_a_zip_is_not_that_it_is_another_format(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("a", b"1")

    def fail(*_):
        raise ValueError("a bug")

    monkeypatch.setattr("deepprof.collectors.importers.archives.misplaced", fail)
    with pytest.raises(ValueError, match="a bug"):
        NsysJax().accepts(b"PK\x03\x04", tmp_path / "a.zip")


def test_a_path_that_cannot_be_is_not_accepted():
    assert not NsysJax().accepts(b"", Path("a\0b"))
    assert not NsysJax().accepts(b"PK\x03\x04", Path("a\0b"))


def dumped(name, number, *instructions):
    """Return a program of XLA's dump."""
    return program(name, [computation(*instructions)], [("train.py", "step", 7, 0)])


def operations(trace):
    """Return the events that have an instruction, with its program's number, opcode and target."""
    rows = trace.event_instructions.join(trace.instructions, on="instruction", maintain_order="left")
    return rows.select("event", "program_id", "opcode", "target").rows()


GEMM = instruction("fusion.1", "jit(f)/dot_general", 1, opcode="custom-call", target="__cublas$gemm", of="bf16[8,8]")
DUMP = "dump/module_0003.jit_f.sm_9.0_gpu_after_optimizations.hlo.pb"


def test_operations_are_looked_up_in_the_program_of_their_module(tmp_path):
    other = instruction("fusion.1", opcode="sort", of="f32[8]")
    files = {
        **FILES,
        f"{DUMP}.xz": lzma.compress(dumped("jit_f", 3, GEMM, instruction("copy", opcode="copy", of="f32[8]"))),
        DUMP.replace("0003", "0004"): dumped("jit_f", 4, other),
        DUMP.replace("after", "before"): dumped("jit_f", 3, other),
    }
    for path in (pack(tmp_path / "a", files), unpack(tmp_path / "b", files)):
        trace = read(path)
        assert operations(trace) == [(0, 3, "custom-call", "__cublas$gemm"), (2, 3, "copy", None)]
        assert trace.stacks.is_empty()
        detailed = NsysJax().read(path, details=True)
        assert detailed.stacks["frames"].to_list() == ["dot_general/;jit(f)/;train.py(7): step", "jit_f/"]
        assert detailed.event_stacks.rows() == [(0, 0), (2, 1)]


def test_a_module_without_a_number_is_found_by_its_name(tmp_path):
    frame = projection().with_columns(pl.col("Name").str.replace(",program_id=3", ""))
    files = {**FILES, "nvtx_gpu_proj_trace/trace.parquet": content(frame), DUMP: dumped("jit_f", 3, GEMM)}
    assert operations(read(pack(tmp_path / "a", files))) == [(0, 3, "custom-call", "__cublas$gemm")]


@pytest.mark.parametrize(
    "damage",
    [
        lambda packed: packed[:-20],
        lambda packed: b"no xz" + packed,
        lambda packed: lzma.compress(bytes(2**20)),
        lambda packed: lzma.compress(dumped("jit_f", 3, GEMM)[:30]),
    ],
    ids=["cut", "no xz", "too large", "cut before it was packed"],
)
def test_a_program_that_cannot_be_read_is_a_note(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(jax_programs, "FILE_NBYTES", 2**20 - 1)
    files = {**FILES, f"{DUMP}.xz": damage(lzma.compress(dumped("jit_f", 3, GEMM)))}
    trace = read(pack(tmp_path / "a", files))
    assert trace.notes[-1] == "1 compiled program cannot be read: only names of kernels are known"
    assert (trace.event_instructions.height, trace.device_events.height) == (0, 3)


def test_without_protobuf_the_archive_is_read_with_a_note(tmp_path, monkeypatch):
    def refuse(path):
        raise TraceError(path, "needs protobuf", "`pip install 'deepprof[xplane]'`")

    monkeypatch.setattr(jax_programs, "load_schema", refuse)
    trace = read(pack(tmp_path / "a", {**FILES, DUMP: dumped("jit_f", 3, GEMM)}))
    assert trace.notes[-1].startswith(
        "XLA's operations are classified by their names only: `pip install 'deepprof[xplane]'`"
    )
    assert trace.instructions.is_empty()


@pytest.mark.traces
@pytest.mark.parametrize("row", listed("nsys-jax zip (parquet/csv)"))
def test_every_operation_of_the_real_archive_is_in_one_of_its_programs(traces, row):
    trace = read(path_of(row))
    assert trace.event_instructions["event"].to_list() == list(range(trace.device_events.height))
    names = trace.names.gather(trace.device_events["name_id"])
    assert trace.instructions["name"].gather(trace.event_instructions["instruction"]).equals(names, check_names=False)
    calls = trace.instructions.filter(pl.col("name").str.contains(r"^custom-call"))
    assert calls["target"].unique().to_list() == ["__cublas$gemm"]
    assert calls["factors"].unique().to_list() == ["bf16 bf16"]
