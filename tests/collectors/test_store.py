"""The native store: what goes in comes out, whole or a range of time, as DuckDB and pandas would read it too."""

import json
import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import deepprof
from deepprof.collectors.errors import TraceError, UsageError
from deepprof.collectors.importers import importers, read
from deepprof.collectors.importers.assembly import Records, assemble
from deepprof.collectors.importers.directories import DAMAGED, list_traces
from deepprof.collectors.importers.store import NativeStore
from deepprof.collectors.instructions import EVENT_INSTRUCTIONS, INSTRUCTIONS
from deepprof.collectors.store import check_store_target, find_ranks, open_store, replace_store, write_index
from deepprof.collectors.store.manifest import MANIFEST
from deepprof.collectors.store.rank import open_rank, write_rank
from deepprof.collectors.time_range import SIDE_TABLES, cut
from deepprof.collectors.trace import (
    ACCESSES,
    ALLOCATIONS,
    COLLECTIVES,
    CONTEXT_SUMS,
    EVENT_STACKS,
    FAILED_ALLOCATIONS,
    LAUNCH_SHAPES,
    MEMORY_EVENTS,
    OPERANDS,
    RECORD_TABLES,
    SEGMENTS,
    STACKS,
    TABLES,
    Accounting,
)
from tests import manifest
from tests.tables import copy, event, launch, make_nodes, make_sum, make_trace, span, table
from tests.widening import first_of_each


def make_full_trace(times=range(0, 100, 10)):
    """A trace with a row in every table, and side tables that join to some of the rows."""
    device = [event(i % 3, t, t + 7, correlation=i + 1) for i, t in enumerate(times)] + [copy(5, 25, 4096)]
    host = [launch(i + 1, t, t + 2, 1) for i, t in enumerate(times)]
    ranges = [span(2, 15, 45), span(1, 30, None), span(0, 60, 60)]
    trace = make_trace(device, host, ranges, rank=3)
    memory = table([{"time_ns": t, "device": 0, "nbytes": 64, "address": 2**63} for t in times], MEMORY_EVENTS)
    sides = {
        "collectives": table([{"event": 4, "collective": "allreduce", "group": "0", "sequence": 9}], COLLECTIVES),
        "launch_shapes": table([{"event": 2, "registers": 32, "grid": 2**33, "block": 1024}], LAUNCH_SHAPES),
        "operands": table([{"event": 1, "dims": "[[2]]", "dtypes": '["float"]'}], OPERANDS),
        "stacks": table([{"stack_id": 0, "frames": "train.py(7): step"}], STACKS),
        "event_stacks": table([{"event": i, "stack_id": 0} for i in (3, 7)], EVENT_STACKS),
        "instructions": table([{"instruction": 0, "program": "jit_f", "name": "a", "opcode": "dot"}], INSTRUCTIONS),
        "event_instructions": table([{"event": i, "instruction": 0} for i in (2, 4)], EVENT_INSTRUCTIONS),
        "allocations": table([{"event": i, "stream": 7, "stack_id": 0} for i in (0, 3)], ALLOCATIONS),
        "accesses": table([{"event": i, "address": 2**21 * i, "reads": 4} for i in (0, 0, 4)], ACCESSES),
        "segments": table([{"time_ns": t, "device": 0, "nbytes": t - 30, "stream": 7} for t in (25, 45)], SEGMENTS),
        "failed_allocations": table([{"time_ns": 40, "device": 0, "nbytes": 9, "stack_id": 0}], FAILED_ALLOCATIONS),
        "context_sums": table([make_sum(t, context) for t in (10, 40) for context in (4, 9)], CONTEXT_SUMS),
        "context_nodes": make_nodes({9: 0, 4: 9}),
    }
    host = trace.host_events.with_columns(stack_id=pl.lit(0, pl.UInt32))
    kept = trace.accounting.kept + memory.height + sum(sides[name].height for name in RECORD_TABLES if name in sides)
    counts = Accounting(kept + 5, kept, {"metadata": 5}, {"unlinked": 1})
    header = {"epoch_ns": 17 * 10**17, "clock": "session", "world_size": 8, "notes": ("a note — 3 µs",)}
    return replace(trace, memory_events=memory, host_events=host, accounting=counts, **sides, **header)


def assert_same(one, other):
    for name in one.__struct_fields__:
        a, b = getattr(one, name), getattr(other, name)
        assert a.equals(b) if hasattr(a, "equals") else a == b, name
    assert one.device_events.schema == other.device_events.schema


def write_store(path, traces):
    with replace_store(path) as part:
        for number, trace in enumerate(traces):
            write_rank(trace, part / f"rank={number}")
        write_index(part, range(len(traces)))


def test_everything_comes_back(tmp_path):
    trace = make_full_trace()
    write_rank(trace, tmp_path / "r")
    assert_same(open_rank(tmp_path / "r").read(details=True), trace)


def test_a_store_of_an_earlier_version_has_no_stacks_of_device_events(tmp_path):
    trace = make_full_trace()
    write_rank(trace, tmp_path / "r")
    (tmp_path / "r" / "event_stacks.parquet").unlink()
    manifest = json.loads((tmp_path / "r" / MANIFEST).read_text())
    del manifest["tables"]["event_stacks"]
    (tmp_path / "r" / MANIFEST).write_text(json.dumps(manifest))
    expected = replace(trace, event_stacks=trace.event_stacks.clear())
    assert_same(open_rank(tmp_path / "r").read(details=True), expected)
    assert_same(open_rank(tmp_path / "r").read(20, 50, details=True), cut(expected, 20, 50))


def test_a_store_of_an_earlier_version_has_no_instructions(tmp_path):
    trace = make_full_trace()
    write_rank(trace, tmp_path / "r")
    manifest = json.loads((tmp_path / "r" / MANIFEST).read_text())
    bare = {name: getattr(trace, name).clear() for name in ("instructions", "event_instructions")}
    for name in bare:
        (tmp_path / "r" / f"{name}.parquet").unlink()
        del manifest["tables"][name]
    (tmp_path / "r" / MANIFEST).write_text(json.dumps(manifest))
    assert_same(open_rank(tmp_path / "r").read(details=True), replace(trace, **bare))


def test_instructions_are_read_without_details_and_cut_with_their_events(tmp_path):
    trace = make_full_trace()
    write_rank(trace, tmp_path / "r")
    assert open_rank(tmp_path / "r").read().event_instructions.rows() == [(2, 0), (4, 0)]
    part = open_rank(tmp_path / "r").read(20, 50)
    assert part.instructions.equals(trace.instructions)
    assert part.event_instructions.equals(cut(trace, 20, 50).event_instructions)
    assert part.event_instructions.rows() == [(2, 0)]


def test_a_store_of_an_earlier_version_has_no_segments(tmp_path):
    trace = make_full_trace()
    bare = {name: getattr(trace, name).clear() for name in ("segments", "failed_allocations", "allocations")}
    kept = trace.accounting.kept - 3
    expected = replace(trace, accounting=Accounting(kept + 5, kept, {"metadata": 5}, {"unlinked": 1}), **bare)
    write_rank(expected, tmp_path / "r")
    manifest = json.loads((tmp_path / "r" / MANIFEST).read_text())
    for name in bare:
        (tmp_path / "r" / f"{name}.parquet").unlink()
        del manifest["tables"][name]
    (tmp_path / "r" / MANIFEST).write_text(json.dumps(manifest))
    assert_same(open_rank(tmp_path / "r").read(details=True), expected)
    assert_same(open_rank(tmp_path / "r").read(20, 50, details=True), cut(expected, 20, 50))


def test_details_are_left_out_unless_asked_for_and_shapes_only_on_request(tmp_path):
    write_rank(make_full_trace(), tmp_path / "r")
    trace = read(tmp_path / "r")
    assert (trace.launch_shapes.height, trace.operands.height) == (1, 1)
    bare = read(tmp_path / "r", shapes=False)
    assert (bare.launch_shapes.height, bare.operands.height) == (0, 0)
    assert (trace.stacks.height, trace.event_stacks.height) == (0, 0)
    assert trace.host_events["stack_id"].null_count() == trace.host_events.height
    assert trace.allocations.is_empty()
    assert trace.failed_allocations.select("nbytes", "stack_id").rows() == [(9, None)]


def test_a_trace_without_rows_comes_back(tmp_path):
    write_rank(make_trace(), tmp_path / "r")
    assert_same(read(tmp_path / "r"), make_trace())


def test_texts_that_json_cannot_hold_are_replaced(tmp_path):
    write_rank(replace(make_trace(), path="a\udcff.json", notes=("\ud800",)), tmp_path / "r")
    trace = read(tmp_path / "r")
    assert (trace.path, trace.notes) == ("a?.json", ("?",))


@pytest.mark.traces
@pytest.mark.parametrize("row", first_of_each("format", manifest.rows()))
def test_every_real_trace_comes_back(traces: Path, tmp_path: Path, row: dict[str, str]) -> None:
    try:
        trace = read(manifest.path_of(row))
    except TraceError:
        return  # refused files have their own tests
    write_rank(trace, tmp_path / "r")
    assert_same(read(tmp_path / "r"), trace)


@pytest.mark.traces
@pytest.mark.parametrize("row", manifest.rows())
def test_no_real_file_is_taken_for_a_store(traces: Path, row: dict[str, str]) -> None:
    path = manifest.path_of(row)
    assert not NativeStore().accepts(path.read_bytes()[:65536], path)
    assert not NativeStore().accepts(b"", path.parent)


@pytest.mark.traces
def test_details_of_a_real_trace_come_back(traces: Path, tmp_path: Path) -> None:
    detailed = read(traces / "tl-resnet-ckpt/resnet_act_checkpoint.json.gz", details=True)
    assert detailed.operands.height
    write_rank(detailed, tmp_path / "r")
    assert_same(read(tmp_path / "r", details=True), detailed)
    assert read(tmp_path / "r").operands.equals(detailed.operands)


def test_other_tools_see_plain_types_and_names_to_join(tmp_path):
    trace = make_full_trace()
    write_rank(trace, tmp_path / "r")
    for name in TABLES:
        kinds = pl.read_parquet_schema(tmp_path / "r" / f"{name}.parquet").values()
        assert not [kind for kind in kinds if isinstance(kind, pl.Enum | pl.Categorical)]
    rows, names = (pl.read_parquet(tmp_path / "r" / f"{name}.parquet") for name in ("device_events", "names"))
    joined = rows.join(names, on="name_id", maintain_order="left")
    assert joined["name"].to_list() == [trace.name(i) for i in trace.device_events["name_id"]]
    assert joined["activity"][0] == "kernel"


def test_a_job_is_found_rank_by_rank(tmp_path):
    write_store(tmp_path / "job.deepprof", [make_trace(rank=1), make_full_trace(), make_trace()])
    assert [path.name for path in list_traces(tmp_path / "job.deepprof").traces] == ["rank=0", "rank=1", "rank=2"]
    assert find_ranks(tmp_path / "job.deepprof") == list_traces(tmp_path / "job.deepprof").traces
    store = open_store(tmp_path / "job.deepprof")
    assert list(store.ranks) == [0, 1, 2]
    assert store.read(1).rank == 3  # as its file states; the job numbers it when it reads
    assert store.scan("device_events").select(pl.col("rank").unique()).collect()["rank"].to_list() == [1]
    for rank in (None, 5):
        with pytest.raises(UsageError, match="has 0, 1, 2"):
            store.read(rank)


def test_a_job_of_one_rank_is_a_trace_and_so_is_a_ranks_folder(tmp_path):
    write_store(tmp_path / "job.deepprof", [make_full_trace()])
    whole = read(tmp_path / "job.deepprof")
    assert_same(whole, read(tmp_path / "job.deepprof" / "rank=0"))
    assert list_traces(tmp_path).traces == [tmp_path / "job.deepprof"]
    assert_same(replace(whole), deepprof.open_store(tmp_path / "job.deepprof").read())
    assert_same(replace(whole), deepprof.open_store(tmp_path / "job.deepprof" / "rank=0").read())
    assert any(isinstance(importer, NativeStore) for importer in importers())


def test_what_is_no_store_is_said(tmp_path):
    (tmp_path / "deepprof.json").write_text('{"schema": "other/1"}')
    for path in (tmp_path, tmp_path / "absent", tmp_path / "deepprof.json"):
        assert not NativeStore().accepts(b"", path)
        with pytest.raises(TraceError, match="is no store"):
            open_store(path)


BOUNDS = st.none() | st.integers(-10, 130)


@given(BOUNDS, BOUNDS)
def test_a_range_holds_what_overlaps_it_and_counts_the_rest(tmp_path_factory, start, end):
    whole = make_full_trace()
    folder = tmp_path_factory.mktemp("store") / "r"
    write_rank(whole, folder)
    part = open_rank(folder).read(start, end, details=True)
    low, high = -(10**9) if start is None else start, 10**9 if end is None else end
    for name in RECORD_TABLES:
        rows = getattr(whole, name).rows(named=True)
        expected = [row for row in rows if overlaps(row, low, high)]
        assert getattr(part, name).rows(named=True) == expected
    for side, of in SIDE_TABLES.items():
        ids = [getattr(whole, of).row(i) for i in getattr(whole, side)["event"]]
        found = [getattr(part, of).row(i) for i in getattr(part, side)["event"]]
        assert found == [row for row in ids if row in getattr(part, of).rows()]
    left = part.accounting.dropped.get("out-of-range", 0)
    assert left == whole.accounting.kept - part.accounting.kept
    assert_same(part, cut(whole, start, end))


def overlaps(row, low, high):
    start = row.get("start_ns", row.get("time_ns"))
    end = row.get("end_ns", start)
    return start < high and (end is None or end > low or start >= low)


def test_a_range_that_holds_everything_is_the_trace_itself(tmp_path):
    write_rank(make_full_trace(), tmp_path / "r")
    assert_same(open_rank(tmp_path / "r").read(-100, 10**6), open_rank(tmp_path / "r").read())


def test_a_part_of_a_part_adds_up(tmp_path):
    once = cut(make_full_trace(), 20, 80)
    twice = cut(once, 30, 50)
    assert twice.accounting.read == twice.accounting.kept + sum(twice.accounting.dropped.values())
    assert_same(twice, replace(cut(make_full_trace(), 30, 50)))


def test_a_store_is_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "job.deepprof"
    write_store(target, [make_full_trace()])
    with pytest.raises(FileNotFoundError), replace_store(target) as part:
        write_rank(make_trace(), part / "absent" / "rank=0")
    assert_same(read(target), cut(open_rank(target / "rank=0").read()))
    write_store(target, [make_trace(), make_trace()])
    assert list(open_store(target).ranks) == [0, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["job.deepprof"]


def test_an_empty_directory_and_a_link_to_a_store_may_be_written(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    write_store(tmp_path / "link", [make_trace()])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "empty" / "deepprof.json").exists()


def test_what_is_no_store_is_not_overwritten(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "notes.txt").write_text("mine")
    write_store(tmp_path / "mixed", [make_trace()])
    (tmp_path / "mixed" / "notes.txt").write_text("mine")
    (tmp_path / "odd" / "rank=0").mkdir(parents=True)
    (tmp_path / "loop").symlink_to("loop")
    for name in ("file", "dir", "mixed", "odd", "loop", "absent/store", "", "-", "a\0b", "file/store"):
        with pytest.raises(UsageError, match=r"-o|no directory"):
            check_store_target(tmp_path / name if name not in {"", "-"} else name)
    with pytest.raises(UsageError):
        check_store_target("/dev/null")


def test_the_manifest_says_what_a_reader_needs(tmp_path):
    write_rank(make_full_trace(), tmp_path / "r")
    said = json.loads((tmp_path / "r" / "deepprof.json").read_text())
    assert said["schema"] == "deepprof.rank/1"
    assert (said["path"], said["format"], said["rank"], said["start_ns"]) == ("made by hand", "test", 3, 0)
    assert said["tables"]["device_events"]["rows"] == 11


def test_row_groups_outside_a_range_are_not_read(tmp_path):
    """Told by damaging them: polars never touches what the statistics exclude."""
    rng = random.Random(1)
    times = range(0, 3_000_000, 10)
    write_rank(make_trace([event(rng.randrange(3), t, t + 5) for t in times]), tmp_path / "r")
    path = tmp_path / "r" / "device_events.parquet"
    content = bytearray(path.read_bytes())
    late = content.index(b"PAR1", 4) * 9 // 10
    content[late : late + 64] = bytes(64)  # inside a page of the last row group; its header stays
    path.write_bytes(content)
    assert open_rank(tmp_path / "r").read(0, 1000).device_events.height == 100
    with pytest.raises(TraceError):
        read(tmp_path / "r")


def test_names_of_device_events_have_a_short_form(tmp_path):
    long = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int, float)"
    rows = pl.DataFrame({"start_ns": [1], "end_ns": [2], "name": [long]})
    trace = assemble(Path("x"), "own", Records(device=rows, host=rows.with_columns(name=pl.lit("op"))), read=2)
    write_rank(trace, tmp_path / "rank")
    names = open_rank(tmp_path / "rank").scan("names").collect()
    assert names.rows() == [(0, long, "vectorized_elementwise_kernel"), (1, "op", None)]


@pytest.mark.parametrize("content", [b"", b"garbage", b"{}", b"[1]", b"\0" * 100, b'{"schema": "other/1"}'])
def test_a_manifest_that_is_none_is_not_passed_over(tmp_path, content):
    """Neither the job's, of which a note shows, nor a rank's, whose place in the job nothing else takes."""
    store = tmp_path / "store"
    write_store(store, [make_full_trace(), make_full_trace()])
    (store / "deepprof.json").write_bytes(content)
    listing = list_traces(store)
    assert listing.traces == [store / "rank=0", store / "rank=1"]
    assert listing.notes == (f"not read in {store}: deepprof.json ({DAMAGED})",)
    (store / "rank=0" / "deepprof.json").write_bytes(content)
    assert list_traces(store).traces == listing.traces
    with pytest.raises(TraceError, match=r"rank=0.deepprof\.json: is no manifest of a store"):
        deepprof.read_job(store)
