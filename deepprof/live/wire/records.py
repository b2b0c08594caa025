"""A checked batch: the input of a session and of `TraceAssembly`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import polars as pl

from deepprof.live.wire.sent_tables import SENT_RECORDS, SENT_TABLES
from deepprof.v1 import records_pb2 as pb

KINDS: Mapping[str, pb.TableKind] = MappingProxyType(
    {table: cast("pb.TableKind", pb.TableKind.Value(f"TABLE_KIND_{table.upper()}")) for table in SENT_TABLES}
)
TABLE_OF: Mapping[int, str] = MappingProxyType({kind: table for table, kind in KINDS.items()})


@dataclass(frozen=True, slots=True, eq=False)
class CheckedRecords:
    """A checked batch: the records numbered from `first`, `count` of them.

    `tables` are the tables that have rows, by their names in the record table and with exactly its schemas; `event` of
    a side table is a row of this batch. `names` are the texts of the ids from `first_name` on. No later
    record of the collector starts before `complete_until_ns`.
    """

    first: int
    count: int
    tables: Mapping[str, pl.DataFrame]
    names: tuple[str, ...]
    first_name: int
    complete_until_ns: int

    def __post_init__(self) -> None:
        rows = sum(table.height for name, table in self.tables.items() if name in SENT_RECORDS)
        if rows != self.count:
            raise ValueError(f"a batch of {self.count} records holds {rows}")
