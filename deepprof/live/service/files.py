"""The limit on open files: the highest that the system allows, of which connections leave enough for the rest."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import TYPE_CHECKING

from deepprof.live.service.config.default_paths import listen_addresses

if TYPE_CHECKING:
    from deepprof.live.service.config.sections import Config

__all__ = ["most_connections", "raise_file_limit"]

RESERVED = 256  # for journal, history, examinations, scrapes
PORTS = 2  # that one HOST:PORT can mean: `localhost` names 127.0.0.1 and ::1


def raise_file_limit() -> None:
    """Raise the limit on open files as far as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def most_connections(config: Config) -> int:
    """Return how many connections an address accepts: as configured, or fewer where there are not enough files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return config.listen.connections
    ports = sum(1 if address.is_unix else PORTS for address in listen_addresses(config))
    return max(1, min(config.listen.connections, (files - RESERVED) // ports))
