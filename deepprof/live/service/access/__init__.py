"""Access control: the addresses and the credentials they need, TLS, tokens, and the scope that each method needs."""

from __future__ import annotations

from deepprof.live.service.access.exposure import find_metrics_address, find_page_hosts, offers_reflection
from deepprof.live.service.access.guard import AccessGuard
from deepprof.live.service.access.interceptor import make_interceptors
from deepprof.live.service.access.listening import ListeningServer, open_ports
from deepprof.live.service.access.options import server_options

__all__ = [
    "AccessGuard",
    "ListeningServer",
    "find_metrics_address",
    "find_page_hosts",
    "make_interceptors",
    "offers_reflection",
    "open_ports",
    "server_options",
]
