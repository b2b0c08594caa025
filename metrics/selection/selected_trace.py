"""A part of a trace that was analysed as a whole: it brings what was found there, and is not searched again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from msgspec import field

from deepprof.collectors.trace import Trace, empty_table

if TYPE_CHECKING:
    from deepprof.metrics.loop import Loop

STREAM_ROLES = pl.Schema({"device": pl.UInt16(), "stream": pl.Int64(), "role": pl.String()})


class SelectedTrace(Trace, frozen=True, kw_only=True, eq=False):
    """A part of a trace, with what the analysis of the whole found.

    `loops` are those of the whole with the iterations that are in the part, `roles` (`STREAM_ROLES`) are the roles of
    the streams of the whole. `thread` is the one whose operators are its kernels, where the whole has no device.
    `is_numbered`: kernels were chosen by number, so that an iteration without some of its kernels is cut.
    """

    loops: tuple[Loop, ...] = ()
    roles: pl.DataFrame = field(default_factory=lambda: empty_table(STREAM_ROLES))
    thread: int | None = None
    is_numbered: bool = False


def keep_roles(streams: pl.DataFrame, part: SelectedTrace | None) -> pl.DataFrame:
    """Return the streams of a trace, a table `STREAMS`; those of a `part` with their roles in the whole."""
    if part is None:
        return streams
    known = streams.select("device", "stream").join(
        part.roles, on=["device", "stream"], how="left", maintain_order="left"
    )
    return streams.with_columns(role=known["role"].cast(streams.schema["role"]).fill_null(streams["role"]))
