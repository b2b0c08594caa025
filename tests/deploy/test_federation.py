"""Beyond one node: a second Prometheus gets the jobs' series by federation or remote write, as the document states."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.prometheus_server import Prometheus, running_prometheus, scrape, wait_for
from tests.deploy.training import Training, exported

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "prometheus.md").read_text()
RECIPES = re.findall(r"^```yaml\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)


def recipe(key: str, address: str) -> dict[str, Any]:
    """Return the part of a configuration in the document that has `key`, with its other server put in."""
    (found,) = [text for text in RECIPES if key in text]
    return yaml.safe_load(re.sub(r"prometheus-\w+\.example:9090", address, found))


def assert_same_job(above: Prometheus, below: Prometheus) -> None:
    """Wait until the upper server has the job's series with the labels they have below.

    Each is asked until both agree: after a scrape that took too long a server has no series until the next one.
    """

    def labels(server: Prometheus) -> set[tuple[tuple[str, str], ...]]:
        series = server.query("deepprof_iteration_duration_seconds_bucket")
        return {tuple(sorted(one["metric"].items())) for one in series}

    found = wait_for(lambda: (both := labels(above)) == labels(below) and both, "the same series")
    assert len(found) == 3 * 19
    more = 'deepprof_iterations_total{job_id="train",rank="0"}'
    first = wait_for(lambda: above.number(more), "the job's series")
    wait_for(lambda: (above.number(more) or 0) > first, "numbers that grow")


def test_a_second_server_federates_the_jobs(tmp_path: Path) -> None:
    with (
        exported(Training()) as (_, target),
        running_prometheus(tmp_path / "below", {"scrape_configs": [scrape("deepprof", target)]}) as below,
    ):
        config = recipe("federate", below.url.removeprefix("http://"))
        config["scrape_configs"][0].pop("scrape_interval")
        with running_prometheus(tmp_path / "above", config) as above:
            wait_for(lambda: above.query("deepprof_iterations_total"), "the job's series")
            assert_same_job(above, below)
            assert not above.query("go_goroutines")


def test_a_server_writes_the_jobs_to_a_second_one(tmp_path: Path) -> None:
    receiver = "--web.enable-remote-write-receiver"
    assert receiver in DOCUMENT
    with exported(Training()) as (_, target), running_prometheus(tmp_path / "above", {}, receiver) as above:
        config = {"scrape_configs": [scrape("deepprof", target)]}
        config |= recipe("remote_write", above.url.removeprefix("http://"))
        with running_prometheus(tmp_path / "below", config) as below:
            wait_for(lambda: above.query("deepprof_iterations_total"), "the job's series")
            assert_same_job(above, below)
            assert not above.query("process_cpu_seconds_total")


@pytest.mark.parametrize("text", RECIPES, ids=range(len(RECIPES)))
def test_every_recipe_is_read(text: str) -> None:
    assert set(yaml.safe_load(text)) <= {"global", "rule_files", "scrape_configs", "remote_write", "alerting"}
