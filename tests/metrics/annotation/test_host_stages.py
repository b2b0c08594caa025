"""The stages of the host: of what it launches, and only as far as it was recorded."""

from __future__ import annotations

import polars as pl

import deepprof
from deepprof.analysis import Analysis
from tests.metrics.annotation.test_event_stages import FORWARD, ITERATION, LINEAR, NAMES, PLAIN, US, play
from tests.metrics.contexts.test_slices import op
from tests.tables import launch, make_trace, span

MANY = 12
BEFORE = 30 * US  # a kernel runs so long after its launch


def run(recorded: int) -> Analysis:
    """Return iterations of which the host's part is recorded of the first ones; a range is around forward passes."""
    device, host, ranges = play([ITERATION] * MANY), [], []
    for number, row in enumerate(device):
        row["correlation"] = number
        at = int(str(row["start_ns"])) - BEFORE
        if number < recorded * len(ITERATION):
            host += [op(1, at - 200, at + 300, LINEAR), launch(number, at, at + 100, PLAIN)]
            if number % len(ITERATION) == 0:
                ranges.append(span(FORWARD, at - 300, at + 75 * US))
    return deepprof.analyze(make_trace(device, host, ranges, names=NAMES))


def test_a_call_without_a_stage_is_part_of_that_of_what_it_launched() -> None:
    times = run(MANY).stages_in_iterations.filter(iteration=5)
    host = dict(times.select("stage", pl.col("host_ns") // US).rows())
    assert 75 <= host["forward"] <= 81
    assert host["backward"] >= 70
    assert host["optimizer"] >= 10
    assert times["host_ns"].sum() == 240 * US


def test_iterations_that_the_host_did_not_record_are_of_unknown_and_not_of_no_time() -> None:
    analysis = run(MANY // 2)
    unknown = analysis.stages_in_iterations.group_by("iteration").agg(pl.col("host_ns").is_null().all())
    assert unknown.filter("host_ns")["iteration"].sort().to_list() == list(range(MANY // 2 - 1, MANY))  # one has no end
    assert analysis.stages["mean_host_ns"].sum() > 200 * US
