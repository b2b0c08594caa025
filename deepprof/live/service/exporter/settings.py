"""Settings of the exporter: how long it waits, and which clients it answers."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from deepprof.live.process.supervision import FirstFailure

__all__ = ["ExporterSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterSettings:
    """Settings of the exporter; times in seconds.

    `authorize` takes a scrape's Authorization header ("" for none) and returns whether to answer; None: answer all.
    Probes are always answered. `vitals` holds the daemon's failure if it has one, and a failure of the exporter.
    """

    request_s: float = 10.0  # until a request has come
    ready_s: float = 2.0  # until there is a snapshot of the daemon
    answer_s: float = 15.0  # until an answer has been read; Prometheus waits 10 s for a scrape
    authorize: Callable[[str], bool] | None = None
    tls: ssl.SSLContext | None = None
    vitals: FirstFailure = field(default_factory=FirstFailure)
