"""Stores that are, are damaged, or were made to do harm: one line, never more memory than the limits state."""

import json
import os
import random
import shutil
from pathlib import Path

import polars as pl
import pytest

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers import read
from deepprof.collectors.importers.directories import list_traces
from deepprof.collectors.importers.store import NativeStore
from deepprof.collectors.store import find_ranks, open_store
from deepprof.collectors.store import parquet_sizes as parquet_pages
from deepprof.collectors.store import table_files as store_tables
from deepprof.collectors.store.parquet_sizes import MalformedParquetError, read_sizes
from deepprof.collectors.store.rank import open_rank, write_rank
from deepprof.collectors.time_range import SIDE_TABLES
from deepprof.collectors.trace import LAUNCH_SHAPES, empty_table

from .damage import damaged, read_or_refuse
from .test_store import make_full_trace, make_trace, write_store


@pytest.fixture
def rank(tmp_path):
    write_rank(make_full_trace(), tmp_path / "r")
    return tmp_path / "r"


def refusal(path):
    with pytest.raises(TraceError) as caught:
        read(path)
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 700
    return said


def amend(folder, table):
    """Make the manifest agree with a table's file that was written anew, as one who means harm would."""
    path = folder / f"{table}.parquet"
    agreed = {"rows": read_sizes(path).rows, "nbytes": path.stat().st_size, "crc32": store_tables.sum_up(path)}
    edit(folder, lambda said: said["tables"].update({table: agreed}))


def edit(folder, change):
    said = json.loads((folder / "deepprof.json").read_text())
    change(said)
    (folder / "deepprof.json").write_text(json.dumps(said))


@pytest.mark.parametrize("name", ["deepprof.json", "device_events.parquet", "host_events.parquet", "names.parquet"])
def test_damage_of_any_kind_is_survived(rank, capfd, name):
    path = rank / name
    whole = path.read_bytes()
    importer = NativeStore()
    refused = 0
    for piece in damaged(whole):
        path.write_bytes(piece)
        importer.accepts(b"", rank)
        refused += isinstance(read_or_refuse(importer, rank), TraceError)
    assert refused > 20
    assert capfd.readouterr().err == ""  # polars reports it there when it panics


@pytest.mark.parametrize("name", ["names", "device_events", "annotations", "stacks"])
def test_a_missing_table_is_named(rank, name):
    (rank / f"{name}.parquet").unlink()
    assert f"{name}.parquet: is missing" in refusal(rank)


LIES = {
    "rows": lambda said: said["tables"]["device_events"].update(rows=10),
    "many rows": lambda said: said["tables"]["device_events"].update(rows=2**40),
    "negative rows": lambda said: said["tables"]["device_events"].update(rows=-1),
    "no table": lambda said: said["tables"].pop("stacks"),
    "kept": lambda said: said["accounting"].update(kept=1),
    "dropped": lambda said: said["accounting"]["dropped"].update(metadata=6),
    "negative": lambda said: said["accounting"]["dropped"].update(metadata=-5),
    "clock": lambda said: said.update(clock="moon"),
    "rank": lambda said: said.update(rank=-1),
    "type": lambda said: said.update(notes="x"),
    "no path": lambda said: said.pop("path"),
}


@pytest.mark.parametrize("change", LIES.values(), ids=LIES)
def test_a_manifest_that_lies_is_refused(rank, change):
    edit(rank, change)
    assert str(rank) in refusal(rank)


def test_a_table_of_other_columns_types_or_order_is_refused(rank):
    path = rank / "device_events.parquet"
    rows = pl.read_parquet(path)
    for changed in (
        rows.drop("stream"),
        rows.with_columns(pl.col("stream").cast(pl.String)),
        rows.with_columns(extra=1),
        rows.reverse(),
        rows.with_columns(activity=pl.lit("dance")),
        rows.with_columns(start_ns=pl.lit(2**62)),
        rows.with_columns(end_ns=pl.lit(None, pl.Int64)),
        rows.with_columns(nbytes=pl.lit(2**63, pl.UInt64)),
        rows.with_columns(name_id=pl.lit(77, pl.UInt32)),
        rows.with_columns(stream=pl.lit(None, pl.Int64)),
    ):
        changed.write_parquet(path)
        amend(rank, "device_events")
        assert "content" not in refusal(rank)


@pytest.mark.parametrize(("table", "column", "value"), [(side, "event", 99) for side in SIDE_TABLES])
def test_a_side_row_of_nothing_is_refused(rank, table, column, value):
    path = rank / f"{table}.parquet"
    pl.read_parquet(path).with_columns(pl.lit(value, pl.UInt32).alias(column)).write_parquet(path)
    amend(rank, table)
    assert "rows for no row" in refusal(rank)


def test_a_store_from_before_launch_shapes_is_read_whole_and_in_part(rank):
    (rank / "launch_shapes.parquet").unlink()
    edit(rank, lambda said: said["tables"].pop("launch_shapes"))
    assert read(rank, details=True).launch_shapes.equals(empty_table(LAUNCH_SHAPES))
    part = open_rank(rank).read(20, 40, details=True)
    assert (part.launch_shapes.height, part.operands.height) == (0, 0)


def test_operands_from_before_their_values_are_read_and_others_refused(rank):
    path = rank / "operands.parquet"
    rows = pl.read_parquet(path)
    rows.drop("values", "strides").write_parquet(path)
    amend(rank, "operands")
    expected = rows.with_columns(pl.lit(None, pl.String).alias(name) for name in ("values", "strides"))
    assert rows.height
    assert read(rank, details=True).operands.equals(expected)
    rows.drop("dtypes").write_parquet(path)
    amend(rank, "operands")
    assert "other columns" in refusal(rank)


@pytest.mark.parametrize("ids", [[0, 2, 1], [1, 2, 3], [0, 0, 0], [None, 1, 2]])
def test_names_that_are_not_numbered_are_refused(rank, ids):
    names = pl.read_parquet(rank / "names.parquet")
    names.with_columns(name_id=pl.Series(ids, dtype=pl.UInt32)).write_parquet(rank / "names.parquet")
    amend(rank, "names")
    assert "does not number its names" in refusal(rank)


@pytest.mark.parametrize(("schema", "words"), [("deepprof.rank/2", "update DeepProf"), ("deepprof.rank/1.4", "")])
def test_a_version_to_come_is_a_sentence_and_a_minor_one_is_read(rank, schema, words):
    edit(rank, lambda said: said.update(schema=schema, something_new=[1]))
    if words:
        assert words in refusal(rank)
    else:
        assert read(rank).rank == 3


def test_a_job_of_a_version_to_come(tmp_path):
    write_store(tmp_path / "s", [make_trace()])
    edit(tmp_path / "s", lambda said: said.update(schema="deepprof.store/2"))
    assert "update DeepProf" in refusal(tmp_path / "s")


def test_links_are_not_followed(rank, tmp_path):
    secret = tmp_path / "secret.parquet"
    shutil.copy(rank / "names.parquet", secret)
    (rank / "names.parquet").unlink()
    (rank / "names.parquet").symlink_to(secret)
    assert "no regular file" in refusal(rank)
    (rank / "deepprof.json").rename(tmp_path / "elsewhere")
    (rank / "deepprof.json").symlink_to(tmp_path / "elsewhere")
    assert not NativeStore().accepts(b"", rank)


def test_a_pipe_in_place_of_a_table_is_not_waited_for(rank):
    (rank / "names.parquet").unlink()
    os.mkfifo(rank / "names.parquet")
    assert "no regular file" in refusal(rank)


def test_files_beside_the_tables_are_ignored(rank):
    (rank / "more.parquet").write_bytes(b"anything")
    (rank / "deeper").mkdir()
    assert read(rank).rank == 3
    assert list_traces(rank.parent).traces == [rank]


@pytest.mark.parametrize("folder", ["../r", "/etc", "rank=1/../../r", "rank=7", "", "rank=link"])
def test_a_job_that_names_folders_elsewhere_is_refused(tmp_path, folder):
    write_store(tmp_path / "s", [make_trace(), make_trace()])
    write_rank(make_trace(), tmp_path / "r")
    (tmp_path / "s" / "rank=link").symlink_to(tmp_path / "r")
    edit(tmp_path / "s", lambda said: said["ranks"][1].update(folder=folder))
    for ask in (find_ranks, open_store):
        with pytest.raises(TraceError, match="no folder of a rank"):
            ask(tmp_path / "s")


@pytest.mark.parametrize("ranks", [[], [{"folder": "rank=0", "rank": 0}] * 2])
def test_a_job_without_ranks_or_with_one_twice_is_refused(tmp_path, ranks):
    write_store(tmp_path / "s", [make_trace()])
    edit(tmp_path / "s", lambda said: said.update(ranks=ranks))
    assert str(tmp_path / "s") in refusal(tmp_path / "s")


def test_a_bomb_of_equal_rows_is_refused_before_it_is_read(rank, monkeypatch):
    """Millions of rows of one value take some kilobytes as Parquet, and gigabytes as a table."""
    scan = store_tables.pl.scan_parquet
    bomb = f"{rank}/memory_events.parquet"
    monkeypatch.setattr(
        store_tables.pl, "scan_parquet", lambda p, **k: pytest.fail("read") if str(p) == bomb else scan(p, **k)
    )
    path = rank / "memory_events.parquet"
    schema = pl.read_parquet(path).schema
    rows = pl.DataFrame({"time_ns": pl.repeat(0, 4_000_000, eager=True, dtype=pl.Int64)})
    rows = rows.with_columns(pl.lit(1).cast(kind).alias(c) for c, kind in schema.items() if c != "time_ns")
    rows.write_parquet(path)
    amend(rank, "memory_events")
    edit(rank, lambda said: said["accounting"].update(kept=4_000_024, read=4_000_029))
    assert "unpacks to" in refusal(rank)


def test_a_bomb_of_one_page_is_refused_before_it_is_read(rank):
    path = rank / "stacks.parquet"
    pl.DataFrame(
        {"stack_id": [0], "frames": ["x" * 100_000_000]}, {"stack_id": pl.UInt32, "frames": pl.String}
    ).write_parquet(path)
    amend(rank, "stacks")
    assert "unpacks to" in refusal(rank)


def test_a_manifest_without_end_is_refused(rank):
    with (rank / "deepprof.json").open("ab") as file:
        file.truncate(200 * 1024**2)
    assert "limit" in refusal(rank)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" * 4, b"PAR1" + bytes(100) + b"\x64\0\0\0PAR1"])
def test_what_is_no_parquet(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(MalformedParquetError):
        read_sizes(tmp_path / "x")


@pytest.mark.parametrize("bug", [AttributeError, KeyError, IndexError, TypeError])
def test_a_bug_in_reading_sizes_is_no_malformed_parquet(tmp_path, monkeypatch, bug):
    def fail(*_):
        raise bug("a bug")

    pl.DataFrame({"a": range(10)}).write_parquet(tmp_path / "x")
    monkeypatch.setattr(parquet_pages, "measure_page", fail)
    with pytest.raises(bug, match="a bug"):
        read_sizes(tmp_path / "x")


def test_damage_inside_a_parquet_is_content_or_malformed(tmp_path):
    pl.DataFrame({"a": range(50), "b": [f"{i}" for i in range(50)]}).write_parquet(tmp_path / "x", row_group_size=20)
    whole, choose = (tmp_path / "x").read_bytes(), random.Random(3)
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    malformed = 0
    for _ in range(2000):
        piece = bytearray(whole)
        piece[choose.randrange(footer, len(whole) - 8)] = choose.randrange(256)
        (tmp_path / "y").write_bytes(piece)
        try:
            read_sizes(tmp_path / "y")
        except MalformedParquetError:
            malformed += 1
    assert malformed > 500


@pytest.mark.parametrize("compression", ["zstd", "uncompressed", "snappy"])
def test_sizes_are_those_of_the_pages(tmp_path, compression):
    rows = pl.DataFrame({"a": range(100_000), "b": [f"name {i}" for i in range(100_000)], "c": [None, 1] * 50_000})
    rows.write_parquet(tmp_path / "x", compression=compression, row_group_size=7_000, data_page_size=4096)
    sizes = read_sizes(tmp_path / "x")
    assert sizes.rows == 100_000
    assert 0.5 * rows.estimated_size() < sizes.nbytes < 2 * rows.estimated_size()


def test_pages_without_end_are_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_pages, "PAGES", 10)
    pl.DataFrame({"a": range(10_000)}).write_parquet(tmp_path / "x", row_group_size=100)
    with pytest.raises(MalformedParquetError, match="more than 10 pages"):
        read_sizes(tmp_path / "x")


def test_a_panic_of_polars_is_a_line(rank, monkeypatch):
    def panic(*_, **__):
        raise pl.exceptions.PanicException("index out of bounds\nmore")

    monkeypatch.setattr(store_tables.pl, "scan_parquet", panic)
    assert "index out of bounds" in refusal(rank)


def test_a_store_that_may_not_be_read(rank: Path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store_tables.pl, "scan_parquet", refuse)
    assert "Permission denied" in refusal(rank)


def test_opening_reads_no_table(rank):
    (rank / "device_events.parquet").write_bytes(b"nothing")
    assert open_rank(rank).manifest.tables["device_events"].rows == 11
    with pytest.raises(TraceError, match="bytes where"):
        open_rank(rank).scan("device_events")
