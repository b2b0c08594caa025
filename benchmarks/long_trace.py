"""Long traces made of short ones: a real file repeated until it has as many events as a benchmark requests.

Times are shifted by the span of the original for every copy, and every id that must stay unique by the span of its
values, so that a reader meets as many distinct numbers as in a real capture of that length.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import zlib
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["find_trace", "repeat_database", "repeat_document"]

TRACES = Path(__file__).resolve().parents[1] / "../shared/traces"
# In a Kineto event: a time in µs or an id, of which only the whole part changes.
NUMBERS = re.compile(
    rb'(?:"(ts|correlation|external id|id|ev idx|record function id|python id|python parent id|sequence number)":\s*'
    rb"|(profilerstep)#)(\d+)",
    re.IGNORECASE,
)
METADATA = re.compile(rb'"ph":\s*"M"')
GZIP_LEVEL = 1  # a higher one would last longer than all the readers together
EVENT_TABLES = re.compile(r"CUPTI_ACTIVITY_KIND_\w+|NVTX_EVENTS")
SHIFTED = {"start": "span", "end": "span", "correlationId": "ids"}


def find_trace(*names: str) -> Path | None:
    """Return the first of the real files `names` that is there, in DEEPPROF_TRACES."""
    root = Path(os.environ.get("DEEPPROF_TRACES", TRACES))
    return next((root / name for name in names if (root / name).is_file()), None)


def repeat_document(source: Path, target: Path, events: int) -> int:
    """Write the Kineto document `source` (gzip) to `target` (gzip) until it has about `events` events.

    Returns how many times `source` went in: 1 at least. Metadata events and the header stay as they are, once.
    """
    content = zlib.decompress(source.read_bytes(), wbits=31)
    raw = bytes(msgspec.json.decode(content, type=dict[str, msgspec.Raw])["traceEvents"])
    before, after = content.split(raw, 1)
    listed = [bytes(event) for event in msgspec.json.decode(raw, type=list[msgspec.Raw])]
    fixed = [event for event in listed if METADATA.search(event)]
    moving = [event for event in listed if not METADATA.search(event)]
    copies = max(1, round((events - len(fixed)) / len(moving)))
    packer = zlib.compressobj(GZIP_LEVEL, wbits=31)
    with target.open("wb") as file:
        for piece in (before, b"[\n  ", b",\n  ".join(fixed), *shifted_copies(moving, copies), b"\n]", after):
            file.write(packer.compress(piece))
        file.write(packer.flush())
    return copies


def shifted_copies(events: list[bytes], copies: int) -> Iterator[bytes]:
    """Yield the text of `events`, each after a comma, `copies` times, each time with its numbers further on."""
    text = b"".join(b",\n  " + event for event in events)
    found = list(NUMBERS.finditer(text))
    keys = [(number[1] or number[2]).lower() for number in found]
    numbers = np.array([int(number[3]) for number in found])
    starts, ends = [number.start(3) for number in found], [number.end(3) for number in found]
    between = [text[start:end] for start, end in zip([0, *ends], [*starts, len(text)], strict=True)]
    listed, kinds = np.unique(keys, return_inverse=True)
    steps = np.array([span(numbers[kinds == kind]) for kind in range(len(listed))])[kinds]
    for copy in range(copies):
        moved = map(b"%d".__mod__, (numbers + copy * steps).tolist())
        yield b"".join(chain.from_iterable(zip(between, chain(moved, [b""]), strict=True)))


def span(numbers: Collection[int]) -> int:
    """Return how far to shift `numbers` so that they meet none of the originals."""
    return int(max(numbers)) - int(min(numbers)) + 1


def repeat_database(source: Path, target: Path, rows: int) -> int:
    """Write the nsys database `source` to `target` until its event tables have about `rows` rows in all.

    Returns how many times `source` went in. Tables that name things stay as they are.
    """
    shutil.copyfile(source, target)
    with closing(sqlite3.connect(target)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        tables = list_event_tables(connection)
        held = sum(height for _, height in tables.values())
        copies = max(1, round(rows / held))
        shifts = {"span": measure(connection, tables, "start"), "ids": measure(connection, tables, "correlationId")}
        for table, (columns, _) in tables.items():
            repeat_rows(connection, table, columns, copies, shifts)
        connection.commit()
    return copies


def list_event_tables(connection: sqlite3.Connection) -> dict[str, tuple[list[str], int]]:
    """Return the event tables with their columns and how many rows each has."""
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = {n: [row[1] for row in connection.execute(f'PRAGMA table_info("{n}")')] for n in names}
    count = 'SELECT count(*) FROM "{}"'
    kept = {n: listed for n, listed in columns.items() if EVENT_TABLES.fullmatch(n) and "start" in listed}
    return {n: (listed, connection.execute(count.format(n)).fetchone()[0]) for n, listed in kept.items()}


def measure(connection: sqlite3.Connection, tables: dict[str, tuple[list[str], int]], column: str) -> int:
    """Return the span of the values of `column` in all `tables`."""
    query = f'SELECT max("{column}"), min("{column}") FROM "{{}}"'  # noqa: S608
    found = [connection.execute(query.format(t)).fetchone() for t, (names, _) in tables.items() if column in names]
    known = [value for pair in found for value in pair if value is not None]
    return span(known) if known else 1


def repeat_rows(
    connection: sqlite3.Connection, table: str, columns: list[str], copies: int, shifts: dict[str, int]
) -> None:
    """Insert the rows of `table` another `copies - 1` times, each time further on by `shifts`."""
    moved = [f'"{c}" + :{SHIFTED[c]} * :copy' if c in SHIFTED else f'"{c}"' for c in columns]
    last = connection.execute(f'SELECT max(rowid) FROM "{table}"').fetchone()[0] or 0  # noqa: S608
    query = f'INSERT INTO "{table}" SELECT {", ".join(moved)} FROM "{table}" WHERE rowid <= :last'  # noqa: S608
    for copy in range(1, copies):
        connection.execute(query, {**shifts, "copy": copy, "last": last})
