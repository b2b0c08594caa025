"""Sealed files: rows that no longer change, as Parquet; each is written whole or not at all, and is in the ledger."""

from __future__ import annotations

import io
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from deepprof.live.service.folder import StoreError, open_plain, require_kind, sync_folder
from deepprof.live.service.history.schema import STORED_ROWS

SEALED = "sealed"
TMP = ".tmp"
NAME = re.compile(r"(\d{12})\.parquet")
GROUP_ROWS = 1 << 14  # rows are sorted by session, so a page of one in a thousand sessions reads one or two groups


@dataclass(frozen=True, slots=True)
class SealedFile:
    """The ledger's entry of a file."""

    number: int
    nbytes: int
    crc32: int
    rows: int


def path_of(folder: Path, number: int) -> Path:
    """Return the path of the sealed file `number`."""
    return folder / f"{number:012d}.parquet"


def list_sealed(folder: Path) -> list[int]:
    """Return the numbers of the sealed files in `folder`, in order."""
    found = (NAME.fullmatch(entry.name) for entry in os.scandir(folder))
    return sorted(int(match[1]) for match in found if match is not None)


def write_sealed(folder: Path, number: int, rows: pl.DataFrame) -> SealedFile:
    """Write `rows`, sorted by session and row, as the file `number`, safe from power loss. Raises `OSError`.

    The file is not part of the history until the ledger lists it.
    """
    buffer = io.BytesIO()
    rows.write_parquet(buffer, compression="zstd", row_group_size=GROUP_ROWS)
    content = buffer.getbuffer()
    path = path_of(folder, number)
    part = path.with_name(path.name + TMP)
    part.unlink(missing_ok=True)
    try:
        file = open_plain(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            write(file, content)
            os.fsync(file)
        finally:
            os.close(file)
        part.rename(path)
        sync_folder(folder)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    return SealedFile(number, len(content), zlib.crc32(content), rows.height)


def write(file: int, content: memoryview) -> None:
    """Write all of `content`."""
    while content:
        content = content[os.write(file, content) :]


def read_sealed(folder: Path, number: int, where: pl.Expr) -> pl.DataFrame:
    """Return the rows of a file for which `where` is true.

    Raises FileNotFoundError where the file is missing, and `StoreError` where it cannot be read.
    """
    path = path_of(folder, number)
    if not require_kind(path):
        raise FileNotFoundError(path)
    with reading(path):
        require_schema(path)
        return pl.scan_parquet(path, glob=False).filter(where).collect()


def require_schema(path: Path) -> None:
    """Raise `StoreError` unless the file has the columns of a stored row."""
    with reading(path):
        if dict(pl.read_parquet_schema(path)) != dict(STORED_ROWS):
            raise StoreError(path, "has other columns than the history")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the errors of polars for a damaged file into a `StoreError`."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        words = str(error).partition("\n")[0][:200]
        raise StoreError(path, f"is a damaged Parquet file ({words})") from error
