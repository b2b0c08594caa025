"""Files opened with bounds: what is read never outgrows a limit, and what goes wrong is one `TraceError`."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from deepprof.collectors.errors import TraceError

__all__ = ["HEAD_NBYTES", "LIMIT_NBYTES", "RATIO_LIMIT", "open_file", "read_bytes", "read_head"]

HEAD_NBYTES = 64 * 1024  # enough to tell one format from another
LIMIT_NBYTES = 2 * 1024**3  # of content: a small gzip file can hold terabytes of zeros
# Traces compress 13 to 30 times, what is made to fill a memory up to a thousand times. Small files may do as they like.
RATIO_LIMIT = 300
RATIO_FROM_NBYTES = 64 * 1024**2
GZIP_MAGIC = b"\x1f\x8b"
COPY_AGAIN = "copy or export it again"
READ_NBYTES = 256 * 1024
PIECE_NBYTES = 16 * 1024**2


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Open the regular file `path` for reading; every `OSError` from here on becomes a `TraceError`."""
    try:
        if stat.S_ISDIR(path.stat().st_mode):
            raise TraceError(path, "is a directory", "name a trace file in it")
        if not stat.S_ISREG(path.stat().st_mode):  # opening a FIFO would wait for ever
            raise TraceError(path, "is not a regular file", "save the trace to a file first")
        with path.open("rb") as file:
            yield file
    except FileNotFoundError as error:
        raise TraceError(path, "no such file", "check the path") from error
    except PermissionError as error:
        raise TraceError(path, "permission denied", "make the file readable for you") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise TraceError(path, f"cannot be read: {error}", "check the path") from error


def read_head(path: Path, nbytes: int = HEAD_NBYTES) -> bytes:
    """Return the first `nbytes` of the content of `path`, decompressed when it is gzip.

    A gzip file that breaks off gives what it holds. Raises `TraceError` when nothing can be read.
    """
    head = bytearray()
    with open_file(path) as file:
        try:
            for piece in pieces(file, nbytes):
                head += piece
                if len(head) >= nbytes:
                    break
        except (EOFError, zlib.error) as error:
            if not head:
                raise TraceError(path, f"is a damaged gzip file ({error})", COPY_AGAIN) from error
    return bytes(head[:nbytes])


def read_bytes(path: Path, limit: int = LIMIT_NBYTES) -> bytearray:
    """Return the content of `path`, decompressed when it is gzip (several members follow each other).

    Raises `TraceError` when the file cannot be read, is truncated or damaged gzip, holds more than `limit` bytes (a
    plain file is then not read at all), or more than `RATIO_LIMIT` times its own size.
    """
    content = bytearray()
    with open_file(path) as file:
        stored = os.fstat(file.fileno()).st_size
        try:
            if not is_gzip(file):
                check_size(path, stored, stored, limit)
            for piece in pieces(file, PIECE_NBYTES):
                content += piece
                check_size(path, len(content), stored, limit)
        except EOFError as error:
            problem = f"is truncated: its gzip stream breaks off after {len(content)} decompressed bytes"
            raise TraceError(path, problem, COPY_AGAIN) from error
        except zlib.error as error:
            problem = f"is a damaged gzip file after {len(content)} decompressed bytes ({error})"
            raise TraceError(path, problem, COPY_AGAIN) from error
    return content


def check_size(path: Path, nbytes: int, stored: int, limit: int) -> None:
    """Raise `TraceError` when `nbytes` of content, from a file of `stored` bytes, are too many."""
    if nbytes > limit:
        raise TraceError(path, f"holds more than the limit of {limit} bytes", "record fewer iterations")
    if nbytes > max(RATIO_FROM_NBYTES, RATIO_LIMIT * stored):
        problem = f"is no trace: its gzip stream holds more than {RATIO_LIMIT} times its {stored} bytes"
        raise TraceError(path, problem, "give a file written by a profiler")


def is_gzip(file: BinaryIO) -> bool:
    """Return whether `file`, at its start, is gzip."""
    magic = file.read(len(GZIP_MAGIC))
    file.seek(0)
    return magic == GZIP_MAGIC


def pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the content of `file` in pieces of at most `size` bytes, decompressed when it is gzip.

    Raises `EOFError` where a gzip stream breaks off and `zlib.error` where it is damaged.
    """
    if is_gzip(file):
        yield from inflate(file, size)
    else:
        yield from iter(lambda: file.read(size), b"")


def inflate(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield what the gzip members of `file` hold, at most `size` bytes at a time; zeros may pad the members."""
    unzip, data = zlib.decompressobj(wbits=31), b""
    while data := data or file.read(READ_NBYTES):
        if unzip.eof:
            data = data.lstrip(b"\0")
            if not data:
                continue
            unzip = zlib.decompressobj(wbits=31)
        yield unzip.decompress(data, size)
        data = unzip.unused_data or unzip.unconsumed_tail
    if not unzip.eof:
        raise EOFError("it breaks off")
