"""What each line of code takes, wherever it is called from: few enough to be a series each."""

from __future__ import annotations

import numpy as np
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.metrics.contexts.code_lines import find_lines
from deepprof.metrics.contexts.frames import write_line

UNKNOWN = "(unknown)"
LINES = TableSchema.of(
    "What one line of code took, with what of frameworks and operators it called, but without other lines of code.",
    {
        "line": (pl.String(), "the function, the end of the path, the line; an operator where there is no line"),
        "host_ns": (pl.Int64(), "its time on threads of the host"),
        "device_ns": (pl.Int64(), "the time on devices of what it launched"),
    },
)


def sum_lines(contexts: pl.DataFrame) -> pl.DataFrame:
    """Return what lines of code took, with the schema `LINES`, the largest first; `contexts` have that of `SENT`.

    The line of a context is that of the innermost function around it that is no framework's (`find_lines`). All lines
    together have what all contexts have.
    """
    place = find_lines(contexts)
    of = np.where(place >= 0, place, np.arange(len(place)))
    rows = contexts[of].select("kind", "name", "file", "line")
    named = rows.select(pl.struct("kind", "name", "file", "line").map_elements(_name_line, pl.String).alias("line"))
    taken = contexts.select(host_ns="own_host_ns", device_ns="own_device_ns")
    sums = named.hstack(taken).group_by("line").sum().filter((pl.col("host_ns") > 0) | (pl.col("device_ns") > 0))
    share = pl.max_horizontal(pl.col(name) / pl.col(name).sum().clip(1) for name in ("host_ns", "device_ns"))
    return sums.sort(-share, "line").select(list(LINES))


def _name_line(frame: dict[str, str | int | None]) -> str:
    name, file, line = str(frame["name"]), frame["file"], frame["line"]
    if file is not None:
        return write_line(name, str(file), None if line is None else int(line))
    return UNKNOWN if frame["kind"] in {"all", "unattributed"} else name
