"""What a rank of a running job has sent of its contexts: the nodes, and their sums by window of time."""

from __future__ import annotations

from functools import cached_property

import polars as pl
from msgspec import Struct

from deepprof.metrics.contexts.sent import SentContexts, read_sent


class ContextsOfRank(Struct, frozen=True, eq=False, dict=True):
    """The history of one rank's contexts.

    `nodes` have `context`, `parent`, `kind`, `name` and `line`; `sums` a row for every window and node, with `time_ns`,
    `window_ns`, `context`, `count`, `host_ns`, `device_count` and `device_ns`.
    """

    job: str
    rank: int
    nodes: pl.DataFrame
    sums: pl.DataFrame

    @cached_property
    def sent(self) -> SentContexts:
        """The contexts, with the lines that were running."""
        return read_sent(self.nodes)

    @cached_property
    def table(self) -> pl.DataFrame:
        """What contexts needed in all windows together, with the schema `SENT`."""
        return self.sent.measure(self.sums)
