"""The whole chain with real parts: a real trace sent to the daemon, scraped by a real Prometheus, panels and alerts."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

pytest.importorskip("grafana_foundation_sdk", reason='pip install "deepprof[dashboards]"')

from tests.deepprof.live.service.daemons import Daemon, launch, running
from tests.deepprof.live.service.sending import check_accounts, open_client
from tests.deploy.prometheus_server import Prometheus, running_prometheus, scrape, wait_for
from tests.deploy.test_grafana import QUERIES, choose
from tests.deploy.test_prometheus import FASTER, GROUPS, hurry
from tests.manifest import TRACES

JOB = "train"
SETTINGS = ["examine.every=1s", f"exporter.model_flops={JOB}=1e12/1e14"]
FILES = ("tb-resnet50-nw0", "tb-resnet50-nw0-c")


@contextmanager
def training(daemon: Daemon) -> Iterator[subprocess.Popen[bytes]]:
    """Send two real traces again and again as the ranks of a job, at the speed at which they were recorded."""
    files = [str(next((TRACES / name).iterdir())) for name in FILES]
    command = [sys.executable, "-m", "deepprof", "send", *files, "--to", daemon.address, "--job", JOB]
    with subprocess.Popen([*command, "--speed", "1", "--repeat", "300"], stderr=subprocess.DEVNULL) as sender:
        try:
            yield sender
        finally:
            sender.kill()


@contextmanager
def watched(daemon: Daemon, folder: Path) -> Iterator[Prometheus]:
    """Scrape a daemon, with the alerts' times made short."""
    rules = yaml.safe_dump({"groups": hurry(GROUPS)}, width=10_000)
    (folder / "rules.yml").write_text(re.sub(r"\b300\b", str(300 / FASTER), rules))  # five minutes, as a number
    config = {"rule_files": [str(folder / "rules.yml")], "scrape_configs": [scrape("deepprof", daemon.metrics)]}
    with running_prometheus(folder / "prometheus", config) as server:
        yield server


@pytest.mark.traces
@pytest.mark.skipif(not TRACES.is_dir(), reason=f"no real traces in {TRACES} (set DEEPPROF_TRACES)")
def test_a_live_job_has_data_in_every_panel_and_alerts_that_come_and_go(tmp_path: Path) -> None:
    with running(settings=SETTINGS) as daemon, watched(daemon, tmp_path) as server, training(daemon) as job:
        wait_for(lambda: (server.number(f'sum(deepprof_iterations_total{{job_id="{JOB}"}})') or 0) > 30, "iterations")
        wait_for(lambda: server.query("deepprof_diagnosis_active"), "findings")
        # Nothing was dropped, and a sender of recordings is no collector and has no contexts.
        wanted = [query for _, _, query in QUERIES if not re.search("dropped|_collector_|_context_", query)]
        for query in wanted:
            wait_for(lambda: server.query(choose(query, JOB)), query)  # noqa: B023
        job.send_signal(signal.SIGSTOP)
        silent = {("TrainingStalled", JOB), ("CollectorSilent", JOB)}
        wait_for(lambda: silent <= server.firing(), "the alerts of a silent job")
        job.send_signal(signal.SIGCONT)
        wait_for(lambda: not silent & server.firing(), "that they resolve")
        with open_client(daemon) as client:
            check_accounts(client)


@pytest.mark.slow  # test_an_alert_fires_when_the_daemon_is_gone and the one before it show both halves
def test_the_alert_of_a_killed_daemon_resolves_when_it_is_back(tmp_path: Path) -> None:
    with running() as daemon, watched(daemon, tmp_path) as server:
        wait_for(lambda: server.number("up"), "a scrape")
        port = daemon.metrics.rpartition(":")[2]
        daemon.kill()
        wait_for(lambda: ("DaemonDown", "") in server.firing(), "DaemonDown")
        again = launch(daemon.folder, "--metrics", f"127.0.0.1:{port}")
        try:
            again.wait_ready()
            wait_for(lambda: ("DaemonDown", "") not in server.firing(), "that it resolves")
        finally:
            again.kill()
