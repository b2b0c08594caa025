"""The rules over time on every real trace: what they state of good recordings is little."""

from __future__ import annotations

from pathlib import Path

import pytest

import deepprof
from deepprof.diagnosis.finding import Finding
from deepprof.diagnosis.rules.capture_incomplete import capture_incomplete
from deepprof.diagnosis.rules.drift import drift
from deepprof.diagnosis.rules.graph_growth import graph_growth
from deepprof.diagnosis.rules.slow_iterations import slow_iterations
from tests import manifest
from tests.widening import first_of_each

# 61 % of the iteration is idle without a cause, as 77 % are where only kernels were recorded; one iteration after
# warm-up; a result that is copied every hundred iterations; a rank that waits more and more.
WARNED = {
    "hta-negqueue",
    "nvprof-csv-stencil2d",
    "rocprofv3-csv-llamacpp/decode_kernel_trace.csv",
    "tl-jax08-attention",
    "tl-rocprof-json",
}
CHANGING = {
    "nvprof-csv-pagerank": {"slow-iterations"},  # one of 45, 1.5 ms
    "nvprof-csv-stencil2d": {"slow-iterations"},  # 141 of 10,999, half of the time
    "param-linear": {"slow-iterations"},  # 10 and 21 of 40 used more than twice the time of the others on the host
    "tl-rocprof-json": {"slow-iterations", "drift"},  # from 34 to 46 ms over 50, and six of 57 to 169 ms
}


def findings(path: Path) -> list[Finding]:
    """Return what the rules over time state of a file."""
    analysis = deepprof.analyze(deepprof.read_job(path))
    traces = {trace.rank or 0: trace for trace in analysis.traces}
    rules = (slow_iterations, drift, graph_growth, capture_incomplete)
    return [f for loop in analysis.loops for rule in rules for f in rule(loop, traces[loop.rank])]


@pytest.mark.traces
@pytest.mark.parametrize("row", first_of_each("format", manifest.rows(jobs=True)))
def test_real_traces(traces: Path, row: dict[str, str]) -> None:
    if row["format"] in ("pyprof-csv", "nsys-rep (binary)"):  # refused
        return
    case, found = row["file"].split("/")[0], findings(manifest.path_of(row))
    assert all(f.severity == "info" for f in found) == WARNED.isdisjoint({case, row["file"]})
    assert {f.rule for f in found} - {"capture-incomplete"} == CHANGING.get(case, set())
    assert sum(f.rule == "capture-incomplete" for f in found) <= 8  # one per loop
