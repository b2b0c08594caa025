"""The tables of a database, by which importers recognise their formats; found even if it cannot be opened."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import read_head
from deepprof.collectors.importers.sqlite.packed import is_packed
from deepprof.collectors.importers.sqlite.sqlite_database import open_database

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SCHEMA_NBYTES = 1 << 20
CREATE_TABLE = re.compile(rb'CREATE TABLE (?:IF NOT EXISTS )?["`]?(\w+)')


def list_tables(head: bytes, path: Path) -> Iterable[str]:
    """Return the tables of the database `path`, or those in `head` and its log when it cannot be opened.

    A compressed database is not unpacked for this: its first mebibyte contains the schema.
    """
    if is_packed(path):
        return _names_in(read_head(path, SCHEMA_NBYTES))
    try:
        with open_database(path) as database:
            return database.tables
    except TraceError:
        return _names_in(head + _read_log(path))


def _names_in(content: bytes) -> list[str]:
    """Return the names of the tables whose definitions `content` contains."""
    return [name.decode("ascii", "replace") for name in CREATE_TABLE.findall(content)]


def _read_log(path: Path) -> bytes:
    """Return the first bytes of the write-ahead log of the database `path`, no bytes if it has no log."""
    try:
        return read_head(path.with_name(f"{path.name}-wal"))
    except TraceError:
        return b""
