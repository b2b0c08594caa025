"""Every real trace contains what its row of the manifest states, whichever tool wrote it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import deepprof
from tests import manifest

REFUSED = ("pyprof-csv", "nsys-rep (binary)")
READ = [row for row in manifest.rows(jobs=True) if not row.values[0] or row.values[0]["format"] not in REFUSED]
COUNTED = [row for row in manifest.rows(jobs=True) if not row.values[0] or row.values[0]["kernels"]]
# The manifest counts what has the category "kernel"; this writer gives none, and states what an event is in its args.
KERNELS_TOO = {"rpd-matmul-json/matmul_result.json": 29}


def counted(row: dict[str, str]) -> pl.DataFrame:
    """Return the events of all ranks that the manifest counts: of XLA's profiles the older one counts all."""
    ranks = deepprof.read_job(manifest.path_of(row))
    work = pl.concat(trace.device_events.with_columns(rank=trace.rank or 0) for trace in ranks)
    everything = row["format"] == "xplane-pb" and row["folder"] == str(manifest.TRACES)
    return work if everything else work.filter(activity="kernel")


@pytest.mark.traces
@pytest.mark.parametrize("row", COUNTED)
def test_kernels_streams_and_devices_are_those_of_the_manifest(traces: Path, row: dict[str, str]) -> None:
    kernels = counted(row)
    assert kernels.height == KERNELS_TOO.get(row["file"], int(row["kernels"]))
    if row["file"] not in KERNELS_TOO:
        assert kernels.select("rank", "device", "stream").n_unique() * bool(kernels.height) == int(row["streams"])
    if kernels.height:
        assert kernels.select("rank", "device").n_unique() == int(row["ranks_or_devices"])


@pytest.mark.traces
@pytest.mark.parametrize("row", READ)
def test_nothing_is_lost_uncounted(traces: Path, row: dict[str, str]) -> None:
    for accounting in (trace.accounting for trace in deepprof.read_job(manifest.path_of(row))):
        assert accounting.read == accounting.kept + sum(accounting.dropped.values()) > 0
