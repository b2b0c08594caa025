"""The kinds of records, by which records are counted from the process that made them to the daemon that keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import polars as pl

from deepprof.collectors.trace import ACTIVITIES
from deepprof.live.wire.sent_tables import SENT_RECORDS

UNKNOWN_KIND = "unknown"
HOST_KINDS = tuple(table for table in SENT_RECORDS if table != "device_events")
KINDS_OF_RECORDS = (*ACTIVITIES, *HOST_KINDS)


def count_kinds(tables: Mapping[str, pl.DataFrame]) -> Counter[str]:
    """Return how many records the tables hold of every kind: device events by activity, the others by their table."""
    counts = Counter({table: tables[table].height for table in HOST_KINDS if table in tables and tables[table].height})
    if (events := tables.get("device_events")) is not None and events.height:
        activities = np.bincount(events["activity"].to_physical().to_numpy(), minlength=len(ACTIVITIES))
        counts.update({kind: int(count) for kind, count in zip(ACTIVITIES, activities, strict=True) if count})
    return counts
