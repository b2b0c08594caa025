"""Loading the configuration: flags take precedence over variables, and variables over a file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from deepprof.collectors.errors import UsageError, escaped
from deepprof.live.service.config.conversion import convert
from deepprof.live.service.config.keys import ConfigKey, keys, look_up, nearest
from deepprof.live.service.config.quantities import format_nbytes
from deepprof.live.service.config.sections import Config
from deepprof.live.service.flags import SHORT
from deepprof.live.service.model_flops import read_all
from deepprof.render.plain import shorten

PREFIX = "DEEPPROF_SERVE_"
FILE = PREFIX + "CONFIG"  # the only variable that is no key: it names the file
MAX_CONFIG_NBYTES = 1 << 20  # bytes of a configuration file
MOST_ADDRESSES = 8
SEGMENTS = 4  # the least number of a journal: one is written, one is read, and the oldest may be removed

Values = dict[str, Any]  # by the key's path


def load_config(
    file: Path | None = None, flags: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None
) -> Config:
    """Return the configuration of a TOML file, `DEEPPROF_SERVE_*` variables and flags (`section.key` → text).

    Later ones win. Without `file` the variable `DEEPPROF_SERVE_CONFIG` names it; without `environ` that of the process
    is read. Raises `UsageError` with one line that states the place and what is allowed.
    """
    known = os.environ if environ is None else environ
    path = file or (Path(known[FILE]) if known.get(FILE) else None)
    values = {} if path is None else _read_file(path)
    config = _build(values | _read_variables(known) | _read_flags(flags or {}))
    _check_config(config)
    return config


def _read_file(path: Path) -> Values:
    return dict(_put(f"{path}: {key}", key, raw) for key, raw in _flatten(_parse_file(path), path))


def _parse_file(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG_NBYTES + 1)
    except (OSError, ValueError) as error:
        raise _refused(str(path), f"{getattr(error, 'strerror', None) or error}; check --config") from error
    if len(content) > MAX_CONFIG_NBYTES:
        raise _refused(str(path), f"is larger than {MAX_CONFIG_NBYTES:,} bytes, so no configuration; check --config")
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise _refused(str(path), f"is not TOML ({shorten(str(error), 120)}); check that line") from error


def _flatten(content: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a file with their paths; a table that is itself a value stays whole."""
    sections = {key.section for key in keys().values()}
    for name, value in content.items():
        if name not in sections:
            yield name, value
        elif isinstance(value, dict):
            yield from ((f"{name}.{key}", one) for key, one in value.items())
        else:
            raise _refused(f"{path}: {name}", f"is a section; write [{name}] and its keys below")


def _read_variables(environ: Mapping[str, str]) -> Values:
    """Return the values of the environment; an empty variable counts as not set."""
    known = {key.variable: key for key in keys().values()}
    ours = {name: text for name, text in environ.items() if name.startswith(PREFIX) and name != FILE}
    return dict(_put_variable(name, text, known) for name, text in ours.items() if text)


def _put_variable(name: str, text: str, known: Mapping[str, ConfigKey]) -> tuple[str, Any]:
    if name not in known:
        near = nearest(name, known)
        raise _refused(name, f"no such variable; did you mean {near}?" if near else "no such variable")
    return _put(name, known[name].path, text)


def _read_flags(flags: Mapping[str, str]) -> Values:
    named = {path: flag for path, (flag, *_) in SHORT.items()}
    return dict(_put(named.get(path, f"--set {path}"), path, text) for path, text in flags.items())


def _put(place: str, path: str, raw: object) -> tuple[str, Any]:
    """Return path and converted value of one key; an error names the place."""
    try:
        return path, convert(look_up(path), raw)
    except ValueError as error:
        raise _refused(place, str(error)) from error


def _build(values: Values) -> Config:
    """Return the configuration with checked values, and the defaults for the other keys."""
    nested: dict[str, Any] = {}
    for path, value in values.items():
        section, _, name = path.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    return msgspec.convert(nested, Config)


def _refused(place: str, problem: str) -> UsageError:
    """Return the error for one place, on one printable line of bounded length."""
    return UsageError(escaped(f"{shorten(place, 200)}: {problem}"))


def _check_config(config: Config) -> None:
    """Raise `UsageError` where keys contradict each other."""
    for rule, problem in RULES:
        if rule(config):
            raise UsageError(problem(config))


def _journal_is_short(config: Config) -> bool:
    """Return whether the journal contains too few segments to remove the oldest."""
    return config.journal.total_nbytes < SEGMENTS * config.journal.segment_nbytes


def _say_journal(config: Config) -> str:
    least = format_nbytes(SEGMENTS * config.journal.segment_nbytes)
    return f"journal.total_nbytes: must be at least {least}, {SEGMENTS} segments; raise it or lower segment_nbytes"


RULES: tuple[tuple[Callable[[Config], bool], Callable[[Config], str]], ...] = (
    (
        lambda config: len(config.listen.addresses) > MOST_ADDRESSES,
        lambda config: f"listen.addresses: {len(config.listen.addresses)} are too many; {MOST_ADDRESSES} are allowed",
    ),
    (
        lambda config: bool(config.tls.cert) != bool(config.tls.key),
        lambda config: "tls: cert and key belong together; give both or neither",
    ),
    (
        lambda config: bool(config.tls.client_ca) and not config.tls.cert,
        lambda config: "tls.client_ca: clients' certificates need TLS; give tls.cert and tls.key too",
    ),
    (
        lambda config: bool(config.tls.subjects) and not config.tls.client_ca,
        lambda config: "tls.subjects: names come from clients' certificates; give tls.client_ca too",
    ),
    (
        lambda config: config.limits.name_nbytes > config.limits.names_nbytes,
        lambda config: "limits.name_nbytes: one name cannot be larger than names_nbytes, all names together",
    ),
    (
        lambda config: config.journal.segment_nbytes <= config.limits.message_nbytes,
        lambda config: "journal.segment_nbytes: must be larger than limits.message_nbytes; a message is never cut",
    ),
    (
        lambda config: config.limits.queue_nbytes < config.limits.message_nbytes,
        lambda config: "limits.queue_nbytes: must be at least limits.message_nbytes",
    ),
    (
        lambda config: config.limits.queue_nbytes < config.limits.rank_queue_nbytes,
        lambda config: "limits.rank_queue_nbytes: one rank cannot have more than queue_nbytes, all ranks together",
    ),
    (_journal_is_short, _say_journal),
    (
        lambda config: len(read_all(config.exporter.model_flops)) < len(config.exporter.model_flops),
        lambda config: "exporter.model_flops: write JOBS=FLOP/PEAK, such as llama-*=3.1e15/989e12",
    ),
)
