"""Every real trace through a real daemon gives what the offline analysis gives: iterations, figures and report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import deepprof
from deepprof.commands import main
from tests.deepprof.service.daemons import Daemon, running
from tests.deepprof.service.sending import check_accounts, iterations_of, open_client, wait_settled
from tests.manifest import TRACES, rows


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running() as found:
        yield found


@pytest.mark.traces
@pytest.mark.parametrize("row", rows())
def test_a_real_trace_gives_the_offline_result(row: dict[str, str], daemon: Daemon, tmp_path: Any) -> None:
    path, job = TRACES / row["file"], row["file"].partition("/")[0]
    traces = deepprof.read_job(path)
    with open_client(daemon) as client:
        if job in {known.job for known in client.jobs()}:
            client.forget(job)
        client.send(traces, job)
        wait_settled(client, job)
        offline = iterations_of(traces)
        assert (
            client.iterations(job)
            .sort("rank", "device", "loop", "index")
            .equals(offline.sort("rank", "device", "loop", "index"))
        )
        check_accounts(client)
        assert sum(rank.account.accepted for rank in client.ranks(job)) == sum(t.accounting.kept for t in traces)
        figures = {(f.rank, f.device, f.loop): f for f in client.metrics(job)}
        if len(traces) == 1:
            assert len(figures) == offline.select("device", "loop").unique().height
    live, recorded = tmp_path / "live.json", tmp_path / "recorded.json"
    assert main(["diagnose", "--daemon", daemon.address, job, "--format", "json", "-o", str(live)]) == 0
    assert main(["diagnose", str(path), "--format", "json", "-o", str(recorded)]) == 0
    assert json.loads(live.read_text()) == json.loads(recorded.read_text())
