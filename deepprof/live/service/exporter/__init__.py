"""The exporter: what Prometheus scrapes, from snapshots of the daemon.

`snapshot.py` defines the snapshots, `families.py` declares every metric, `exposition.py` writes them as text,
`endpoints.py` answers each path, and `http.py` serves the answers.
"""

from __future__ import annotations

from deepprof.live.service.exporter.http import Exporter, serve_metrics
from deepprof.live.service.exporter.settings import ExporterSettings
from deepprof.live.service.exporter.snapshot import DaemonSnapshot

__all__ = ["DaemonSnapshot", "Exporter", "ExporterSettings", "serve_metrics"]
