"""The calling context tree of a running job, from the nodes and sums that it sends instead of events.

A job adds up in its own memory what each context does and sends a row per context and window of time (DeepContext,
section 4), so that nothing here grows with the number of iterations. The contexts are those that a recording of the
same program has: frames of Python and operators, backward operators within the forward one that made them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.contexts.backward import ENGINE, NODES
from deepprof.metrics.contexts.frames import KIND, number_distinct, read_frames
from deepprof.metrics.contexts.paths import add_up, number_paths, read_places
from deepprof.metrics.contexts.tree import CONTEXTS, tabulate_contexts
from deepprof.metrics.contexts.unfolding import ContextNodes

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LEFT_OUT = ("(iterations left out)", "(seconds left out)")  # contexts that count what the job did not collect
NOT_SENT = "what is around it was not sent"
FIXED = (("all", "all"), ("unattributed", NOT_SENT))  # kind and name of the first two contexts
AMOUNTS = ("count", "host_ns", "device_count", "device_ns")  # of a row of sums
LARGEST = 1 << 50  # of one amount: sums of larger ones, which no window has, would overflow
TAKEN = TableSchema.of(
    "What one context took; `own_…` is what it took itself, the others have all within it, too.",
    {
        "count": (pl.Int64(), "how often it, and all within, began"),
        "own_count": (pl.Int64(), "how often it began itself"),
        "host_ns": (pl.Int64(), "its time on threads of the host, with all within"),
        "own_host_ns": (pl.Int64(), "its time on threads of the host, itself"),
        "device_count": (pl.Int64(), "what it launched on devices, with all within"),
        "own_device_count": (pl.Int64(), "what it launched on devices, itself"),
        "device_ns": (pl.Int64(), "the time of that on devices, added up, with all within"),
        "own_device_ns": (pl.Int64(), "the time of that on devices, added up, itself"),
    },
)
SENT = TableSchema.side_by_side("One calling context of a running job, with what it took.", [CONTEXTS, TAKEN])


class SentContexts(Struct, frozen=True, eq=False, dict=True):
    """The contexts of what was sent, without what they needed.

    `contexts` has the schema `CONTEXTS`. `nodes` has for every node that was sent its `context`, as sent, and `number`,
    the row of `contexts`; `parent` is by row of it the row of the node around, -1 for none.
    """

    contexts: pl.DataFrame
    nodes: pl.DataFrame
    parent: Int64s

    def measure(self, sums: pl.DataFrame) -> pl.DataFrame:
        """Return what contexts needed, with the schema `SENT`; `sums` have a row for every window and node."""
        known = sums.group_by("context").agg(_bounded(name).sum() for name in AMOUNTS)
        own = np.stack([self._own(name, known.with_columns(window=0), 1)[:, 0] for name in AMOUNTS], axis=1)
        whole = add_up(own, *read_places(self.contexts))
        columns: dict[str, Int64s] = {}
        for at, name in enumerate(AMOUNTS):
            columns |= {name: whole[:, at], f"own_{name}": own[:, at]}
        return self.contexts.hstack(pl.DataFrame(columns).cast(dict(TAKEN)))  # type: ignore[arg-type]

    def count_windows(self, sums: pl.DataFrame, windows: int) -> Int64s:
        """Return how often each context began, as contexts × windows; `sums` have their `window`, from 0 on."""
        return self._own("count", sums.group_by("context", "window").agg(_bounded("count").sum()), windows)

    def measure_windows(self, name: str, sums: pl.DataFrame, windows: int) -> Int64s:
        """Return one of `AMOUNTS` as contexts × windows, with all within; `sums` have their `window`, from 0 on."""
        taken = sums.group_by("context", "window").agg(_bounded(name).sum())
        return add_up(self._own(name, taken, windows), *read_places(self.contexts))

    def _own(self, name: str, taken: pl.DataFrame, windows: int) -> Int64s:
        """Return what contexts took themselves, as contexts × windows.

        That is what was sent; of the host's time, which is sent with that of all within, what is of no callee.
        """
        rows = self.nodes.with_row_index("row").select("context", "row")
        placed = taken.join(rows, on="context", how="left").select("window", name, row=pl.col("row").fill_null(-1))
        row, window = placed["row"].cast(pl.Int64).to_numpy(), placed["window"].cast(pl.Int64).to_numpy()
        of_nodes = np.zeros((len(self.parent) + 1, windows), np.int64)  # the last one: of no node that is known
        np.add.at(of_nodes, (row, window), placed[name].to_numpy())
        if name == "host_ns":
            whole, inner = of_nodes[:-1].copy(), np.flatnonzero(self.parent >= 0)
            np.subtract.at(of_nodes, self.parent[inner], whole[inner])
            of_nodes = np.maximum(of_nodes, 0)  # where sums of what is around were lost on the way
        own = np.zeros((self.contexts.height, windows), np.int64)
        np.add.at(own, np.append(self.nodes["number"].to_numpy(), 1), of_nodes)
        return own


def read_sent(nodes: pl.DataFrame, *, at_lines: bool = True) -> SentContexts:
    """Return the contexts of nodes: `context`, `parent` (0: none), `kind`, `name` and `line` of each, in any order.

    The line of a Python frame is the running one, so that two calls in a function are two contexts; unless `at_lines`
    it is that on which the function begins, as in recordings. A node whose parent is not there, or that is in
    itself, is in the second context.
    """
    known = nodes.unique("context", keep="first", maintain_order=True)
    parent, lost = _find_parents(known)
    frame, frames = number_distinct(_read_frames(known, at_lines=at_lines))
    begins = _begin_backward(known)
    number = frame.to_numpy() + len(FIXED)
    paths = number_paths(parent, 2 * number + begins, lost.astype(np.int64), len(FIXED))
    first = np.arange(len(FIXED))
    top = ContextNodes(np.minimum(first, 1) - 1, first, np.zeros(len(FIXED), np.bool_))
    below = ContextNodes(paths.parent, paths.frame // 2, paths.frame % 2 == 1)
    contexts = tabulate_contexts(top + below, pl.concat([_fixed_frames(frames), frames]))
    numbered = known.select("context", number=pl.Series(paths.context, dtype=pl.Int64))
    return SentContexts(contexts, numbered, parent)


def is_left_out() -> pl.Expr:
    """Return which contexts are none of the program's, and count what the job did not collect."""
    return (pl.col("depth") == 1) & pl.col("name").is_in(LEFT_OUT)


def _bounded(name: str) -> pl.Expr:
    """Return amounts that can be added up."""
    return pl.col(name).clip(0, LARGEST).cast(pl.Int64)


def _find_parents(known: pl.DataFrame) -> tuple[Int64s, Bools]:
    """Return the row of the node around each one, -1 for none, and where that is because it was not found."""
    rows = known.select(parent="context", row=pl.int_range(pl.len(), dtype=pl.Int64))
    found = known.join(rows, on="parent", how="left", maintain_order="left")["row"].fill_null(-1).to_numpy().copy()
    jump = found
    for _ in range(len(found).bit_length()):  # twice as far each time: what goes on after that goes in circles
        jump = np.where(jump >= 0, jump[jump], -1)
    found[jump >= 0] = -1
    return found, (found < 0) & (known["parent"] != 0).to_numpy()


def _read_frames(known: pl.DataFrame, *, at_lines: bool) -> pl.DataFrame:
    frames = read_frames(known.select(pl.col("kind").cast(pl.String).cast(KIND), "name"))
    if not at_lines:
        return frames
    running = pl.lit(known["line"]).cast(pl.UInt32)
    shown = pl.col("file").is_not_null() & (running > 0)
    return frames.with_columns(line=pl.when(shown).then(running).otherwise("line"))


def _begin_backward(known: pl.DataFrame) -> Bools:
    named = pl.col("name").fill_null("").str.contains(f"^{ENGINE}|{NODES}")
    return known.select((pl.col("kind").cast(pl.String) == "operator") & named).to_series().to_numpy()


def _fixed_frames(like: pl.DataFrame) -> pl.DataFrame:
    """Return the frames of the first contexts."""
    nothing = [{"kind": kind, "name": name, "file": None, "line": None} for kind, name in FIXED]
    return pl.DataFrame(nothing, schema=like.schema)
