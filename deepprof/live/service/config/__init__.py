"""The daemon's configuration: a typed value from a TOML file, the environment and flags; the later of these win."""

from __future__ import annotations

from deepprof.live.service.config.default_paths import find_store, listen_addresses
from deepprof.live.service.config.description import describe_config
from deepprof.live.service.config.loading import load_config
from deepprof.live.service.config.sections import Config, Scope
from deepprof.live.service.flags import add_flags, read_flags

__all__ = [
    "Config",
    "Scope",
    "add_flags",
    "describe_config",
    "find_store",
    "listen_addresses",
    "load_config",
    "read_flags",
]
