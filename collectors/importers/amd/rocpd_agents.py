"""The processors, nodes and processes that a rocprofv3 database lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from deepprof.collectors.importers.amd.places import RocmProcessor

if TYPE_CHECKING:
    from deepprof.collectors.importers.amd.rocpd_tables import RocpdPart

AGENTS, NODES, PROCESSES = "rocpd_info_agent", "rocpd_info_node", "rocpd_info_process"


@dataclass(frozen=True, slots=True)
class _RocpdAgents:
    """The agents of one part; every process on a node lists the same processors."""

    node: str
    listed: list[RocmProcessor]

    def keyed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return `rows` with the ids in `agent` made into keys."""
        return rows.with_columns(agent=pl.lit(self.node + " ") + pl.col("agent"))


def read_agents(part: RocpdPart) -> _RocpdAgents:
    """Return the agents of `part`; a GPU's number is the recorder's own count of GPUs, from 0."""
    rows = part.table(AGENTS, ("id", "type_index"))
    kinds, names = part.texts(AGENTS, "type"), [part.texts(AGENTS, name) for name in ("product_name", "name")]
    rows = rows.with_columns(kind=kinds, label=pl.coalesce(*(pl.when(name != "").then(name) for name in names)))
    node = _name_node(part)
    listed = [
        RocmProcessor(key=f"{node} {key}", node=node, gpu=kind == "GPU", number=number, name=label)
        for key, number, kind, label in rows.sort("id").drop_nulls("id").iter_rows()
    ]
    return _RocpdAgents(node, listed)


def _name_node(part: RocpdPart) -> str:
    """Return a name that distinguishes the node of `part` from others."""
    names = (part.texts(NODES, column) for column in ("machine_id", "hostname"))
    return next((name for series in names for name in series if name), part.ending)


@dataclass(frozen=True, slots=True, eq=False)
class _RocpdProcesses:
    """The processes of one part: `table` maps `key`, the id in the rows, to `table_pid` and to the number `process`."""

    table: pl.DataFrame
    fallback: int

    def of_device(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return DEVICE `rows` with `process` numbered."""
        return self.numbered(rows).select(rows.columns)

    def of_host(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return HOST or ALLOCATION `rows` with `process` numbered and the system's `pid`."""
        pid = pl.coalesce("table_pid", "key")
        return self.numbered(rows).with_columns(pid=pid).select(rows.columns)

    def numbered(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return `rows` with their process as `key`, `table_pid` and the number `process`."""
        keyed = rows.rename({"process": "key"}).join(self.table, on="key", how="left", maintain_order="left")
        return keyed.with_columns(process=pl.col("process").fill_null(self.fallback))


def read_processes(part: RocpdPart, first: int) -> _RocpdProcesses:
    """Return the processes of `part`, numbered from `first`."""
    rows = part.table(PROCESSES, ("id", "pid")).drop_nulls("id").unique("id", keep="first", maintain_order=True)
    numbers = pl.int_range(len(rows), eager=True) + first
    return _RocpdProcesses(rows.select(key="id", table_pid="pid").with_columns(process=numbers.cast(pl.Int64)), first)
