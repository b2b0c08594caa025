"""Every real trace holds what its row of the manifest says, whichever tool wrote it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import deepprof
from deepprof.collectors.trace import Trace
from tests import manifest

REFUSED = ("pyprof-csv", "nsys-rep (binary)")
READ = [row for row in manifest.rows() if not row.values[0] or row.values[0]["format"] not in REFUSED]
COUNTED = [row for row in manifest.rows() if not row.values[0] or row.values[0]["kernels"]]
# The manifest counts what has the category "kernel"; this writer gives none, and says what an event is in its args.
KERNELS_TOO = {"rpd-matmul-json/matmul_result.json": 29}


def counted(trace: Trace, format: str) -> pl.DataFrame:
    """Return the events that the manifest counts as kernels; XLA's profiler does not tell copies apart on AMD."""
    return trace.device_events if format == "xplane-pb" else trace.device_events.filter(activity="kernel")


@pytest.mark.traces
@pytest.mark.parametrize("row", COUNTED)
def test_kernels_streams_and_devices_are_those_of_the_manifest(traces: Path, row: dict[str, str]) -> None:
    trace = deepprof.read(traces / row["file"])
    kernels = counted(trace, row["format"])
    assert kernels.height == KERNELS_TOO.get(row["file"], int(row["kernels"]))
    if row["file"] not in KERNELS_TOO:
        assert kernels.select("device", "stream").n_unique() * bool(kernels.height) == int(row["streams"])
    if kernels.height:
        assert kernels["device"].n_unique() == int(row["ranks_or_devices"])


@pytest.mark.traces
@pytest.mark.parametrize("row", READ)
def test_nothing_is_lost_uncounted(traces: Path, row: dict[str, str]) -> None:
    accounting = deepprof.read(traces / row["file"]).accounting
    assert accounting.read == accounting.kept + sum(accounting.dropped.values()) > 0
