"""The exporter: what Prometheus scrapes and what the page shows, from snapshots of the daemon.

`snapshot.py` defines the snapshots, `families.py` declares every metric, `exposition.py` writes them as text,
`live_documents.py` writes the documents of the page, `page.py` has its routes, and `exporter.py` serves all of it.
"""

from __future__ import annotations

from deepprof.live.service.exporter.exporter import Exporter, ExporterSettings
from deepprof.live.service.exporter.snapshot import DaemonSnapshot

__all__ = ["DaemonSnapshot", "Exporter", "ExporterSettings"]
