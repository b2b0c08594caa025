"""Who may come in: addresses and what they demand, TLS, tokens, and the scope that each method needs."""

from __future__ import annotations

from deepprof.service.access.exposure import find_metrics_address, offers_reflection
from deepprof.service.access.guard import AccessGuard
from deepprof.service.access.interceptor import make_interceptors
from deepprof.service.access.listening import ListeningServer, open_ports
from deepprof.service.access.options import server_options

__all__ = [
    "AccessGuard",
    "ListeningServer",
    "find_metrics_address",
    "make_interceptors",
    "offers_reflection",
    "open_ports",
    "server_options",
]
