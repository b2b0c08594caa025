"""Rows of rocprof's CSV files, all text, as loose rows of the record table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from deepprof.collectors.importers.amd import words
from deepprof.collectors.importers.amd.places import RocmProcessor
from deepprof.collectors.importers.amd.rocprof_trace import ALLOCATION, DEVICE, HOST, Loose, frame
from deepprof.collectors.importers.launch_shapes import blocks_of, product_of, shape_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MISSING = 0.01  # of the dispatches: single numbers may belong to dispatches of the driver
# The names of every column, by version: rocprofv3, rocprof 2, rocprof 1.
ALIASES = {
    "start": ("start_timestamp", "beginns"),
    "end": ("end_timestamp", "endns"),
    "kernel": ("kernel_name", "kernelname"),
    "agent": ("agent_id", "gpu_id"),
    "queue": ("queue_id",),
    "stream": ("stream_id",),
    "thread": ("thread_id", "tid"),
    "pid": ("process_id", "pid"),
    "correlation": ("correlation_id",),
    "dispatch": ("dispatch_id", "index"),
    "direction": ("direction",),
    "target": ("destination_agent_id",),
    "source": ("source_agent_id",),
    "size": ("allocation_size", "bytes", "size"),
    "address": ("address",),
    "domain": ("domain",),
    "function": ("function",),
    "operation": ("operation",),
    "node": ("node_id",),
    "logical": ("logical_node_id",),
    "kind": ("agent_type",),
    "label": ("product_name",),
    "name": ("name",),
    "units": ("cu_count",),
}
SHAPE_ALIASES = {
    "registers": ("vgpr_count", "arch_vgpr"),
    "accumulators": ("accum_vgpr_count", "accum_vgpr"),
    "shared": ("lds_block_size", "lds_per_workgroup", "lds"),
    "grid_threads": ("grid_size", "grd"),
    "block_threads": ("workgroup_size", "wgr"),
    **{f"grid_{side}": (f"grid_size_{side}",) for side in "xyz"},
    **{f"block_{side}": (f"workgroup_size_{side}",) for side in "xyz"},
}


def columns_of(*, shapes: bool) -> frozenset[str]:
    """Return the names of the columns that are read."""
    return frozenset(name for names in _aliases(shapes).values() for name in names)


def _aliases(shapes: bool) -> dict[str, tuple[str, ...]]:
    return ALIASES | SHAPE_ALIASES if shapes else ALIASES


def add_tables(tables: Sequence[tuple[str, pl.DataFrame]], loose: Loose) -> None:
    """Add the rows of `tables`, pairs of kind and rows, to `loose`."""
    agents = [row for table, rows in tables if table == "agents" for row in _list_agents(_complete(rows, loose))]
    gpus = [agent for agent in agents if agent.gpu]
    # A setting of the recorder selects how files name a processor: "Agent 4", "4", or "GPU 0", which counts only GPUs.
    keys = {agent.node: agent.key for agent in agents}
    events = [(table, _complete(rows, loose)) for table, rows in tables if table != "agents"]
    timed = any(table in ("kernels", "kernels of rocprof 1") for table, _ in events)
    for table, rows in events:
        if table == "counters" and timed:
            loose.tally.dropped["counter"] += rows.height
        elif table == "scratch":
            loose.tally.dropped["unsupported"] += rows.height
        else:
            READERS[table](rows, keys, loose)
    used = sorted({key for rows in loose.device for key in rows["agent"].drop_nulls().unique()}, key=_natural)
    loose.agents.extend(
        gpus or [RocmProcessor(key=key, number=_number_of(key, at), name=key) for at, key in enumerate(used)]
    )


def _complete(rows: pl.DataFrame, loose: Loose) -> pl.DataFrame:
    """Return `rows` with the columns of ALIASES, null where the file has none."""
    none, aliases = pl.lit(None, pl.String), _aliases(loose.shapes)
    found = {name: [pl.col(a) for a in names if a in rows.columns] for name, names in aliases.items()}
    return rows.select(pl.coalesce(*columns, none).alias(name) for name, columns in found.items())


def number(column: str) -> pl.Expr:
    """Return `column` as Int64, including "7.0" as spreadsheets write it; null for a text that is no integer."""
    return pl.col(column).str.strip_chars(" \t\r").str.replace(r"\.0+$", "").cast(pl.Int64, strict=False)


def _list_agents(rows: pl.DataFrame) -> list[RocmProcessor]:
    """Return the processors that an agent file lists; `node` is the number that other files give them."""
    rows = rows.with_columns(at=number("node"), units=number("units")).sort("at", nulls_last=True)
    rows = rows.with_columns(count=(pl.col("kind") == "GPU").cum_sum().cast(pl.Int64) - 1)
    rows = rows.select("count", "units", "kind", pl.coalesce("logical", "node"), pl.coalesce("label", "name"))
    return [
        RocmProcessor(
            key=f"GPU {count}" if kind == "GPU" else f"Agent {node}",
            node=f"Agent {node}",
            gpu=kind == "GPU",
            number=count,
            name=name,
            multiprocessors=units,
        )
        for count, units, kind, node, name in rows.iter_rows()
    ]


def _key_of(column: str, keys: dict[str, str]) -> pl.Expr:
    """Return the key of the processor in `column`: a bare number is that of an agent."""
    text = pl.col(column).str.strip_chars()
    text = pl.when(text != "").then(text)
    text = pl.when(text.str.contains(r"^\d+$")).then(pl.format("Agent {}", text)).otherwise(text)
    return text.replace(keys) if keys else text


def _natural(key: str) -> tuple[int, str]:
    """Return a sort key that orders by the number in `key`."""
    return len(key), key


def _number_of(key: str, at: int) -> int:
    """Return the device number of `key`, the `at`-th key in use: the number in "GPU 3", else `at`."""
    kind, _, digits = key.partition(" ")
    return int(digits) if kind == "GPU" and digits.isdecimal() and len(digits) < 6 else at


def _spans() -> dict[str, pl.Expr | int]:
    """Return the columns that device and host rows have in common."""
    times = {"start_ns": number("start"), "end_ns": number("end"), "correlation": number("correlation")}
    return {**times, "process": 0}


def _add_kernels(rows: pl.DataFrame, keys: dict[str, str], loose: Loose) -> None:
    columns = {
        **_spans(),
        "agent": _key_of("agent", keys),
        "queue": number("queue"),
        "stream_id": number("stream"),
        "activity": "kernel",
        "name": words.kernel_label(pl.col("kernel")),
    }
    loose.device.append(loose.kernels(columns, _shape_of_dispatches(), rows))
    loose.notes.extend(_note_missing(rows))


def _note_missing(rows: pl.DataFrame) -> Iterator[str]:
    """Yield a note where numbers of dispatches, which rocprof counts one by one, are missing."""
    numbers = rows.select(number("dispatch")).to_series().drop_nulls().unique()
    if numbers.is_empty():
        return
    whole = int(numbers.max()) - int(numbers.min()) + 1  # type: ignore[arg-type]
    missing = whole - len(numbers)
    if missing >= MISSING * whole:
        yield f"{missing:,} of {whole:,} dispatches are not in the file: their numbers are missing"


def _shape_of_dispatches() -> dict[str, pl.Expr]:
    """Return the columns of SHAPES; the size of a grid is in threads, of all sides or each."""
    grid, block = (
        pl.coalesce(product_of([number(f"{what}_{side}") for side in "xyz"]), number(f"{what}_threads"))
        for what in ("grid", "block")
    )
    return shape_columns(
        registers=number("registers") + number("accumulators").fill_null(0),
        shared_nbytes=number("shared"),
        grid=blocks_of(grid, block),
        block=block,
    )


def _add_counted(rows: pl.DataFrame, keys: dict[str, str], loose: Loose) -> None:
    """Add the dispatches of a counter file, which has a row for every counter of every dispatch."""
    kernels = rows.unique(["dispatch", "start"], keep="first", maintain_order=True)
    loose.tally.dropped["counter"] += rows.height - kernels.height
    _add_kernels(kernels, keys, loose)


def _add_copies(rows: pl.DataFrame, keys: dict[str, str], loose: Loose) -> None:
    """Add copies; no version writes their sizes."""
    rows = words.labelled(
        rows.rename({"kind": "_", "label": "__"}), "direction", kind=words.copy_kind_of, label=words.copy_name
    )
    rows = rows.with_columns(_key_of("target", keys), _key_of("source", keys))
    columns = {
        **_spans(),
        **words.copy_columns("target", "source"),
        "nbytes": number("size"),
        "stream_id": number("stream"),
    }
    loose.device.append(frame(DEVICE, columns, rows))


def _add_calls(rows: pl.DataFrame, keys: dict[str, str], loose: Loose) -> None:
    rows = words.labelled(rows, "domain", category=words.domain_category)
    columns = {
        **_spans(),
        "pid": number("pid"),
        "thread": number("thread"),
        "category": pl.col("category"),
        "name": pl.when(pl.col("function") != "").then("function"),
    }
    loose.host.append(frame(HOST, columns, rows))


def _add_allocations(rows: pl.DataFrame, keys: dict[str, str], loose: Loose) -> None:
    address = pl.col("address").str.strip_chars().str.to_lowercase()
    hexadecimal = address.str.strip_prefix("0x").str.to_integer(base=16, strict=False).cast(pl.UInt64, strict=False)
    columns = {
        "time_ns": number("end"),
        "process": 0,
        "pid": number("pid"),
        "thread": number("thread"),
        "agent": _key_of("agent", keys),
        "address": pl.when(address.str.starts_with("0x"))
        .then(hexadecimal)
        .otherwise(address.cast(pl.UInt64, strict=False)),
        "nbytes": number("size").fill_null(0),
        "freed": pl.col("operation").str.to_uppercase().str.contains("FREE").fill_null(False),
    }
    loose.allocations.append(frame(ALLOCATION, columns, rows))


READERS = {
    "kernels": _add_kernels,
    "kernels of rocprof 1": _add_kernels,
    "counters": _add_counted,
    "copies": _add_copies,
    "calls": _add_calls,
    "allocations": _add_allocations,
}
