"""Files opened within limits: the content read never exceeds a limit, and every failure is one `TraceError`."""

from __future__ import annotations

import importlib
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from deepprof.collectors.errors import TraceError

HEAD_NBYTES = 64 * 1024  # enough to distinguish the formats
LIMIT_NBYTES = 2 * 1024**3  # of content: a small gzip file can hold terabytes of zeros
# Traces compress 13 to 30 times, files made to exhaust memory up to a thousand times. Small files are not checked.
RATIO_LIMIT = 300
RATIO_FROM_NBYTES = 64 * 1024**2
NSYS_REPORTS = (".nsys-rep", ".qdrep")  # suffixes of what `nsys export` makes a database of
MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
ZSTD_READ_NBYTES = 2048  # zstd returns their whole content at once, at most 32,768 times as much
WINDOW_NBYTES = 128 * 1024**2  # of zstd: what `zstd --long` writes
COPY_AGAIN = "copy or export it again"
READ_NBYTES = 256 * 1024
PIECE_NBYTES = 16 * 1024**2


class _DamagedError(Exception):
    """A compressed stream that is invalid; the message gives the reason."""


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Open the regular file `path` for reading; every `OSError` here and in the `with` block becomes a `TraceError`."""
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
    """Return the first `nbytes` of the content of `path`, decompressed when it is gzip or zstd.

    Of a truncated compressed file, the readable part is returned. Raises `TraceError` when nothing can be read.
    """
    head = bytearray()
    try:
        for piece in read_pieces(path, nbytes):
            head += piece
            if len(head) >= nbytes:
                break
    except TraceError:
        if not head:
            raise
    return bytes(head[:nbytes])


def read_bytes(path: Path, limit: int = LIMIT_NBYTES) -> bytearray:
    """Return the content of `path`, decompressed when it is gzip or zstd; raises as `read_pieces` does."""
    content = bytearray()
    for piece in read_pieces(path, limit=limit):
        content += piece
    return content


def read_pieces(path: Path, size: int = PIECE_NBYTES, limit: int = LIMIT_NBYTES) -> Iterator[bytes]:
    """Yield the content of `path` in pieces of at most `size` bytes, decompressed when it is gzip or zstd.

    Several compressed members may follow each other. Raises `TraceError` when the file cannot be read, is truncated
    or damaged, contains more than `limit` bytes (a plain file is then not read at all), or decompresses to more than
    `RATIO_LIMIT` times its own size.
    """
    nbytes = 0
    with open_file(path) as file:
        stored = os.fstat(file.fileno()).st_size
        packing = find_packing(file)
        if packing is None:
            check_size(path, stored, stored, limit)
        try:
            for piece in pieces(file, packing, path, size):
                nbytes += len(piece)
                check_size(path, nbytes, stored, limit)
                yield piece
        except EOFError as error:
            problem = f"is truncated: its {packing} stream breaks off after {nbytes} decompressed bytes"
            raise TraceError(path, problem, COPY_AGAIN) from error
        except _DamagedError as error:
            problem = f"is a damaged {packing} file after {nbytes} decompressed bytes ({error})"
            raise TraceError(path, problem, COPY_AGAIN) from error


def check_size(path: Path, nbytes: int, stored: int, limit: int) -> None:
    """Raise `TraceError` when `nbytes` of content, from a file of `stored` bytes, exceed `limit` or `RATIO_LIMIT`."""
    if nbytes > limit:
        raise TraceError(path, f"holds more than the limit of {limit} bytes", "record fewer iterations")
    if nbytes > max(RATIO_FROM_NBYTES, RATIO_LIMIT * stored):
        problem = f"is no trace: it decompresses to more than {RATIO_LIMIT} times its {stored} bytes"
        raise TraceError(path, problem, "give a file written by a profiler")


def find_packing(file: BinaryIO) -> str | None:
    """Return how the content of `file`, positioned at its start, is compressed; None if it is not."""
    magic = file.read(4)
    file.seek(0)
    return next((name for name, start in MAGIC.items() if magic.startswith(start)), None)


def pieces(file: BinaryIO, packing: str | None, path: Path, size: int) -> Iterator[bytes]:
    """Yield the content of `file` in pieces of at most `size` bytes.

    Raises `EOFError` where a compressed stream breaks off and `_DamagedError` where it is invalid.
    """
    if packing == "gzip":
        yield from _inflate(file, size)
    elif packing == "zstd":
        yield from _unpack_zstd(file, path, size)
    else:
        yield from iter(lambda: file.read(size), b"")


def _inflate(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the content of the gzip members of `file`, at most `size` bytes at a time; zeros may pad the members."""
    unzip, data = zlib.decompressobj(wbits=31), b""
    while data := data or file.read(READ_NBYTES):
        if unzip.eof:
            data = data.lstrip(b"\0")
            if not data:
                continue
            unzip = zlib.decompressobj(wbits=31)
        try:
            piece = unzip.decompress(data, size)
        except zlib.error as error:
            raise _DamagedError(str(error)) from error
        yield piece
        data = unzip.unused_data or unzip.unconsumed_tail
    if not unzip.eof:
        raise EOFError("it breaks off")


def _unpack_zstd(file: BinaryIO, path: Path, size: int) -> Iterator[bytes]:
    """Yield the content of the zstd frames of `file`, at most `size` bytes at a time."""
    zstd = _load_zstd(path)
    decompressor = zstd.ZstdDecompressor(max_window_size=WINDOW_NBYTES)
    frame, data = decompressor.decompressobj(), b""
    while data := data or file.read(ZSTD_READ_NBYTES):
        frame = decompressor.decompressobj() if frame.eof else frame
        try:
            content = frame.decompress(data)
        except zstd.ZstdError as error:
            raise _DamagedError(str(error)) from error
        yield from (content[at : at + size] for at in range(0, len(content), size))
        data = frame.unused_data
    if not frame.eof:
        raise EOFError("it breaks off")


def _load_zstd(path: Path) -> Any:
    """Return the module `zstandard`; raises `TraceError` where it is not installed."""
    try:
        return importlib.import_module("zstandard")
    except ImportError as error:
        advice = "`pip install 'deepprof[zstd]'`, or unpack it with `unzstd` first"
        raise TraceError(path, "is compressed with zstd, which needs the package zstandard", advice) from error
