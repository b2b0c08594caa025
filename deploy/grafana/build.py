"""`python -m deploy.grafana.build` writes the dashboards beside this file; the results are committed.

Needs `pip install "deepprof[dashboards]"`. What is shown is said in `overview.py`, `job.py` and `fleet.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.fleet import build_fleet
from deploy.grafana.job import build_job
from deploy.grafana.overview import build_overview

__all__ = ["DASHBOARDS", "write_dashboard"]

DASHBOARDS = {"overview.json": build_overview, "job.json": build_job, "fleet.json": build_fleet}
HERE = Path(__file__).parent


def write_dashboard(name: str) -> str:
    """Return the text of a dashboard's file."""
    return json.dumps(DASHBOARDS[name](), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    for name in DASHBOARDS:
        (HERE / name).write_text(write_dashboard(name))
