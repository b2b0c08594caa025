"""Files opened with bounds: what is read never outgrows a limit, and what goes wrong is one `TraceError`."""

from __future__ import annotations

import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from deepprof.collectors.errors import TraceError

__all__ = ["HEAD_NBYTES", "LIMIT_NBYTES", "open_file", "read_bytes", "read_head"]

HEAD_NBYTES = 64 * 1024  # enough to tell one format from another
LIMIT_NBYTES = 4 * 1024**3  # of decompressed content: a small gzip file can hold terabytes of zeros
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

    Raises `TraceError` when the file cannot be read, is truncated or damaged gzip, or holds more than `limit` bytes.
    """
    content = bytearray()
    with open_file(path) as file:
        try:
            for piece in pieces(file, PIECE_NBYTES):
                content += piece
                if len(content) > limit:
                    raise TraceError(path, f"holds more than the limit of {limit} bytes", "record fewer iterations")
        except EOFError as error:
            problem = f"is truncated: its gzip stream breaks off after {len(content)} decompressed bytes"
            raise TraceError(path, problem, COPY_AGAIN) from error
        except zlib.error as error:
            problem = f"is a damaged gzip file after {len(content)} decompressed bytes ({error})"
            raise TraceError(path, problem, COPY_AGAIN) from error
    return content


def pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the content of `file` in pieces of at most `size` bytes, decompressed when it is gzip.

    Raises `EOFError` where a gzip stream breaks off and `zlib.error` where it is damaged.
    """
    magic = file.read(len(GZIP_MAGIC))
    file.seek(0)
    if magic == GZIP_MAGIC:
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
