"""The tables of patterns in `patterns/`, one per library: what the names of its kernels tell.

A pattern is one line: what it matches, what such a kernel computes, a name that it matches, and its source.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import msgspec

from deepprof.metrics.kernels.kinds import Category, Precision, Unit

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=600)]


class KernelPattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A regular expression (of Rust's `regex`, as polars has it), searched in a kernel's name, and what it means."""

    match: Text
    category: Category
    example: Text
    source: Text
    precision: Precision | None = None
    unit: Unit | None = None
    algorithm: Text | None = None
    sure: bool = True


class PatternTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of patterns; of several that match a name the first one counts. Files are searched by `priority`."""

    schema: Literal["deepprof.kernels/1"]
    library: Text
    priority: int
    patterns: Annotated[tuple[KernelPattern, ...], msgspec.Meta(max_length=2000)]


@cache
def list_tables() -> tuple[PatternTable, ...]:
    """Return the tables in the order in which they are searched."""
    paths = [path for path in files(__package__).joinpath("patterns").iterdir() if path.name.endswith(".toml")]
    found = [msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), PatternTable) for path in paths]
    return tuple(sorted(found, key=lambda table: (table.priority, table.library)))
