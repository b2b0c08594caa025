"""Every real trace through a session gives what the analysis of the whole trace gives."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import polars as pl
import pytest

import deepprof
from deepprof.collectors.errors import TraceError
from deepprof.collectors.trace import Trace
from deepprof.live.service.session import RankSession
from tests.deepprof.live.service.session.feeding import EVERYTHING, batches_of, feed
from tests.loops import agrees_live
from tests.widening import slow_unless

# In one trace the online miner puts the first kernel of its iterations eleven kernels away from where the miner of
# whole traces does, as it decides before it has seen the end. That is what a daemon settles once a rank has ended.
DIFFERS = "cs336-zx-2_7B-clean/result_2_7B_clean.sqlite"
SAME = ["start_ns", "end_ns", "kernels", "events", "iteration_ns", "operation_ns", "interval_ns", "overlap_ratio"]
SAME += ["htod_ns", "htod_bytes", "busy_ns", "idle_ns"]


@cache
def offline(path: Path) -> tuple[Trace, pl.DataFrame] | None:
    """Return a trace and the complete iterations that its analysis finds, None where it cannot be read."""
    try:
        trace = deepprof.read(path)
    except TraceError:
        return None
    found = deepprof.analyze(trace).iterations
    return trace, complete(found)


def complete(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter("complete").sort("device", "start_ns").select("device", *SAME)


@pytest.mark.traces
@pytest.mark.parametrize("records", [*slow_unless(lambda _: False, [100, 8192]), EVERYTHING])
def test_a_session_gives_the_iterations_of_the_analysis(traces: Path, records: int) -> None:
    files = pl.read_csv(traces / "manifest.csv")["file"].to_list()
    differ, looped = set(), 0
    for file in files:
        known = offline(traces / file)
        if known is None:
            continue
        trace, wanted = known
        looped += wanted.height > 0
        given = complete(feed(RankSession(), batches_of(trace, records)).rows)
        if not agrees_live(given, wanted):
            differ.add(file)
            assert given["start_ns"].to_list() != wanted["start_ns"].to_list(), f"{file}: other figures"
    assert differ <= {DIFFERS}
    assert looped >= 20
