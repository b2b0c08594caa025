"""The meaning of the columns of a user's table: given as text, as a mapping, or as a TOML file."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from deepprof.collectors.errors import TraceError, UsageError
from deepprof.collectors.importers.files import read_bytes

EXAMPLE = "start=COLUMN,duration=COLUMN,name=COLUMN,stream=COLUMN,unit=us"
FILE_NBYTES = 64 * 1024
SHOWN = 12
SHOWN_LENGTH = 30


class GenericColumns(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The name of the column for every field of a record, and the unit of the times.

    `end` or `duration` is needed. `activity` separates device events ("kernel", "memcpy", "memset", "graph", "sync")
    from host events ("op", "runtime", "python", "dataloader", "overhead", "other") and ranges ("annotation"); if it is
    not given, all rows are device events, and copies and memsets are recognised by their names.
    """

    start: str
    name: str
    end: str | None = None
    duration: str | None = None
    unit: Literal["ns", "us", "ms", "s"] = "ns"
    device: str | None = None
    stream: str | None = None
    thread: str | None = None
    activity: str | None = None
    copy_kind: str | None = None
    nbytes: str | None = None
    correlation: str | None = None

    def __post_init__(self) -> None:
        if self.end is None and self.duration is None:
            raise ValueError("either `end` or `duration` is needed")

    def named(self) -> dict[str, str]:
        """Return the columns by key, without those not given."""
        return {key: getattr(self, key) for key in KEYS if key != "unit" and getattr(self, key) is not None}

    def check(self, path: Path, found: list[str]) -> None:
        """Raise `TraceError` when a column is not among those `found` in `path`; the message names similar ones."""
        for key, column in self.named().items():
            if column not in found:
                near = get_close_matches(column.lower(), [name.lower() for name in found], n=3, cutoff=0.5)
                names = [name for name in found if name.lower() in near] or found
                problem = f"has no column {column!r} for {key}"
                raise TraceError(path, problem, f"{'did you mean' if near else 'its columns are'} {listed(names)}")


KEYS = GenericColumns.__struct_fields__
Mapped: TypeAlias = str | os.PathLike[str] | Mapping[str, str] | GenericColumns  # what `parse_columns` takes
# Names of the columns in other tools; the first column that matches is taken, and "Start (us)" contains its unit too.
USUAL = {
    "start": r"start|begin|ts\b|timestamp",
    "duration": r"dur",
    "end": r"end|stop|finish",
    "name": r"(?:kernel|demangled|op)[ _]?name|name|kernel",
    "stream": r"str(?:ea)?m|queue",
    "device": r"device|gpu",
    "correlation": r"corr",
}
UNIT = re.compile(r"\((ns|us|ms|s)(?:ec)?\)")
# Tables that have these names need no mapping.
OWN = GenericColumns(
    start="start_ns",
    name="name",
    end="end_ns",
    duration="duration_ns",
    device="device",
    stream="stream",
    thread="thread",
    activity="activity",
    copy_kind="copy_kind",
    nbytes="nbytes",
    correlation="correlation",
)


def parse_columns(given: Mapped) -> GenericColumns:
    """Return the columns in `given`: "start=Start,end=End,…", the path of a TOML file, or a mapping of the same keys.

    Raises `UsageError` for an unknown key or a missing one, and `TraceError` for a file that cannot be read.
    """
    if isinstance(given, GenericColumns):
        return given
    if isinstance(given, Mapping):
        return _convert(dict(given), "columns")
    text = os.fspath(given)
    if text.lower().endswith(".toml") or not isinstance(given, str):
        return _convert(_read_toml(Path(text)), text)
    return _convert(_split_text(text), "--columns")


def _convert(values: dict[str, object], source: str) -> GenericColumns:
    """Return `values` as `GenericColumns`."""
    known = f"keys are {', '.join(KEYS)}"
    if unknown := [key for key in values if key not in KEYS]:
        raise UsageError(f"{source}: unknown key {unknown[0]!r}; {known}")
    try:
        return msgspec.convert(values, GenericColumns)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: {str(error).replace('`', '')}; {known}, as in {EXAMPLE}") from error


def suggest(found: list[str]) -> str:
    """Return the text that maps the columns `found`, quoted for a shell; `EXAMPLE` if their names are unknown."""
    guess = {
        key: next((name for name in found if re.match(usual, name, re.IGNORECASE)), None)
        for key, usual in USUAL.items()
    }
    if guess["duration"]:
        guess["end"] = None
    if not (guess["start"] and guess["name"] and (guess["duration"] or guess["end"])):
        return EXAMPLE
    unit = UNIT.search(guess["start"])
    pairs = [f"{key}={name}" for key, name in guess.items() if name] + [f"unit={unit[1] if unit else 'us'}"]
    return shlex.quote(",".join(pairs))


def _split_text(text: str) -> dict[str, object]:
    """Return the pairs of "key=column,key=column"; a column may have commas in its name."""
    pairs = [part.partition("=") for part in re.split(r",(?=\s*[a-z_]+\s*=)", text)]
    wrong = next((key for key, equals, column in pairs if not equals or not column), None)
    if wrong is not None:
        raise UsageError(f"--columns: {wrong[:SHOWN_LENGTH]!r} names no column; give {EXAMPLE}, or a .toml file")
    keys = [key.strip() for key, _, _ in pairs]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise UsageError(f"--columns: {twice!r} comes twice; give every key once")
    return {key: column.strip() for key, (_, _, column) in zip(keys, pairs, strict=True)}


def _read_toml(path: Path) -> dict[str, object]:
    """Return the keys of the TOML file `path`."""
    try:
        return tomllib.loads(bytes(read_bytes(path, FILE_NBYTES)).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(path, f"is no TOML ({error})", f"write lines such as start = {'Start'!r}") from error


def listed(names: list[str]) -> str:
    """Return `names` for a message."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(repr(name[:SHOWN_LENGTH]) for name in names[:SHOWN]) + more
