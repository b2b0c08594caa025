"""The exporter: what Prometheus scrapes, from snapshots of the daemon.

`snapshot.py` defines the snapshots, `families.py` declares every metric, `exposition.py` writes them as text, and
`http.py` serves them.
"""

from __future__ import annotations

from deepprof.live.service.exporter.http import Exporter, ExporterSettings
from deepprof.live.service.exporter.snapshot import DaemonSnapshot

__all__ = ["DaemonSnapshot", "Exporter", "ExporterSettings"]
