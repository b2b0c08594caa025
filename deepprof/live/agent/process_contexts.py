"""Calling contexts of a process: its ids as hashes of paths, and its sums as tables of a rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.context_nodes import CONTEXT_KINDS, MOST_DEPTH, hash_context
from deepprof.collectors.live.packets import CONTEXT
from deepprof.collectors.trace import CONTEXT_NODES, CONTEXT_SUMS
from deepprof.live.agent.hello import ProtocolError
from deepprof.live.agent.reordering import Rows

MOST_CONTEXTS = 1 << 20
LARGEST = 2**45  # of one sum: those of a batch stay below the limit of the wire together
PIECE_ROWS = 32_768  # of sums and contexts together: a message may have twice as many

_NODE = np.dtype(
    [("hash", "<u8"), ("parent", "<u4"), ("name", "<u4"), ("line", "<u4"), ("kind", "u1"), ("depth", "<u2")]
)


class SumTimes(NamedTuple):
    """Start and length of every window, and the time on devices of what each context launched."""

    start_ns: npt.NDArray[np.int64]
    window_ns: npt.NDArray[np.int64]
    device_count: npt.NDArray[np.int64]
    device_ns: npt.NDArray[np.int64]


class ProcessContexts:
    """The tree that a process has told, by its ids, which begin at 1; 0 is the root."""

    def __init__(self) -> None:
        self._nodes = np.zeros(1, _NODE)
        self.count = 1  # the root and all nodes

    def __len__(self) -> int:
        return self.count

    def add(self, payload: memoryview, names: Sequence[str]) -> None:
        """Take the contexts of a packet; `names` are texts by the process's ids. Raises `ProtocolError`."""
        if len(payload) % CONTEXT.itemsize:
            raise ProtocolError("a packet of contexts is cut")
        rows = np.frombuffer(payload, CONTEXT)
        ids = np.arange(self.count, self.count + len(rows))
        if self.count + len(rows) > MOST_CONTEXTS:
            raise ProtocolError("it has too many contexts")
        if (rows["id"] != ids).any() or (rows["parent"] >= rows["id"]).any():
            raise ProtocolError("its contexts are numbered wrongly")
        if (rows["kind"] >= len(CONTEXT_KINDS)).any() or (rows["name"] >= len(names)).any():
            raise ProtocolError("a context has a kind or a name that it has not told")
        self._make_room(len(rows))
        for row in rows.tolist():
            self._add(row, names[row[2]])

    def _make_room(self, more: int) -> None:
        if self.count + more > len(self._nodes):
            self._nodes = np.concatenate([self._nodes, np.zeros(max(more, len(self._nodes)), _NODE)])

    def _add(self, row: tuple[int, int, int, int, int], text: str) -> None:
        number, parent, name, line, kind = row
        above = self._nodes[parent]
        hashed = hash_context(int(above["hash"]), kind, text, line)
        self._nodes[number] = (hashed, parent, name, line, kind, min(int(above["depth"]) + 1, MOST_DEPTH + 1))
        self.count = number + 1

    def judge(self, rows: Rows) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
        """Yield reasons to leave sums out, each with the rows to which it does not apply."""
        known = (rows["context"] > 0) & (rows["context"] < self.count)
        yield "unknown-context", known
        yield "too-deep", self._nodes["depth"][np.where(known, rows["context"], 0)] <= MOST_DEPTH
        yield "invalid-sum", (rows["host_ns"] >= 0) & (rows["host_ns"] < LARGEST) & (rows["count"] < LARGEST)

    def cut(self, rows: Rows) -> Iterator[tuple[slice, npt.NDArray[np.intp]]]:
        """Yield pieces of sums that fit into messages, each with the ids of the contexts that it needs."""
        yield from self._cut(rows["context"].astype(np.intp), 0, len(rows))

    def _cut(
        self, contexts: npt.NDArray[np.intp], first: int, last: int
    ) -> Iterator[tuple[slice, npt.NDArray[np.intp]]]:
        needed = self._find_needed(contexts[first:last])
        if last - first + len(needed) <= PIECE_ROWS or last - first == 1:
            yield slice(first, last), needed
            return
        half = (first + last) // 2
        yield from self._cut(contexts, first, half)
        yield from self._cut(contexts, half, last)

    def _find_needed(self, contexts: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Return the ids on the paths to `contexts`."""
        needed = np.zeros(self.count, np.bool_)
        needed[0] = True
        ids = np.unique(contexts)
        while (ids := ids[~needed[ids]]).size:
            needed[ids] = True
            ids = np.unique(self._nodes["parent"][ids]).astype(np.intp)
        needed[0] = False
        return np.flatnonzero(needed)

    def names_of(self, ids: npt.NDArray[np.intp]) -> npt.NDArray[np.uint32]:
        """Return the process's ids of the names of contexts."""
        names: npt.NDArray[np.uint32] = self._nodes["name"][ids]
        return names

    def nodes(self, ids: npt.NDArray[np.intp], names: npt.NDArray[np.uint32]) -> pl.DataFrame:
        """Return contexts as CONTEXT_NODES; `names` are the rank's ids of their names. Equal paths come once."""
        rows = self._nodes[ids]
        columns = {
            "context": np.ascontiguousarray(rows["hash"]),
            "parent": self._nodes["hash"][rows["parent"]],
            "kind": np.ascontiguousarray(rows["kind"]),
            "name_id": names,
            "line": np.ascontiguousarray(rows["line"]),
        }
        table = pl.DataFrame(columns).with_columns(pl.col("kind").cat.to(CONTEXT_NODES["kind"]))
        return table.unique("context", keep="first", maintain_order=True).sort("context")

    def sums(self, rows: Rows, times: SumTimes) -> pl.DataFrame:
        """Return CONTEXT_SUM rows, sorted by start, as the table CONTEXT_SUMS."""
        columns = {
            "time_ns": times.start_ns,
            "window_ns": times.window_ns,
            "context": self._nodes["hash"][rows["context"]],
            "count": np.ascontiguousarray(rows["count"]),
            "host_ns": np.ascontiguousarray(rows["host_ns"]),
            "device_count": times.device_count,
            "device_ns": times.device_ns,
        }
        return pl.DataFrame(columns).cast(CONTEXT_SUMS)
