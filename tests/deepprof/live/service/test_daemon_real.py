"""Every real trace through a real daemon gives what the offline analysis gives: iterations, figures and report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import deepprof
from deepprof.commands import main
from deepprof.live.wire.sent_tables import as_sent
from tests.deepprof.live.service.daemons import Daemon, running
from tests.deepprof.live.service.sending import check_accounts, iterations_of, open_client, wait_settled
from tests.manifest import path_of, rows
from tests.widening import first_of_each, slow_unless

# With the host's side, without it, with many devices, and one that no importer reads: a daemon is sent the same of all.
QUICK = {"kineto-json", "nvprof-csv", "xplane-pb", "nsys-rep (binary)"}


def is_of_quick_format(row: dict[str, str]) -> bool:
    return row.get("format") in QUICK


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running() as found:
        yield found


@pytest.mark.traces
@pytest.mark.parametrize("row", slow_unless(is_of_quick_format, first_of_each("format", rows(jobs=True))))
def test_a_real_trace_gives_the_offline_result(row: dict[str, str], daemon: Daemon) -> None:
    path, job = path_of(row), row["file"].partition("/")[0]
    try:
        traces = deepprof.read_job(path)
    except deepprof.TraceError:  # what no importer reads is not sent either
        assert main(["send", str(path), "--to", daemon.address, "--job", job]) == 2
        return
    with open_client(daemon) as client:
        if job in {known.job for known in client.jobs()}:
            client.forget(job)
        client.send(traces, job)
        wait_settled(client, job)
        offline = deepprof.analyze(traces)
        assert in_order(client.iterations(job)).equals(in_order(iterations_of(offline)))
        check_accounts(client)
        assert sum(rank.account.accepted for rank in client.ranks(job)) == sum(t.accounting.kept for t in traces)
        if len(traces) == 1:
            assert [figures(found) for found in client.metrics(job)] == [figures(row) for row in tables(offline)]
        sent = deepprof.analyze([as_sent(trace) for trace in traces])
        assert json.loads(deepprof.analyze(client.window(job)).to_json()) == json.loads(sent.to_json())


def in_order(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort("rank", "device", "loop", "index")


def tables(analysis: deepprof.Analysis) -> list[SimpleNamespace]:
    """Return Table III of every loop."""
    return [SimpleNamespace(**row) for row in analysis.metrics.iter_rows(named=True)]


def figures(found: Any) -> tuple[Any, ...]:
    """Return what both the daemon and the offline analysis state of a loop."""
    names = ("rank", "device", "avg_interval_ns", "max_interval_ns", "avg_overlap_ratio", "avg_operation_ns")
    return tuple(getattr(found, name) for name in (*names, "median_iteration_ns"))


@pytest.mark.traces
def test_the_command_prints_the_report_of_the_file(daemon: Daemon, traces: Path, tmp_path: Path) -> None:
    path = next((traces / "tb-resnet50-nw4").iterdir())
    assert main(["send", str(path), "--to", daemon.address, "--job", "command"]) == 0
    live, recorded = tmp_path / "live.json", tmp_path / "recorded.json"
    assert main(["diagnose", "--daemon", daemon.address, "command", "--format", "json", "-o", str(live)]) == 0
    files = ["diagnose", str(path), "--no-shapes", "--format", "json", "-o", str(recorded)]  # shapes are not sent
    assert main(files) == 0
    assert live.read_text() == recorded.read_text()
