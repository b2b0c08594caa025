"""Call stacks that recorders store frame by frame: order, names, sharing, limits; nsys' and RPD's tables of them."""

from __future__ import annotations

import sqlite3
from typing import Any

import polars as pl
import pytest

from deepprof.collectors.importers import call_stacks
from deepprof.collectors.importers import read as read_any
from deepprof.collectors.importers.amd.rpd import Rpd
from deepprof.collectors.importers.call_stacks import name_frame, number_stacks
from deepprof.collectors.importers.nsys import Nsys
from deepprof.collectors.importers.nsys.directory import NsysDirectory
from deepprof.collectors.trace import STACKS, Trace
from tests.collectors import rpd_database
from tests.collectors.damage import survives
from tests.collectors.nsys_database import CALL, KERNEL, STRINGS, build, rows
from tests.collectors.test_nsys_directory import export


def frames(*given: tuple[int | None, int | None, int | None]) -> pl.DataFrame:
    schema = {"chain": pl.Int64, "depth": pl.Int64, "frame": pl.UInt32}
    return pl.DataFrame(given, schema=schema, orient="row")


TEXTS = pl.Series(["f", "g", "größe"])


def test_frames_stand_innermost_first_and_equal_stacks_are_one():
    made = number_stacks(frames((7, 1, 1), (5, 0, 0), (7, 0, 0), (5, 1, 1), (9, 0, 1), (9, 1, 0), (2, 0, 2)), TEXTS, 4)
    assert made.stacks.rows() == [(4, "größe"), (5, "f;g"), (6, "g;f")]
    assert made.stacks.schema == STACKS
    assert dict(made.of_chain.rows()) == {2: 4, 5: 5, 7: 5, 9: 6}


def test_frames_without_a_place_are_left_out_and_none_are_none():
    made = number_stacks(frames((None, 0, 0), (1, None, 0), (1, 0, None), (1, 3, 1)), TEXTS)
    assert (made.stacks.rows(), made.of_chain.rows()) == ([(0, "g")], [(1, 0)])
    nothing = number_stacks(frames(), TEXTS)
    assert (nothing.stacks.rows(), nothing.of_chain.rows()) == ([], [])
    assert nothing.stacks.schema == STACKS


def test_of_successive_frames_without_a_name_one_is_kept():
    texts = pl.Series(["[libc.so.6]", "[python]", "f"])
    given = [(1, at, frame) for at, frame in enumerate((2, 2, 0, 0, 1, 1, 1, 0))] + [(2, 0, 0)]
    assert number_stacks(frames(*given), texts).stacks["frames"].to_list() == [
        "f;f;[libc.so.6];[python];[libc.so.6]",
        "[libc.so.6]",
    ]


def test_stacks_that_are_too_long_have_no_number(monkeypatch):
    monkeypatch.setattr(call_stacks, "STACK_NBYTES", 8)
    monkeypatch.setattr(call_stacks, "TEXT_NBYTES", 6)
    made = number_stacks(frames((1, 0, 2), (1, 1, 2), (2, 0, 0), (2, 1, 0), (3, 0, 1), (4, 0, 0)), TEXTS)
    assert made.stacks.rows() == [(0, "f;f"), (1, "g")]  # the first is too long alone, the last with the others
    assert made.of_chain.rows() == [(1, None), (2, 0), (3, 1), (4, None)]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("forward", "/job/net.py", 117), "/job/net.py(117): forward"),
        (("", "/job/net.py", 1), "/job/net.py(1): <unknown>"),
        (("rocblas_dgemm", "/opt/librocblas.so.4", 0), "rocblas_dgemm"),
        (("0x7f59dc5c0d90", "/usr/lib/libc.so.6", 0), "[libc.so.6]"),
        ((None, "[Unknown]", 0), "[Unknown]"),
        ((None, None, 0), "[Unknown]"),
        (("void f(int);g", None, 0), "void f(int),g"),
        (("f", "/a;b.py", 2), "/a,b.py(2): f"),
    ],
)
def test_names_of_frames(given, named):
    assert name_frame(*given) == named


# Nsight Systems

NAMES = {**STRINGS, 20: "at::native::add", 21: "/lib/libtorch.so", 22: "0x55", 23: "/usr/bin/python3.12", 24: "main"}


def chain(key: int, *given: tuple[int, int, int]) -> list[dict[str, Any]]:
    """Frames of one chain from the innermost one: symbol, module, whether nsys did not find its name."""
    return [
        {"id": key, "symbol": symbol, "module": module, "unresolved": unresolved, "originalIP": 1, "stackDepth": depth}
        for depth, (symbol, module, unresolved) in enumerate(given)
    ]


GRID = [f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"]
ADD, UNKNOWN, MAIN = (20, 21, 0), (22, 23, 1), (24, 23, 0)


def capture(path, **tables):
    calls = rows(
        CALL, *({"start": at, "callchainId": key} for at, key in ((50, 0), (30, 3), (40, 4), (45, 9), (44, 5)))
    )
    chains = [*chain(4, ADD, ADD, MAIN), *chain(3, ADD, UNKNOWN, UNKNOWN, MAIN), *chain(5, ADD, UNKNOWN, MAIN)]
    chains = sorted(chains, key=lambda row: row["stackDepth"])
    made = {"CUPTI_ACTIVITY_KIND_RUNTIME": calls, "CUDA_CALLCHAINS": chains, **tables}
    return build(path, strings=NAMES, **made)


def stacks_of(trace: Trace) -> list[str | None]:
    texts = dict(trace.stacks.rows())
    return [None if key is None else texts[key] for key in trace.host_events["stack_id"]]


EXPECTED = [
    "at::native::add;[python3.12];main",
    "at::native::add;at::native::add;main",
    "at::native::add;[python3.12];main",
    *(None, None),  # of a chain that is not there, and of none
]


def test_nsys_calls_have_their_stacks_with_details(tmp_path):
    path = capture(tmp_path / "a.sqlite")
    trace = Nsys().read(path, details=True)
    assert stacks_of(trace) == EXPECTED
    assert trace.stacks["stack_id"].to_list() == [0, 1]
    plain = Nsys().read(path)
    assert plain.stacks.is_empty()
    assert plain.host_events.equals(trace.host_events.with_columns(stack_id=pl.lit(None, pl.UInt32)))


def test_nsys_calls_of_the_operating_system_have_a_table_of_their_own(tmp_path):
    calls = rows({key: value for key, value in CALL.items() if key != "correlationId"}, {"start": 1, "callchainId": 4})
    trace = Nsys().read(capture(tmp_path / "a.sqlite", OSRT_API=calls, OSRT_CALLCHAINS=chain(4, MAIN)), details=True)
    assert stacks_of(trace) == ["main", *EXPECTED]
    assert trace.stacks["stack_id"].to_list() == [0, 1, 2]


def test_nsys_without_tables_or_columns_of_chains_has_no_stacks(tmp_path):
    path = build(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_RUNTIME=rows(CALL, {}, {"start": 51}))
    trace = Nsys().read(path, details=True)
    assert (trace.host_events.height, trace.host_events["stack_id"].count(), trace.stacks.height) == (2, 0, 0)


def test_nsys_counts_calls_whose_stack_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(call_stacks, "STACK_NBYTES", 33)
    trace = Nsys().read(capture(tmp_path / "a.sqlite"), details=True)
    assert trace.accounting.flagged["long-stack"] == 3
    assert trace.stacks.is_empty()


def test_a_directory_of_nsys_gives_the_same_stacks(tmp_path):
    folder = export(capture(tmp_path / "a.sqlite"), tmp_path / "export")
    assert stacks_of(NsysDirectory().read(folder, details=True)) == EXPECTED
    texts = pl.read_parquet(folder / "CUDA_CALLCHAINS.parquet")
    named = [pl.col(c).replace_strict(NAMES, return_dtype=pl.String) for c in ("symbol", "module")]
    texts.with_columns(named).write_parquet(folder / "CUDA_CALLCHAINS.parquet")
    assert stacks_of(NsysDirectory().read(folder, details=True)) == EXPECTED


# rocmProfileData

FRAMES = {
    1: "\t rocblas_dgemm (/opt/rocm/lib/librocblas.so.4:0)",
    2: "\t forward (/job/net.py:117)",
    3: "\t 0x7f59dc5c0d90 (/usr/lib/libc.so.6:0)",
    4: "in main_foo(int, char**) at /job/main.hip:169:5",
    5: "0x00007f35a249d54b at /opt/rocm/lib/libamdhip64.so.6",
    6: "",
}


def test_rpd_calls_have_the_frames_of_either_library(tmp_path):
    strings = ["", "hipLaunchKernel", *FRAMES.values()]
    given = [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (3, 6), (77, 1)]
    listed = [{"api_ptr_id": call, "depth": at, "name_id": 2 + name} for at, (call, name) in enumerate(given)]
    calls = [rpd_database.call(at, 2) for at in (1, 2, 3, 4)]
    path = rpd_database.build(tmp_path / "a.rpd", strings, rocpd_api=calls, rocpd_stackframe=reversed(listed))
    trace = Rpd().read(path, details=True)
    assert stacks_of(trace) == [
        "rocblas_dgemm;/job/net.py(117): forward;[libc.so.6]",
        "main_foo(int, char**);[libamdhip64.so.6]",
        "[Unknown]",
        None,
    ]
    assert Rpd().read(path).stacks.is_empty()


def test_rpd_counts_calls_whose_stack_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(call_stacks, "STACK_NBYTES", 3)
    listed = [{"api_ptr_id": 1, "depth": 0, "name_id": 2}]
    calls = [rpd_database.call(at, 2) for at in (1, 2)]
    path = rpd_database.build(tmp_path / "a.rpd", ["", "long name"], rocpd_api=calls, rocpd_stackframe=listed)
    trace = Rpd().read(path, details=True)
    assert (trace.accounting.flagged["long-stack"], trace.stacks.height, trace.host_events.height) == (1, 0, 2)


def test_rpd_calls_of_one_id_are_all_kept(tmp_path):
    path = rpd_database.build(tmp_path / "a.rpd", ["", "f"], leave_out=["rocpd_api"], rocpd_stackframe=[])
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE rocpd_api (id, pid, tid, start, end, apiName_id, args_id)")
    connection.executemany("INSERT INTO rocpd_api VALUES (1, 7, 8, ?, 9, 2, 1)", [(1,), (2,)])
    connection.execute("INSERT INTO rocpd_stackframe (api_ptr_id, depth, name_id) VALUES (1, 0, 2)")
    connection.execute("INSERT INTO rocpd_kernelapi (api_ptr_id, stream, gridX) VALUES (1, '0x0', 4)")
    connection.execute("INSERT INTO rocpd_op (id, start, end, gpuId) VALUES (1, 3, 4, 0)")
    connection.execute("INSERT INTO rocpd_api_ops (api_id, op_id) VALUES (1, 1)")
    connection.commit()
    connection.close()
    trace = Rpd().read(path, details=True)
    assert (trace.device_events.height, stacks_of(trace)) == (1, ["f", "f"])


def test_damaged_captures_are_a_trace_or_one_line(tmp_path):
    shape = dict.fromkeys((*("registersPerThread", "staticSharedMemory", "dynamicSharedMemory"), *GRID), 3)
    path = capture(tmp_path / "a.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=rows({**KERNEL, **shape}, {}, {"start": 1}))
    assert survives(Nsys(), tmp_path / "damaged.sqlite", path.read_bytes(), details=True) > 0


def test_damaged_rpd_files_are_a_trace_or_one_line(tmp_path):
    listed = [{"api_ptr_id": 1, "depth": at, "name_id": at + 2} for at in range(5)]
    path = rpd_database.build(
        tmp_path / "a.rpd",
        ["", "hipLaunchKernel", *FRAMES.values()],
        rocpd_op=[rpd_database.op(10, 2, 3)],
        rocpd_api=[rpd_database.call(1, 2)],
        rocpd_api_ops=[{"api_id": 1, "op_id": 1}],
        rocpd_kernelapi=[{"api_ptr_id": 1, "stream": "0x0", "gridX": 4, "workgroupX": 8}],
        rocpd_stackframe=listed,
    )
    assert survives(Rpd(), tmp_path / "damaged.rpd", path.read_bytes(), details=True) > 0


def test_ids_without_texts_are_named_after_nothing(tmp_path):
    path = capture(tmp_path / "a.sqlite", StringIds=[{"id": 3, "value": "cudaLaunchKernel"}])
    assert set(stacks_of(Nsys().read(path, details=True))) == {"[Unknown]", None}


# Real traces


@pytest.mark.traces
def test_a_real_capture_of_operating_system_calls(traces):
    path = traces / "cs336-ihor/result.sqlite"
    trace = read_any(path, details=True)
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    chained = connection.execute("SELECT count(*) FROM OSRT_API WHERE callchainId > 0").fetchone()[0]
    assert trace.host_events["stack_id"].count() == chained == 87
    query = (
        "SELECT value FROM OSRT_CALLCHAINS c JOIN StringIds s ON s.id = c.symbol WHERE c.id = ? AND NOT c.unresolved"
        " ORDER BY stackDepth"
    )
    first, key = connection.execute("SELECT start, callchainId FROM OSRT_API WHERE callchainId > 0 LIMIT 1").fetchone()
    (found,) = trace.host_events.filter(start_ns=first)["stack_id"].drop_nulls()
    resolved = [name for name in trace.stacks["frames"][found].split(";") if not name.startswith("[")]
    assert resolved == [name for (name,) in connection.execute(query, (key,))]
    assert resolved[-1] == "_start"  # the outermost
