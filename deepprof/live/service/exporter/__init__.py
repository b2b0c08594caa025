"""The exporter: what Prometheus scrapes, from snapshots of the daemon.

`snapshot.py` is what it looks at, `families.py` declares every metric, `exposition.py` writes them as text,
`endpoints.py` says what stands behind which path, and `http.py` serves it.
"""

from __future__ import annotations

from deepprof.live.service.exporter.http import Exporter, serve_metrics
from deepprof.live.service.exporter.settings import ExporterSettings
from deepprof.live.service.exporter.snapshot import DaemonSnapshot

__all__ = ["DaemonSnapshot", "Exporter", "ExporterSettings", "serve_metrics"]
