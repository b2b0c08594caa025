"""One rank in a folder of the native store: a manifest and a Parquet file per table, read whole or a range of time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import polars as pl
from msgspec import Struct

from deepprof.collectors.errors import TraceError
from deepprof.collectors.names.short import shorten
from deepprof.collectors.reprs import one_line, shorten_path
from deepprof.collectors.store.manifest import MANIFEST, WRITE_AGAIN, RankManifest, describe_trace, read_manifest
from deepprof.collectors.store.table_files import STORED, check_content, check_rows, reading, scan_table, write_table
from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.time_range import SIDE_TABLES, account_part, cut_tables
from deepprof.collectors.trace import (
    ALLOCATIONS,
    EVENT_STACKS,
    LAUNCH_SHAPES,
    OPERANDS,
    RECORD_TABLES,
    STACKS,
    Accounting,
    Trace,
    empty_table,
)
from deepprof.plurals import counted
from deepprof.version import read_version

SHAPES = {"launch_shapes": LAUNCH_SHAPES, "operands": OPERANDS}
DETAILS = {"stacks": STACKS, "event_stacks": EVENT_STACKS, "allocations": ALLOCATIONS}
WITH_STACKS = ("host_events", "failed_allocations")  # record tables with `stack_id`
# Tables that a store written before they existed lacks.
ADDED = frozenset(
    {
        *("launch_shapes", "event_stacks", "layers", "segments", "failed_allocations", "allocations", "accesses"),
        *("context_sums", "context_nodes", "instructions", "event_instructions"),
    }
)


def write_rank(trace: Trace, folder: Path) -> RankManifest:
    """Write `trace` into the new directory `folder`, and return its manifest, which is written last.

    Raises `OSError`. Takes the memory of one more table at most.
    """
    folder.mkdir()
    tables = {"names": _name_table(trace)} | {table: getattr(trace, table) for table in STORED if table != "names"}
    files = {table: write_table(folder, table, rows.select(list(STORED[table]))) for table, rows in tables.items()}
    manifest = describe_trace(trace, files, read_version())
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2))
    return manifest


def _name_table(trace: Trace) -> pl.DataFrame:
    """Return the names by id, those of device events with their short form."""
    used = trace.device_events["name_id"].unique()
    short = pl.DataFrame({"name_id": used, "short_name": [shorten(name) for name in trace.names.gather(used)]})
    names = pl.DataFrame({"name": trace.names}).with_row_index("name_id").cast({"name_id": pl.UInt32})
    return names.join(short.cast({"short_name": pl.String}), on="name_id", how="left", maintain_order="left")


def open_rank(folder: Path) -> StoredRank:
    """Return the rank stored in `folder`; its tables are checked only when they are read. Raises `TraceError`."""
    manifest = read_manifest(folder, RankManifest)
    absent = STORED.keys() - manifest.tables.keys() - ADDED
    if absent:
        problem = f"names no table {', '.join(sorted(absent))}"
        raise TraceError(folder / MANIFEST, problem, WRITE_AGAIN)
    return StoredRank(folder, manifest)


class StoredRank(Struct, frozen=True):
    """One rank of a store. Files next to those of the tables are ignored."""

    folder: Path
    manifest: RankManifest

    def __repr__(self) -> str:
        return one_line(self, shorten_path(self.folder), counted(self.manifest.accounting.kept, "record"))

    def scan(self, table: str, row: str | None = None) -> pl.LazyFrame:
        """Return a table of the record table, or `names`, as a lazy frame; raises `TraceError` for a damaged file.

        `row` names a column of row numbers to put in front, which the side tables' `event` refers to.
        """
        if table in ADDED and table not in self.manifest.tables:
            return empty_table(STORED[table]).lazy()
        return scan_table(self.folder, table, self.manifest.tables[table], row)

    def read(
        self, start_ns: int | None = None, end_ns: int | None = None, *, details: bool = False, shapes: bool = True
    ) -> Trace:
        """Return the rank, or the part that overlaps `start_ns` ≤ t < `end_ns` on its own clock, as `time_range.cut`.

        For a part only the row groups that overlap are read, and no checksum is checked. `details` requests the tables
        in `DETAILS`, `shapes` for those in `SHAPES`, where the store has them. Raises `TraceError` for a damaged store.
        Takes the memory of the tables, and that of the largest again while it is read.
        """
        partial = (start_ns, end_ns) != (None, None)
        for table in () if partial else STORED.keys() & self.manifest.tables.keys():
            check_content(self.folder, table, self.manifest.tables[table])
        parts = [table for table in STORED if table not in (*RECORD_TABLES, *SIDE_TABLES)]
        with reading(self.folder):
            tables = {table: self.scan(table).collect() for table in parts}
            self.check_sides()
            if partial:
                tables |= cut_tables(self.scan, (start_ns, end_ns))
            else:
                tables |= {table: self.scan(table).collect() for table in (*RECORD_TABLES, *SIDE_TABLES)}
        for table in RECORD_TABLES:
            check_rows(self.folder / f"{table}.parquet", table, tables[table])
        tables = tables if details else _without_details(tables)
        return self.assemble(tables if shapes else tables | _empty_tables(SHAPES), partial=partial)

    def check_sides(self) -> None:
        """Raise `TraceError` when a row of a side table belongs to no row of a record table."""
        for side, of in SIDE_TABLES.items():
            event = pl.col("event")
            rows = self.manifest.tables[of].rows
            lost = self.scan(side).select((event.is_null() | (event >= rows)).sum()).collect()
            if lost.item():
                raise TraceError(self.folder / f"{side}.parquet", f"has rows for no row of {of}", WRITE_AGAIN)

    def assemble(self, tables: dict[str, pl.DataFrame], *, partial: bool) -> Trace:
        """Return the tables as a trace; raise `TraceError` if they are no valid one."""
        said, names = self.manifest, tables.pop("names")
        if (
            not names["name_id"].equals(pl.Series("name_id", range(names.height), pl.UInt32))
            or names["name"].null_count()
        ):
            raise TraceError(self.folder / "names.parquet", "does not number its names from 0", WRITE_AGAIN)
        counts = said.accounting
        try:
            whole = Accounting(counts.read, counts.kept, counts.dropped, counts.flagged)
            return Trace(
                path=said.path,
                format=said.format,
                names=names["name"],
                accounting=account_part(whole, tables) if partial else whole,
                clock=said.clock,
                epoch_ns=said.epoch_ns,
                rank=said.rank,
                world_size=said.world_size,
                notes=said.notes,
                processes=said.processes,
                breaks_ns=tuple(sorted(said.breaks_ns)),
                **tables,
            )
        except ValueError as error:
            raise TraceError(self.folder, f"is no sound trace ({error})", WRITE_AGAIN) from error


def _without_details(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Return the tables without those in `DETAILS`, and without the stacks of the others."""
    bare = {table: tables[table].with_columns(stack_id=pl.lit(None, pl.UInt32)) for table in WITH_STACKS}
    return tables | _empty_tables(DETAILS) | bare


def _empty_tables(schemas: Mapping[str, TableSchema]) -> dict[str, pl.DataFrame]:
    """Return a table without rows for every schema."""
    return {table: empty_table(schema) for table, schema in schemas.items()}
