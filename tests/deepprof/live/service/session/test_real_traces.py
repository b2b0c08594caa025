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
# Loops of few kernels without inner ones, which the times of kernels show: the live miner has only their order.
SHORT = (
    "nvprof-csv-cg/conjugateGradient_trace.csv",
    "nvprof-csv-stencil2d/traces_shoc_lev1stencil2d.csv",
    "rocprofv3-csv-llamacpp/decode_kernel_trace.csv",
)
# Unlike the first of their format: of few kernels an iteration, and of a device alone with a loop.
BESIDE = ["cs336-zx-2_7B-compile/result_2_7B_compile_ro.sqlite", "rocprofv3-csv-llamacpp/prefill_kernel_trace.csv"]
WHOLE = [(100, 20), (8192, 20), (EVERYTHING, 20)]
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


def files(traces: Path, *, few: bool) -> list[str]:
    """Return the files of the manifest; `few`: the first of every format, and `BESIDE`."""
    listed = pl.read_csv(traces / "manifest.csv")
    first = pl.col("format").is_first_distinct() | pl.col("file").is_in([DIFFERS, *BESIDE])
    return (listed.filter(first) if few else listed)["file"].to_list()


@pytest.mark.traces
@pytest.mark.parametrize(("records", "looped_min"), [(EVERYTHING, 7), *slow_unless(lambda _: False, WHOLE)])
def test_a_session_gives_the_iterations_of_the_analysis(traces: Path, records: int, looped_min: int) -> None:
    differ, looped = set(), 0
    for file in files(traces, few=looped_min < 20):
        known = offline(traces / file)
        if known is None:
            continue
        trace, wanted = known
        looped += wanted.height > 0
        given = complete(feed(RankSession(), batches_of(trace, records)).rows)
        if not agrees_live(given, wanted):
            differ.add(file)
            assert given["start_ns"].to_list() != wanted["start_ns"].to_list(), f"{file}: other figures"
    assert differ <= {DIFFERS, *SHORT}
    assert looped >= looped_min
