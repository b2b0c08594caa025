"""A configuration written as TOML, with a comment on the meaning of every key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from textwrap import wrap
from typing import Any

from deepprof.live.service.config.conversion import allowed
from deepprof.live.service.config.keys import ConfigKey, keys
from deepprof.live.service.config.quantities import format_duration, format_nbytes
from deepprof.live.service.config.sections import Config

COLUMNS = 100


def describe_config(config: Config | None = None) -> str:
    """Return a configuration (None: the default) as TOML with comments; `load_config` reads it back."""
    shown = Config() if config is None else config
    parts = [
        "\n".join(_describe_section(section, list(own), shown))
        for section, own in groupby(keys().values(), key=lambda key: key.section)
    ]
    return "\n\n".join(parts) + "\n"


def _describe_section(section: str, own: list[ConfigKey], config: Config) -> Iterator[str]:
    if section:
        yield f"[{section}]"
    for key in own:
        yield from wrap(f"{key.description} ({allowed(key)})", COLUMNS, initial_indent="# ", subsequent_indent="# ")
        yield f"{key.name} = {write_value(key, _read_value(config, key))}"


def _read_value(config: Config, key: ConfigKey) -> Any:
    """Return the value that a key has in `config`."""
    value = getattr(config, key.section) if key.section else config
    return getattr(value, key.attribute)


def write_value(key: ConfigKey, value: Any) -> str:
    """Return a key's value as TOML."""
    if key.kind == "duration":
        return _quote(format_duration(value))
    if key.kind == "nbytes":
        return _quote(format_nbytes(value))
    return write(value)


def write(value: Any) -> str:
    """Return a number, boolean, text, list or table as TOML on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(write(one) for one in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quote(name)} = {write(one)}" for name, one in value.items()) + "}"
    return _quote(value) if isinstance(value, str) else str(value)


def _quote(text: str) -> str:
    """Return a printable text as a basic string of TOML, which has the same escapes as JSON."""
    return json.dumps(text, ensure_ascii=False)
