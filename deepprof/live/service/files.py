"""How many files may be open: as many as the system lets us, and connections never take those that the rest needs."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import TYPE_CHECKING

from deepprof.live.service.config.default_paths import listen_addresses

if TYPE_CHECKING:
    from deepprof.live.service.config.sections import Config

__all__ = ["most_connections", "raise_file_limit"]

RESERVED = 256  # for journal, history, examinations, scrapes
PORTS = 2  # that one HOST:PORT can stand for: `localhost` names 127.0.0.1 and ::1


def raise_file_limit() -> None:
    """Allow as many open files as the system lets us."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def most_connections(config: Config) -> int:
    """Return how many connections to an address are let in: those that are configured, or what there are files for."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return config.listen.connections
    ports = sum(1 if address.is_unix else PORTS for address in listen_addresses(config))
    return max(1, min(config.listen.connections, (files - RESERVED) // ports))
