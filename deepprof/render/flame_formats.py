"""The contexts of one rank for other programs: as JSON (`deepprof.flame/1`), or in a format of flame graphs.

The JSON has a row per context, parents before children. Keys are never renamed without a new schema number; all are
present, null where there is no value. Times are integer nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import msgspec
import polars as pl

from deepprof.metrics.contexts.frames import FRAMES
from deepprof.render.collapsed import write_collapsed
from deepprof.render.flame import FlameMeasure
from deepprof.render.pprof import PprofPeriod, PprofProfile
from deepprof.render.speedscope import write_speedscope_contexts
from deepprof.version import read_version

SCHEMA = "deepprof.flame/1"


class FlameOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Whose contexts they are; the Unix times state when those of a running job were sent, null of a trace."""

    job: str
    rank: int
    start_unix_ns: int | None = None
    end_unix_ns: int | None = None


def _encode_flame(contexts: pl.DataFrame, origin: FlameOrigin, measures: Mapping[str, FlameMeasure]) -> bytes:
    """Return the contexts as JSON, with what each needed by each of `measures`, itself and with all within it."""
    places = contexts.select("context", "parent", *FRAMES, "backward").cast({"kind": pl.String})
    taken = [each for name, m in measures.items() for each in (m.whole.alias(name), m.own.alias(f"own_{name}"))]
    count = {"count": "own_count"} if "own_count" in contexts.columns else {}
    rows = places.hstack(contexts.select(*taken, **count))
    document: dict[str, Any] = {"schema": SCHEMA, "deepprof": read_version()} | msgspec.to_builtins(origin)
    document["measures"] = [{"name": n, "title": m.title, "unit": m.unit} for n, m in measures.items()]
    return msgspec.json.encode(document | {"contexts": rows.to_dicts()}) + b"\n"


def write_flame_format(
    name: str, contexts: pl.DataFrame, origin: FlameOrigin, measures: Mapping[str, FlameMeasure], by: str
) -> bytes:
    """Return the contexts in JSON or another format but text; collapsed stacks have the numbers of the measure `by`."""
    if name == "json":
        return _encode_flame(contexts, origin, measures)
    file, ranked = BytesIO(), contexts.with_columns(rank=pl.lit(origin.rank))
    if name == "collapsed":
        write_collapsed(ranked, file, measures[by])
    elif name == "speedscope":
        write_speedscope_contexts(ranked, file, origin.job, measures)
    else:
        start, end = origin.start_unix_ns, origin.end_unix_ns
        profile = PprofProfile(measures)
        profile.add(contexts, labels={"job_id": origin.job, "rank": str(origin.rank)})
        profile.write(file, None if start is None or end is None else PprofPeriod(start, end - start))
    return file.getvalue()
