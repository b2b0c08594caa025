"""The daemon's own process: CPU time, memory and open files, as prometheus_client reads them."""

from __future__ import annotations

from deepprof.collectors.errors import UsageError

__all__ = ["ProcessMetrics"]


class ProcessMetrics:
    """The usual `process_…` metrics; raises `UsageError` where prometheus_client is not installed."""

    def __init__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
        except ImportError:
            raise UsageError('metrics need prometheus_client; pip install "deepprof[service]"') from None
        self._registry, self._generate = CollectorRegistry(auto_describe=False), generate_latest
        ProcessCollector(registry=self._registry)

    def render(self) -> str:
        """Return their lines; none where the system does not report them."""
        return self._generate(self._registry).decode()
