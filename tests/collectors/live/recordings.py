"""A recorded trace as the records of CUPTI that a GPU would have given, and as what a collector makes of them.

A GPU job under `deepprof run` gives device events alone: no operators, no launches, no names of devices. What CUPTI
does not state as the file does is told here, once: numbers of 32 bits, the names of copies, memsets and graphs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec.structs import replace

from deepprof.collectors.trace import DEVICE_EVENTS, Accounting, Trace

__all__ = ["Recording", "record", "shift"]

Uint32s = npt.NDArray[np.uint32]
ROW = np.dtype(
    [(name, "<u8") for name in ("start", "end", "nbytes", "graph_node")]
    + [("name", "<i4")]
    + [(name, "<u4") for name in ("kind", "device", "context", "stream", "correlation", "graph", "type")]
    + [("source", "u1"), ("target", "u1"), ("zero", "V6")]
)
HEAD = np.dtype([("records", "<u8"), ("names", "<u8"), ("last_kind", "<u4"), ("zero", "<u4")])
KINDS = {"kernel": 10, "memcpy": 1, "memset": 2, "graph": 51, "sync": 38}  # CUPTI's numbers
PTOP = 22
COPY_TYPES = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10}
MEMORY = ("Unknown", "Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
SYNCS = ("Sync", "Event Sync", "Stream Wait Event", "Stream Sync", "Context Sync")
BETWEEN = re.compile(r"\(([\w ]+) -> ([\w ]+)\)")
GRAPH = re.compile(r"CUDA graph (\d+)")
NO_NAME = -1
NO_STREAM = 2**32 - 1  # of a synchronisation


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """What one rank's devices did: `rows` by end, from the first start on, and the `trace` that is made of them."""

    rows: npt.NDArray[np.void]
    names: tuple[bytes, ...]
    trace: Trace

    def write(self, path: Path) -> None:
        """Write it as programs/replay.c reads it."""
        last = KINDS["graph"] if self.has_graphs else KINDS["sync"]
        head = np.array([(len(self.rows), len(self.names), last, 0)], HEAD)
        path.write_bytes(head.tobytes() + self.rows.tobytes() + b"".join(name + b"\0" for name in self.names))

    @property
    def has_graphs(self) -> bool:
        """Whether launches of graphs are among it: collected with `--graphs launches` only."""
        return bool((self.rows["kind"] == KINDS["graph"]).any())

    @property
    def span_ns(self) -> int:
        """From the first start to the last end."""
        return int(self.rows["end"].max()) if len(self.rows) else 0


def record(trace: Trace) -> Recording:
    """Return the device events of `trace` as CUPTI gives them: when they have ended."""
    events = told(trace).sort("end_ns", maintain_order=True)
    texts = events.filter(pl.col("activity") == "kernel")["name"].unique(maintain_order=True)
    return Recording(pack(events, texts), tuple(text.encode() for text in texts), collected(trace, events))


def told(trace: Trace) -> pl.DataFrame:
    """Return the device events with their names, all as a collector on CUPTI shows them."""
    events = trace.device_events.with_columns(name=trace.names.gather(trace.device_events["name_id"]))
    moves = pl.col("activity").is_in(["memcpy", "memset"])
    launched = pl.col("activity").is_in(["kernel", "memcpy", "memset"])
    return events.with_columns(
        pl.col("context").fill_null(0),
        stream=pl.Series(number_streams(events), dtype=pl.Int64),
        name=pl.Series([name_event(*row) for row in events.select("activity", "name", "copy_kind").iter_rows()]),
        correlation=pl.Series(number_launches(events["correlation"]), dtype=pl.UInt64),
        external_id=pl.lit(None, pl.UInt64),
        nbytes=pl.when(moves).then(pl.col("nbytes").fill_null(0)),
        graph_node=pl.when(launched & (pl.col("graph_node") > 0)).then("graph_node"),
    )


def collected(trace: Trace, events: pl.DataFrame) -> Trace:
    """Return what a collector makes of `events`, which come in this order."""
    names = events["name"].unique(maintain_order=True)
    ids = pl.DataFrame({"name": names}).with_row_index("name_id").cast({"name_id": pl.UInt32})
    rows = events.drop("name_id").join(ids, on="name", how="left", maintain_order="left")
    return Trace(
        path=trace.path,
        format="cupti",
        names=names.alias(""),
        accounting=Accounting(rows.height, rows.height),
        device_events=rows.sort("start_ns", maintain_order=True).select(DEVICE_EVENTS.names()).cast(DEVICE_EVENTS),
        rank=trace.rank,
        world_size=trace.world_size,
    )


def shift(trace: Trace, like: Trace) -> Trace:
    """Return `trace`, device events alone, with its first one where that of `like` is, and under the same heading."""
    events = trace.device_events
    moved = like.device_events["start_ns"][0] - events["start_ns"][0]
    events = events.with_columns(pl.col("start_ns", "end_ns") + moved)
    return replace(trace, device_events=events, path=like.path, rank=like.rank, notes=like.notes)


# -- names --


def name_event(activity: str, text: str, copy_kind: str | None) -> str:
    """Return how the library in the job names an event."""
    if activity == "memcpy":
        places = memory_places(text)
        between = f" ({MEMORY[places[0]]} -> {MEMORY[places[1]]})" if all(places) else ""
        return f"Memcpy{f' {copy_kind}' if copy_kind else ''}{between}"
    if activity == "sync":
        return SYNCS[sync_type(text)]
    return "Memset" if activity == "memset" else f"CUDA graph {graph_of(text)}" if activity == "graph" else text


def memory_places(text: str) -> tuple[int, int]:
    """Return whence and where a copy went, as CUPTI's numbers; 0 for what it has none for."""
    found = BETWEEN.search(text)
    source, target = (MEMORY.index(word) if word in MEMORY else 0 for word in (found.groups() if found else ("", "")))
    return source, target


def sync_type(text: str) -> int:
    """Return what kind of synchronisation it was."""
    return SYNCS.index(text) if text in SYNCS else 0


def graph_of(text: str) -> int:
    """Return the number of a graph; every one here is named by it."""
    found = GRAPH.fullmatch(text)
    assert found is not None, text
    return int(found[1])


# -- numbers --


def number_streams(events: pl.DataFrame) -> list[int]:
    """Return the streams as numbers of 32 bits, -1 for a synchronisation of none: those that fit stay."""
    waits = (events["activity"] == "sync") & events["stream"].is_in([-1, NO_STREAM])
    numbers = renumber(events["stream"].filter(~waits), 0, NO_STREAM)
    return [
        -1 if waits_for_none else numbers[stream]
        for waits_for_none, stream in zip(waits, events["stream"], strict=True)
    ]


def number_launches(launches: pl.Series) -> list[int | None]:
    """Return correlations as numbers of 32 bits but 0, null where there was none."""
    numbers = renumber(launches.drop_nulls(), 1, 2**32)
    return [None if launch is None else numbers[launch] for launch in launches]


def renumber(values: pl.Series, first: int, behind: int) -> dict[int, int]:
    """Return a number in [first, behind) for every value, no two of them the same: its own if that is one."""
    different: list[int] = values.unique(maintain_order=True).to_list()
    own = {value: value for value in different if first <= value < behind}
    free = (number for number in range(first, behind) if number not in own)
    return own | {value: next(free) for value in different if value not in own}


# -- records --


def pack(events: pl.DataFrame, texts: pl.Series) -> npt.NDArray[np.void]:
    """Return the rows of `events`; `texts` are the names of kernels, to which rows refer by place."""
    rows = np.zeros(events.height, ROW)
    zero = int(events["start_ns"].min() or 0)  # type: ignore[arg-type]
    places = {text: number for number, text in enumerate(texts)}
    columns = events.select("activity", "name", "copy_kind").iter_rows()
    details = [describe(activity, text, copy_kind, places) for activity, text, copy_kind in columns]
    for number, name in enumerate(("kind", "name", "type", "source", "target", "graph")):
        rows[name] = [detail[number] for detail in details]
    rows["start"], rows["end"] = events["start_ns"] - zero, events["end_ns"] - zero
    for name in ("device", "context", "nbytes", "graph_node", "correlation"):
        rows[name] = events[name].fill_null(0)
    rows["stream"] = events["stream"].to_numpy() & NO_STREAM
    return rows


def describe(
    activity: str, text: str, copy_kind: str | None, places: dict[str, int]
) -> tuple[int, int, int, int, int, int]:
    """Return kind, place of the name, type, source, target and graph of a record."""
    kind = PTOP if copy_kind == "PtoP" else KINDS[activity]
    if activity == "memcpy":
        return kind, NO_NAME, COPY_TYPES.get(copy_kind or "", 0), *memory_places(text), 0
    if activity == "graph":
        return kind, NO_NAME, 0, 0, 0, graph_of(text)
    return kind, places.get(text, NO_NAME) if activity == "kernel" else NO_NAME, sync_type(text), 0, 0, 0
