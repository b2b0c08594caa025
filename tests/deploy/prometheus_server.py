"""A real Prometheus for tests: started on a free port with its data in a temporary folder, asked, and stopped."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from tests.patience import PATIENCE_S, answer

__all__ = ["Prometheus", "running_prometheus", "wait_for"]

T = TypeVar("T")
DEADLINE_S = 400.0  # of waits for what comes within a second where no one else is busy
POLL_S = 0.05
INTERVAL, EVALUATION = "500ms", "250ms"  # a scrape may last as long as the interval, on a busy machine too


def wait_for(ask: Callable[[], T], what: str, deadline_s: float = DEADLINE_S) -> T:
    """Return what `ask` states as soon as it is true in Python's sense, or fail after the deadline."""
    end = time.monotonic() + deadline_s
    while not (said := answer(ask)):
        assert time.monotonic() < end, f"{what}: not within {deadline_s:g} s"
        time.sleep(POLL_S)  # a poll with a deadline, not a wait for luck
    return said


@dataclass
class Prometheus:
    """One that runs; `url` has no slash at its end."""

    process: subprocess.Popen[bytes]
    log: Path = field(repr=False)

    @cached_property
    def url(self) -> str:
        """Return where it listens, which it logs."""
        found = wait_for(self._find_address, "Prometheus listens")
        return f"http://{found[1]}"

    def _find_address(self) -> re.Match[str] | None:
        assert self.process.poll() is None, self.log.read_text()
        return re.search(r'msg="Listening on"(?: component=\w+)? address=(\S+:\d+)\n', self.log.read_text())

    def ask(self, path: str, **parameters: str | Sequence[str]) -> Any:
        """Return the `data` of an answer of the HTTP API."""
        query = urllib.parse.urlencode(parameters, doseq=True)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=PATIENCE_S) as answer:  # noqa: S310
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}?{query}: {error.read().decode()}") from error

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an instant vector."""
        found = self.ask("query", query=expression)
        return found["result"] if found["resultType"] == "vector" else [{"metric": {}, "value": found["result"]}]

    def number(self, expression: str) -> float | None:
        """Return the one value of an expression, None where it has none."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> set[tuple[str, str]]:
        """Return the alerts that fire, by name and the job they name."""
        alerts = self.ask("alerts")["alerts"]
        return {
            (alert["labels"]["alertname"], alert["labels"].get("job_id", ""))
            for alert in alerts
            if alert["state"] == "firing"
        }

    def ready(self) -> bool:
        """Say whether it answers; fail where it has ended."""
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=PATIENCE_S) as answer:  # noqa: S310
                return answer.status == 200
        except OSError:
            return False


def scrape(name: str, *targets: str, **other: Any) -> dict[str, Any]:
    """Return a scrape configuration of static targets."""
    return {"job_name": name, "static_configs": [{"targets": [*targets]}], **other}


@contextmanager
def running_prometheus(folder: Path, config: Mapping[str, Any], *flags: str) -> Iterator[Prometheus]:
    """Run Prometheus with `config`, to which short intervals are added, and stop it at the end.

    Skips the test where Prometheus is not installed.
    """
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("Prometheus is not installed (apt-get install prometheus)")
    folder.mkdir(parents=True, exist_ok=True)
    intervals = {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": EVALUATION}
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"global": intervals, **config}))
    log = folder / "log"
    command = [
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
        "--log.level=info",  # with where it listens
        *flags,
    ]
    with log.open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
        server = Prometheus(process, log)
        try:
            wait_for(server.ready, "Prometheus")
            yield server
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
