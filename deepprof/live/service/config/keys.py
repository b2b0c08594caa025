"""The keys of the configuration as a table, made from the types of the sections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct
from msgspec.structs import fields

from deepprof.live.service.config.sections import Config

MAX_COMPARED_CHARS = 100  # of a word that is compared with known ones

Kind = Literal["count", "nbytes", "duration", "truth", "choice", "text", "texts", "choices", "table"]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key: `path` is `section.key` (or `key`), `attribute` its name in the section's struct.

    `choices` are the allowed values of a choice, `low` and `high` the range of a number.
    """

    path: str
    attribute: str
    kind: Kind
    description: str
    default: Any
    low: int = 0
    high: int = 0
    choices: tuple[str, ...] = ()

    @property
    def section(self) -> str:
        """The section's name, empty for keys without a section."""
        return self.path.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The key's name in its section."""
        return self.path.rpartition(".")[2]

    @property
    def variable(self) -> str:
        """The environment variable that sets the key."""
        return "DEEPPROF_SERVE_" + self.path.replace(".", "_").upper()


@cache
def keys() -> Mapping[str, ConfigKey]:
    """Return every key by its path, in the order of the sections."""
    found = [key for name, key in _members(Config, "") if not isinstance(key, type)]
    for name, section in _members(Config, ""):
        if isinstance(section, type):
            found += [key for _, key in _members(section, f"{name}.") if isinstance(key, ConfigKey)]
    return {key.path: key for key in found}


def _members(struct: type[Struct], prefix: str) -> list[tuple[str, ConfigKey | type[Struct]]]:
    """Return the fields of a struct by their written name: keys, and sections as their types."""
    hints = get_type_hints(struct, include_extras=True)
    return [(f.encode_name, _member(hints[f.name], prefix + f.encode_name, f)) for f in fields(struct)]


def _member(hint: Any, path: str, spec: Any) -> ConfigKey | type[Struct]:
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint
    kind, meta = get_args(hint)
    default = spec.default_factory() if callable(spec.default_factory) else spec.default
    name, choices = _classify(kind, meta)
    return ConfigKey(path, spec.name, name, meta.description or "", default, meta.ge or 0, meta.le or 0, choices)


def _classify(kind: Any, meta: Meta) -> tuple[Kind, tuple[str, ...]]:
    """Return the kind of a key with this type, and its choices if it has some."""
    if meta.extra is not None:
        return meta.extra["kind"], ()
    if kind is bool or kind is str:
        return ("truth" if kind is bool else "text"), ()
    if get_origin(kind) is Literal:
        return "choice", get_args(kind)
    if get_origin(kind) is dict:
        return "table", get_args(get_args(get_args(kind)[1])[0])
    inner = get_args(kind)[0]
    return ("texts", ()) if inner is str else ("choices", get_args(inner))


def look_up(path: str) -> ConfigKey:
    """Return the key of a path; `ValueError` names the nearest known one for an unknown path."""
    known = keys()
    if path not in known:
        near = nearest(path, known)
        raise ValueError(f"no such key; did you mean {near}?" if near else "no such key; --print-config lists them")
    return known[path]


def nearest(word: str, known: Mapping[str, object]) -> str:
    """Return the known word that is most similar to `word`, empty if none is similar."""
    return next(iter(get_close_matches(word[:MAX_COMPARED_CHARS], known, n=1, cutoff=0.5)), "")
