"""The alert rules: whole, proved by promtool's cases, and fired and resolved by a real Prometheus."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepprof.live.service.exporter.exposition import SERIES_DROPPED
from deepprof.live.service.exporter.families import DAEMON, DEVICE, DEVICE_LABELS, JOB, JOB_LABELS, RANK, RANK_LABELS
from tests.deploy.prometheus_server import running_prometheus, scrape, wait_for
from tests.deploy.training import Training, exported

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
GROUPS = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()
SCOPES = ((DAEMON, ()), ((SERIES_DROPPED,), ()), (JOB, JOB_LABELS), (RANK, RANK_LABELS), (DEVICE, DEVICE_LABELS))
LABELS = {
    family.name: [*labels, *family.labels]
    for families, labels in SCOPES
    for family in families  # type: ignore[attr-defined]
}
FASTER = 120  # ten minutes become five seconds


def promtool(*arguments: str | Path) -> str:
    """Return what promtool states; it must be content."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_configuration_and_the_rules() -> None:
    assert "10 rules found" in promtool("check", "rules", FOLDER / "rules.yml")
    promtool("check", "config", FOLDER / "prometheus.yml")


def test_promtool_s_cases_hold() -> None:
    assert "SUCCESS" in promtool("test", "rules", FOLDER / "rules_test.yml")


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    cases = yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]
    checks = [check for case in cases for check in case["alert_rule_test"]]
    assert {check["alertname"] for check in checks if check["exp_alerts"]} == set(ALERTS)
    assert {check["alertname"] for check in checks if not check["exp_alerts"]} == set(ALERTS)


def test_what_an_alert_says_is_in_the_right_number_and_links_are_absolute() -> None:
    cases = yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]
    told = [
        alert["exp_annotations"] for case in cases for check in case["alert_rule_test"] for alert in check["exp_alerts"]
    ]
    assert not [each["description"] for each in told if re.search(r"\b1 ranks\b", each["description"])]
    assert any("1 rank " in each["description"] for each in told)
    assert any("2 ranks " in each["description"] for each in told)
    assert all(each["runbook_url"].startswith("https://") for each in told)


def test_the_alerts_are_those_that_were_promised() -> None:
    jobs = {"TrainingStalled", "IterationSlowed", "CopyBound", "GraphGrowing", "RankSkew", "RecordsDropped"}
    assert set(ALERTS) == {*jobs, "CollectorSilent", "CollectorThrottled", "DaemonDown"}


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_waits_and_says_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["for"]
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"].endswith((".", ")"))
    link = f"{{{{ with $externalLabels.runbooks_url }}}}{{{{ . }}}}#{name.lower()}{{{{ end }}}}"
    assert rule["annotations"]["runbook_url"] == link
    section = RUNBOOKS.split(f"\n## {name}\n")[1].split("\n## ")[0]
    assert re.findall(r"^\*\*(.*?)\.\*\*", section, re.MULTILINE) == ["What it means", "What to look at", "What to do"]


def test_rules_and_runbooks_know_only_metrics_that_are_exported() -> None:
    known = {family.name for family in (*DAEMON, SERIES_DROPPED, *JOB, *RANK, *DEVICE)}
    text = (FOLDER / "rules.yml").read_text() + RUNBOOKS
    for name in re.findall(r"\bdeepprof_[a-z_]+", text.replace("deepprof_compute_seconds_per_iteration", "")):
        assert name in known or re.sub("_(bucket|sum|count)$", "", name) in known, name


def test_the_series_of_the_cases_are_those_that_are_exported() -> None:
    cases = yaml.safe_load((FOLDER / "rules_test.yml").read_text())["tests"]
    series = {each["series"] for case in cases for each in case["input_series"]}
    found = {each for each in series if each.startswith("deepprof_")}
    assert len(found) > 30
    for each in found:
        name, _, inside = each.partition("{")
        family = name if name in LABELS else re.sub("_(sum|count)$", "", name)
        assert {*re.findall(r'(\w+)="', inside)} == {"instance", "job", *LABELS[family]}, each


@pytest.mark.parametrize("expression", re.findall(r"^```promql\n(.*?)^```$", RUNBOOKS, re.DOTALL | re.MULTILINE))
def test_every_query_of_the_runbooks_is_one(expression: str, tmp_path: Path) -> None:
    rule = {"record": "asked", "expr": expression.replace("JOB", "train")}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": [rule]}]}))
    promtool("check", "rules", tmp_path / "rules.yml")


def hurry(rules: Any) -> Any:
    """Return the rules with every length of time made shorter, and nothing else changed."""

    def shorten(match: re.Match[str]) -> str:
        return f"{int(match[1]) * {'m': 60_000, 'h': 3_600_000}[match[2]] // FASTER}ms"

    def hurried(rule: dict[str, Any]) -> dict[str, Any]:
        return {
            **rule,
            **{key: re.sub(r"\b(\d+)([mh])\b", shorten, rule[key]) for key in ("expr", "for") if key in rule},
        }

    return [{**group, "rules": [hurried(rule) for rule in group["rules"]]} for group in rules]


@pytest.mark.slow  # promtool's cases fire and resolve every alert, from series as they are exported
def test_every_alert_fires_in_trouble_and_resolves_after_it(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": hurry(GROUPS)}))
    training = Training()
    with exported(training) as (_, target):
        config = {"rule_files": [str(tmp_path / "rules.yml")], "scrape_configs": [scrape("deepprof", target)]}
        with running_prometheus(tmp_path / "prometheus", config) as server:
            scraped = 'sum(count_over_time(deepprof_iterations_total{job_id="train",rank="0"}[1m]))'
            wait_for(lambda: (server.number(scraped) or 0) > 25, "twelve healthy seconds")
            wait_for(lambda: server.firing() == set(), "no alert, nor one of a scrape that took too long")
            training.trouble = True
            expected, fired = {(name, "" if name == "DaemonDown" else "train") for name in ALERTS}, set()
            wait_for(lambda: fired.update(server.firing()) or fired == expected, "every alert, and no other")
            training.trouble = False
            wait_for(lambda: server.firing() == set(), "that all resolve")


def test_an_alert_fires_when_the_daemon_is_gone(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": hurry(GROUPS)}))
    with exported(Training()) as (exporter, target):
        config = {"rule_files": [str(tmp_path / "rules.yml")], "scrape_configs": [scrape("deepprof", target)]}
        with running_prometheus(tmp_path / "prometheus", config) as server:
            wait_for(lambda: server.number("up"), "a scrape")
            exporter.close()
            wait_for(lambda: server.firing() == {("DaemonDown", "")}, "DaemonDown alone")


def test_units_are_in_the_names() -> None:
    for family in (*DAEMON, SERIES_DROPPED, *JOB, *RANK, *DEVICE):
        assert (family.kind == "counter") == family.name.endswith("_total"), family.name
        assert not re.search("_(ns|ms|us|nbytes|percent)(_|$)", family.name)
        assert not {"type", "job", "instance", "le"} & set(family.labels)
