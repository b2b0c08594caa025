"""The tables of patterns in `patterns/`, one per library: what the names of its kernels show.

A pattern is one line: what it matches, what such a kernel computes, a name that it matches, and its source. Packages
add their own tables under the entry-point group `deepprof.kernels`.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import polars as pl

from deepprof.collectors.plugins import PlugIn, load
from deepprof.metrics.kernels.kinds import Category, Precision, Unit

GROUP = "deepprof.kernels"
TABLE_NBYTES = 4 * 1024**2  # of the file of a table
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=600)]
# Names are ASCII: classes of Unicode make a pattern many times as slow to compile, and match nothing more.
_ASCII = {r"\w": "[0-9A-Za-z_]", r"\d": "[0-9]", r"\b": r"(?-u:\b)", r"\W": "[^0-9A-Za-z_]", r"\s": "[ \t]"}


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
    typed: bool = True  # whether the table's `types` state what the pattern leaves open


class TypePattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a part of the name of a product shows of its precision or unit, where the pattern found leaves them open."""

    match: Text
    source: Text
    precision: Precision | None = None
    unit: Unit | None = None
    sure: bool = True


class PatternTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of patterns; of several that match a name the first one counts. Files are searched by `priority`.

    Only names in which `names` is found, if it is given, are searched. Of `types` the first one with a precision that
    is found in a product's name gives the precision, and the first one with a unit the unit. A table about operators
    describes what operators compute: on the CPU these are the kernels, elsewhere they launch kernels.
    """

    schema: Literal["deepprof.kernels/1"]
    library: Text
    priority: int
    patterns: Annotated[tuple[KernelPattern, ...], msgspec.Meta(max_length=2000)]
    types: Annotated[tuple[TypePattern, ...], msgspec.Meta(max_length=500)] = ()
    names: Text | None = None
    about: Literal["kernels", "operators"] = "kernels"


class PatternError(ValueError):
    """A table of patterns is not valid; the text states which one, and the line where available."""


@cache
def list_tables() -> tuple[PatternTable, ...]:
    """Return the tables in the order in which they are searched: those of plug-ins first, then by priority."""
    own = [_read_text(each.read_text(encoding="utf-8"), each.name) for each in list_files()]
    added = [table for table in load(GROUP, (), _fence, instantiate=False) if isinstance(table, PatternTable)]
    return tuple(sorted(added, key=_order) + sorted(own, key=_order))


def list_operator_tables() -> tuple[PatternTable, ...]:
    """Return the tables about operators, in the order in which they are searched."""
    return tuple(table for table in list_tables() if table.about == "operators")


def list_files() -> list[Traversable]:
    """Return the files of the tables that ship with DeepProf, by name."""
    folder = files(__package__).joinpath("patterns")
    return sorted((path for path in folder.iterdir() if path.name.endswith(".toml")), key=lambda path: path.name)


def read_table(path: Path | Traversable) -> PatternTable:
    """Return the table in a TOML file, with every pattern checked; raise `PatternError`."""
    with path.open("rb") as file:
        content = file.read(TABLE_NBYTES + 1)
    if len(content) > TABLE_NBYTES:
        msg = f"{path.name}: a table of patterns has at most {TABLE_NBYTES} bytes"
        raise PatternError(msg)
    text = content.decode("utf-8", errors="replace")
    table = _read_text(text, path.name)
    check_table(table, path.name, text)
    return table


def check_table(table: PatternTable, name: str, text: str = "") -> None:
    """Raise `PatternError` if a pattern of a table does not compile; `text` is the file, where there is one."""
    gate = () if table.names is None else (table.names,)
    for pattern in (*gate, *(each.match for each in table.types), *(each.match for each in table.patterns)):
        try:
            pl.Series([""]).str.contains(write_ascii(pattern))
        except pl.exceptions.ComputeError as error:
            reason = " ".join(str(error).split())[-120:]
            msg = f"{name}{_place(pattern, text)}: {pattern!r} does not compile: {reason}"
            raise PatternError(msg) from None


@cache
def write_ascii(pattern: str) -> str:
    """Return a pattern that matches the same ASCII texts, with classes of ASCII unless it has a backslash itself."""
    if r"\\" in pattern:
        return pattern
    for escape, ascii_class in _ASCII.items():
        pattern = pattern.replace(escape, ascii_class)
    return pattern


def _order(table: PatternTable) -> tuple[int, str]:
    return table.priority, table.library


def _read_text(text: str, name: str) -> PatternTable:
    try:
        return msgspec.convert(tomllib.loads(text), PatternTable)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        msg = f"{name}: {error}"
        raise PatternError(msg) from error


def _place(pattern: str, text: str) -> str:
    """Return `, line N` for the first line of a file with a pattern, an empty text if there is none."""
    written = (pattern, pattern.replace("\\", "\\\\"))
    found = (row for row, line in enumerate(text.splitlines(), 1) if any(each in line for each in written))
    row = next(found, None)
    return "" if row is None else f", line {row}"


def _fence(given: object, plugin: PlugIn) -> object:
    """Return the table that a plug-in offers: a `PatternTable`, a path or resource, or a function that returns one."""
    offered = given() if callable(given) and not isinstance(given, type) else given
    if isinstance(offered, str):
        offered = Path(offered)
    if isinstance(offered, (Path, Traversable)):
        return read_table(offered)
    if not isinstance(offered, PatternTable):
        msg = f"{plugin.point.value} is no PatternTable, path or resource"
        raise PatternError(msg)
    check_table(offered, offered.library)
    return offered
