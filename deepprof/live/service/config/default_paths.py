"""The default paths, used where the configuration names none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.live.service.config.sections import Config

if TYPE_CHECKING:
    from deepprof.live.wire.addresses import DaemonAddress


def find_store(config: Config, environ: Mapping[str, str] | None = None) -> Path:
    """Return the store's directory: as configured, else systemd's, else one in the user's state directory."""
    known = os.environ if environ is None else environ
    if config.store.path:
        return Path(config.store.path)
    if given := known.get("STATE_DIRECTORY", "").split(":")[0]:
        return Path(given)
    state = known.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "deepprof" / "store"


def listen_addresses(config: Config, environ: Mapping[str, str] | None = None) -> tuple[DaemonAddress, ...]:
    """Return where to listen: as configured, else the default socket. Raises `UsageError` for an invalid address."""
    from deepprof.live.wire.addresses import (  # its package brings polars, too slow for --help
        default_address,
        parse_address,
    )

    return tuple(parse_address(text) for text in config.listen.addresses) or (default_address(environ),)
