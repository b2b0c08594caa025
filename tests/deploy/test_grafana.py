"""The dashboards: built from their code, whole, and every query answered by a real Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("grafana_foundation_sdk", reason='pip install "deepprof[dashboards]"')

from deploy.grafana.build import DASHBOARDS, write_dashboard
from tests.deploy.prometheus_server import Prometheus, running_prometheus, scrape, wait_for
from tests.deploy.training import Training, exported

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana"
LOADED = {name: json.loads((FOLDER / name).read_text()) for name in DASHBOARDS}
PANELS = [(name, panel) for name, dashboard in LOADED.items() for panel in dashboard["panels"]]
QUERIES = [(name, panel["title"], target["expr"]) for name, panel in PANELS for target in panel["targets"]]
# What Grafana puts in, for a scrape interval of half a second.
CHOSEN = {"$__rate_interval": "4s", "$job_id": "train", "$rank": ".*"}
WINDOWS = {"[10m]": "[5s]", "[1h]": "[5s]"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_what_is_committed_is_what_the_code_builds(name: str) -> None:
    assert (FOLDER / name).read_text() == write_dashboard(name), "run python -m deploy.grafana.build"


@pytest.mark.parametrize(
    ("name", "panel"), PANELS, ids=lambda value: value if isinstance(value, str) else value["title"]
)
def test_every_panel_says_what_it_shows(name: str, panel: dict[str, Any]) -> None:
    assert panel["title"]
    assert panel["description"].endswith((".", ";"))
    unit = panel["options"]["yAxis"]["unit"] if panel["type"] == "heatmap" else panel["fieldConfig"]["defaults"]["unit"]
    assert unit
    assert panel["datasource"]["uid"] == "${datasource}"
    assert panel["targets"]
    assert all(target["legendFormat"] for target in panel["targets"])
    references = [target["refId"] for target in panel["targets"]]
    assert len(set(references)) == len(references)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_fill_rows_without_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in LOADED[name]["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_dashboard_can_choose_jobs_and_ranks(name: str) -> None:
    dashboard = LOADED[name]
    assert [one["name"] for one in dashboard["templating"]["list"]] == ["datasource", "job_id", "rank"]
    used = set(re.findall(r"\$\w+", " ".join(query for of, _, query in QUERIES if of == name)))
    assert used <= set(CHOSEN)
    assert "$job_id" in used


def test_identifiers_are_the_dashboards_own() -> None:
    assert {dashboard["uid"] for dashboard in LOADED.values()} == {f"deepprof-{Path(name).stem}" for name in DASHBOARDS}


@pytest.mark.parametrize("path", ["datasources/prometheus.yml", "dashboards/deepprof.yml"])
def test_provisioning_files_are_read(path: str) -> None:
    assert yaml.safe_load((FOLDER / "provisioning" / path).read_text())["apiVersion"] == 1


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Return a Prometheus that has scraped two jobs for a while."""
    with exported(Training()) as (_, target):
        config = {"scrape_configs": [scrape("deepprof", target)]}
        with running_prometheus(tmp_path_factory.mktemp("prometheus"), config) as server:
            scraped = 'sum(count_over_time(deepprof_iterations_total{job_id="train",rank="0"}[1m]))'
            wait_for(lambda: (server.number(scraped) or 0) > 4, "some scrapes")
            yield server


def choose(expression: str, job: str) -> str:
    for variable, chosen in {**CHOSEN, "$job_id": job, **WINDOWS}.items():
        expression = expression.replace(variable, chosen)
    assert "$" not in expression
    return expression


@pytest.mark.parametrize(("name", "title", "expression"), QUERIES)
def test_every_query_returns_data(prometheus: Prometheus, name: str, title: str, expression: str) -> None:
    wait_for(lambda: read_numbers(prometheus, choose(expression, "train")), f"{name}: {title}")


def read_numbers(prometheus: Prometheus, expression: str) -> list[str]:
    """Return what a query's series state, nothing if one is no number: two scrapes of one moment, and nothing grew."""
    values = [str(series["value"][1]) for series in prometheus.query(expression)]
    return [] if "NaN" in values else values


def is_quiet(title: str, expression: str) -> bool:
    """Whether a panel's query has nothing of a job in health."""
    return title in ("Findings", "Records") and re.search("diagnosis_active|dropped", expression) is not None


def test_a_job_in_health_has_data_too(prometheus: Prometheus) -> None:
    """Each is asked until it has: after a scrape that took too long nothing is there until some have come again."""
    asked = {(title, choose(expression, "healthy")): is_quiet(title, expression) for _, title, expression in QUERIES}
    assert {title for (title, _), quiet in asked.items() if quiet} == {"Findings", "Records"}
    for (title, expression), quiet in asked.items():
        if not quiet:
            wait_for(lambda: read_numbers(prometheus, expression), title)  # noqa: B023
    assert not [title for (title, expression), quiet in asked.items() if quiet and prometheus.query(expression)]


@pytest.mark.parametrize(("label", "expected"), [("job_id", {"train", "healthy"}), ("rank", {"0", "1"})])
def test_variables_have_values(prometheus: Prometheus, label: str, expected: set[str]) -> None:
    assert set(prometheus.ask(f"label/{label}/values")) == expected
