"""The names of nsys rows: from texts of `StringIds`, and from the numbers of CUPTI's enumerations."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from deepprof.collectors.importers.value_columns import NameTable

if TYPE_CHECKING:
    from deepprof.collectors.importers.nsys.nsys_database import NsysDatabase

API_VERSION = re.compile(r"_v\d{4,5}$")  # cudaMalloc_v3020; the _v2 of cuMemAlloc_v2 is part of the name

# CUPTI has an array and a unified-memory form of every direction; the direction is what matters here.
COPY_KIND_OF = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoD",
    4: "DtoH",
    5: "DtoD",
    6: "DtoD",
    7: "DtoD",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "HtoD",
    12: "DtoH",
    13: "DtoD",
}
MEMORY_KINDS = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown")

SYNC_TYPES = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
# nsys 2024 writes 2 for cudaStreamSynchronize and 0 for cudaDeviceSynchronize: the call itself is safer than syncType.
SYNC_CALLS = (
    ("StreamWaitEvent", "Stream Wait Event"),
    ("StreamSynchronize", "Stream Sync"),
    ("StreamQuery", "Stream Sync"),
    ("DeviceSynchronize", "Context Sync"),
    ("CtxSynchronize", "Context Sync"),
    ("EventSynchronize", "Event Sync"),
    ("EventQuery", "Event Sync"),
)


def read_strings(database: NsysDatabase) -> dict[int, str]:
    """Return the texts of `StringIds` by id; the first one where an id occurs twice."""
    ids = database.integers("StringIds", {"id": None})["id"].to_list()
    texts = database.texts("StringIds", "value").to_list()
    known = zip(reversed(ids), reversed(texts), strict=False)
    return {key: text for key, text in known if key is not None and text is not None}


def label(
    rows: pl.DataFrame, names: NameTable, keys: Sequence[str], name: Callable[..., str | None], unknown: str
) -> pl.DataFrame:
    """Return `rows` with `name_id` and `unnamed` in place of `keys`, in the same order.

    `name` returns the name for the values of `keys`, or None when there is none: then the row is `unnamed`, and its
    name is `unknown` followed by the first value.
    """
    distinct = rows.select(keys).unique(maintain_order=True)
    known = [name(*values) for values in distinct.iter_rows()]
    spare = (_fallback(unknown, values) for values in distinct.iter_rows())
    ids = names.ids([text if text is not None else other for text, other in zip(known, spare, strict=True)])
    unnamed = pl.Series([text is None for text in known], dtype=pl.Boolean)
    named = distinct.with_columns(ids.alias("name_id"), unnamed.alias("unnamed"))
    joined = rows.join(named, on=list(keys), how="left", nulls_equal=True, maintain_order="left")
    return joined.drop(keys)


def _fallback(unknown: str, values: Sequence[Any]) -> str:
    """Return a name for a row without one: "unknown kernel 17"."""
    key = next((value for value in values if value is not None), None)
    return unknown if key is None else f"{unknown} {key}"


def name_copy(kind: int | None, source: int | None, target: int | None) -> str:
    """Return the name of a copy as PyTorch writes it: "Memcpy HtoD (Pageable -> Device)"."""
    direction = COPY_KIND_OF.get(kind or 0)
    name = f"Memcpy {direction}" if direction else "Memcpy"
    memory = dict(enumerate(MEMORY_KINDS))
    if source is None or target is None or source not in memory or target not in memory:
        return name
    return f"{name} ({memory[source]} -> {memory[target]})"


def name_graph(graph: int | None, executable: int | None) -> str:
    """Return the name of one launch of a whole graph."""
    number = executable if graph is None else graph
    return "CUDA graph" if number is None else f"CUDA graph {number}"


def name_sync(sync_type: int | None, call: str | None) -> str:
    """Return the name of a synchronization from the runtime call that requested it, or else from its type."""
    asked = (name for part, name in SYNC_CALLS if call is not None and part in call)
    return next(asked, SYNC_TYPES.get(sync_type or 0, "Sync"))
