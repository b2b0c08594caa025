"""How the exporter serves: how long it waits, and whom it answers."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from deepprof.live.service.supervision import FirstFailure

__all__ = ["ExporterSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterSettings:
    """Settings of the exporter; times in seconds.

    `authorize` is given a scrape's Authorization header ("" for none) and says whether it is answered; None: all are.
    Probes always are. `vitals` say whether the daemon lives, and hear of it should the exporter not.
    """

    request_s: float = 10.0  # until a request has come
    ready_s: float = 2.0  # until the daemon has said how it is
    answer_s: float = 15.0  # until an answer has been read; Prometheus gives a scrape 10 s
    authorize: Callable[[str], bool] | None = None
    tls: ssl.SSLContext | None = None
    vitals: FirstFailure = field(default_factory=FirstFailure)
