"""Zip and tar archives opened within limits; no path, link or size in an archive is trusted.

Members are only written to a temporary directory, under names made here. A compressed tar is unpacked into a
temporary file first, so that its members can be read in any order.
"""

from __future__ import annotations

import os
import re
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import (
    HEAD_NBYTES,
    LIMIT_NBYTES,
    check_size,
    find_packing,
    open_file,
    read_pieces,
)

MEMBERS = 10_000
TOTAL_NBYTES = 4 * LIMIT_NBYTES  # of all members together
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")  # with a first member; without any
TAR_BLOCK, TAR_SUM = 512, slice(148, 156)
HEADER_NBYTES = 4 * 1024**2  # of a zip's list of members, or of one long name in a tar
READ_NBYTES = 1024**2
PACKINGS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
UNPACK = "unpack it yourself and name what it holds"
NAME_LENGTH = 80
# What `zipfile` and `tarfile` of Python 3.11 to 3.13 raise for damaged archives, in their source and under 250,000
# damaged ones. Any other exception is a bug. OSError: a seek before the file's start, or a disk that fails.
ZIP_ERRORS = (
    *(zipfile.BadZipFile, OSError),
    *(zlib.error, EOFError),  # deflate: the stream is invalid; it breaks off (until 3.12)
    NotImplementedError,  # the version that is needed, or the flags, are of no zip
    ValueError,  # names that are not UTF-8, and sizes that `GuardedFile` refuses
)
TAR_ERRORS = (
    *(tarfile.TarError, OSError),
    ValueError,  # numbers of sparse files, seeks beyond all files, and sizes that `GuardedFile` refuses
    RecursionError,  # chains of long names
    MemoryError,  # the map of a sparse file, which is read as a whole
)
Entry: TypeAlias = tuple[str, int, str]
T = TypeVar("T")


class _ArchiveMember(Struct, frozen=True):
    """One file in an archive: its `number` there, its `name` as written (never used as a path), its size unpacked."""

    number: int
    name: str
    nbytes: int

    @property
    def safe_name(self) -> str:
        """Return the last part of the name, with only characters that have no special meaning on any system."""
        name = re.sub(r"[^A-Za-z0-9._-]", "_", PurePosixPath(self.name).name)[-NAME_LENGTH:]
        return name.lstrip(".-") or "member"


class _ArchiveFormat(Protocol):
    """The two operations of an archive of any kind. Both raise `TraceError` where it is damaged."""

    def list_members(self) -> Iterator[Entry]:
        """Yield the name, size and fault ("" for none) of every entry; a directory is ("", 0, "")."""
        ...

    def read_member(self, number: int, nbytes: int) -> Iterator[bytes]:
        """Yield the content of the entry `number`, counted from 0, at most `nbytes` at a time."""
        ...


class Archive:
    """An open archive: its `members`, in stored order, without directories and hidden files."""

    def __init__(self, path: Path, stored: _ArchiveFormat, nbytes: int, directory: Path) -> None:
        self.path, self.stored, self.directory = path, stored, directory
        self.members = _checked(path, nbytes, list(islice(stored.list_members(), MEMBERS + 1)))

    def pieces(self, member: _ArchiveMember, limit: int = LIMIT_NBYTES) -> Iterator[bytes]:
        """Yield the content of `member` in pieces; raise `TraceError` if it is damaged or longer than `limit` bytes."""
        if member.nbytes > limit:
            raise TraceError(self.path, f"holds {_shown(member.name)} of more than {limit} bytes", UNPACK)
        left = member.nbytes
        for piece in self.stored.read_member(member.number, min(READ_NBYTES, left + 1)):
            left -= len(piece)
            if left < 0:
                raise TraceError(self.path, f"holds {_shown(member.name)}, longer than it says", UNPACK)
            yield piece
        if left:
            raise TraceError(self.path, f"is truncated: {_shown(member.name)} breaks off", "copy it again")

    def read(self, member: _ArchiveMember, limit: int = LIMIT_NBYTES) -> bytes:
        """Return the content of `member`; raises as `pieces` does."""
        return b"".join(self.pieces(member, limit))

    def head(self, member: _ArchiveMember, nbytes: int = HEAD_NBYTES) -> bytes:
        """Return the first `nbytes` of `member` as stored."""
        return next(self.stored.read_member(member.number, min(nbytes, member.nbytes)), b"")

    def extract(self, member: _ArchiveMember) -> Path:
        """Write `member` to its own directory, removed with the archive, and return its path there.

        The file is called `member.safe_name`. Raises as `pieces` does.
        """
        target = self.directory / f"{member.number:05d}" / member.safe_name
        with _room(self.path):
            target.parent.mkdir(exist_ok=True)
            with target.open("wb") as file:
                for piece in self.pieces(member):
                    file.write(piece)
        return target


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open the zip or tar archive `path`; a tar may be compressed with gzip or zstd.

    No member is written before `extract` is called; the files that it writes are removed at the end. Takes no memory
    for contents, and at most `TOTAL_NBYTES` of disk. Raises `TraceError` when it is no archive, is damaged, or has
    links, devices, encrypted members, names that lead out of it, more than 10,000 entries, a member of more than
    `LIMIT_NBYTES`, more than `TOTAL_NBYTES` in all, or content that is `RATIO_LIMIT` times its size.
    """
    with ExitStack() as stack:
        with open_file(path) as opened:  # left at once: it would report errors of the caller as its own
            file = stack.enter_context(os.fdopen(os.dup(opened.fileno()), "rb"))
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="deepprof-"))
        yield Archive(path, _find_stored(path, file, stack), os.fstat(file.fileno()).st_size, Path(directory))


def _find_stored(path: Path, file: BinaryIO, stack: ExitStack) -> _ArchiveFormat:
    """Return the entries of the archive in `file`; `stack` closes the files that are opened for them."""
    magic = file.read(4)
    file.seek(0)
    return _ZipFormat(path, file) if magic.startswith(ZIP_MAGICS) else _TarFormat(path, _plain_tar(path, file, stack))


def is_archive(head: bytes) -> bool:
    """Return whether decompressed content that starts with `head` is a zip or a tar."""
    return is_zip(head) or is_tar(head)


def is_zip(head: bytes) -> bool:
    """Return whether `head` starts a zip."""
    return head.startswith(ZIP_MAGICS)


def is_tar(head: bytes) -> bool:
    """Return whether `head` starts a tar: the bytes of its first block add up to the checksum in it."""
    block = head[:TAR_BLOCK]
    stated = re.fullmatch(rb"[ \0]*([0-7]{1,8})[ \0]*", block[TAR_SUM])
    if len(block) < TAR_BLOCK or stated is None:
        return False
    return sum(block) - sum(block[TAR_SUM]) + 8 * ord(" ") == int(stated[1], 8)


def _plain_tar(path: Path, file: BinaryIO, stack: ExitStack) -> BinaryIO:
    """Return the tar in `file`; a compressed one is unpacked into a temporary file that `stack` closes."""
    if find_packing(file) is None:
        return file
    with _room(path):
        unpacked = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  the stack closes it
        for piece in read_pieces(path, limit=TOTAL_NBYTES):
            unpacked.write(piece)
        unpacked.seek(0)
    return cast("BinaryIO", unpacked)


class _ZipFormat:
    """The entries of a zip."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, guarded = path, cast("IO[bytes]", GuardedFile(file))
        with _sense(path, ZIP_ERRORS):
            self.zip = zipfile.ZipFile(guarded)
        self.entries = self.zip.infolist()

    def list_members(self) -> Iterator[Entry]:
        """Yield name, size and fault of every entry."""
        for entry in self.entries:
            is_directory = entry.filename.endswith("/")
            yield ("", 0, "") if is_directory else (entry.filename, entry.file_size, self.fault(entry))

    def fault(self, entry: zipfile.ZipInfo) -> str:
        """Return why `entry` is not read, "" where it is."""
        kind = stat.S_IFMT(entry.external_attr >> 16)
        faults = (
            (not entry.filename, "has no name"),
            (entry.flag_bits & 1, "is encrypted"),
            (kind not in {0, stat.S_IFREG}, "is a link or a device"),
            (entry.compress_type not in PACKINGS, f"is packed by method {entry.compress_type}, not deflate"),
        )
        return next((words for matches, words in faults if matches), "")

    def read_member(self, number: int, nbytes: int) -> Iterator[bytes]:
        """Yield the content of the entry `number`, at most `nbytes` at a time."""
        entry = self.entries[number]
        with _sense(self.path, ZIP_ERRORS):
            file = self.zip.open(entry)
        with file:
            yield from _sensed(self.path, ZIP_ERRORS, iter(lambda: file.read(nbytes), b""))


class _TarFormat:
    """The entries of a plain tar."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path, guarded = path, cast("IO[bytes]", GuardedFile(file))
        with _sense(path, TAR_ERRORS):
            self.tar = tarfile.open(fileobj=guarded, mode="r:")  # noqa: SIM115  closed with its file
        self.entries: list[tarfile.TarInfo] = []

    def list_members(self) -> Iterator[Entry]:
        """Yield name, size and fault of every entry."""
        for entry in _sensed(self.path, TAR_ERRORS, iter(self.tar)):
            self.entries.append(entry)
            yield ("", 0, "") if entry.isdir() else (entry.name, entry.size, self.fault(entry))

    def fault(self, entry: tarfile.TarInfo) -> str:
        """Return why `entry` is not read, "" where it is."""
        if not entry.isreg():
            return "is a link or a device"
        return "is a sparse file" if entry.issparse() else ""

    def read_member(self, number: int, nbytes: int) -> Iterator[bytes]:
        """Yield the content of the entry `number`, at most `nbytes` at a time."""
        file = cast("IO[bytes]", self.tar.extractfile(self.entries[number]))  # regular: `fault` refused all others
        return _sensed(self.path, TAR_ERRORS, iter(lambda: file.read(nbytes), b""))


class GuardedFile:
    """A file that refuses large reads: `zipfile` and `tarfile` read lists and long names of any stated size at once."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes; raise `ValueError` when that is more than any header has."""
        if size > HEADER_NBYTES:
            raise ValueError("a header of impossible size")
        return self.file.read(HEADER_NBYTES if size < 0 else size)

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the file."""
        return getattr(self.file, name)


def _checked(path: Path, stored: int, entries: list[Entry]) -> tuple[_ArchiveMember, ...]:
    """Return `entries` of a file of `stored` bytes as members; raise `TraceError` for the first not to be read."""
    if len(entries) > MEMBERS:
        raise TraceError(path, f"is an archive of more than {MEMBERS} entries", UNPACK)
    files = [_ArchiveMember(number, name, nbytes) for number, (name, nbytes, _) in enumerate(entries) if name]
    for name, nbytes, fault in entries:
        if words := fault or misplaced(name) or _misshapen(nbytes):
            raise TraceError(path, f"holds {_shown(name)}, which {words}", UNPACK)
    check_size(path, sum(member.nbytes for member in files), stored, TOTAL_NBYTES)
    return tuple(member for member in files if not _hidden(member.name))


def misplaced(name: str) -> str:
    """Return what is wrong with the path in `name`, "" where it is inside the archive."""
    parts = re.split(r"[/\\]", name)
    outside = name.startswith(("/", "\\")) or ".." in parts or re.match(r"[A-Za-z]:", name) or "\0" in name
    return "lies outside of it" if outside else ""


def _misshapen(nbytes: int) -> str:
    """Return what is wrong with a size, "" where nothing is."""
    return f"has more than {LIMIT_NBYTES} bytes" if nbytes > LIMIT_NBYTES else "has no size" if nbytes < 0 else ""


def _hidden(name: str) -> bool:
    """Return whether a file is hidden, like the files that macOS adds to its archives."""
    return any((part.startswith(".") and part != ".") or part == "__MACOSX" for part in PurePosixPath(name).parts)


def _shown(name: str) -> str:
    """Return `name` shortened for a message."""
    return name if len(name) <= NAME_LENGTH else f"…{name[-NAME_LENGTH:]}"


@contextmanager
def _room(path: Path) -> Iterator[None]:
    """Turn disk errors while `path` is unpacked into a `TraceError`."""
    try:
        yield
    except OSError as error:
        advice = "make room in the directory for temporary files, or choose another one with TMPDIR"
        raise TraceError(path, f"cannot be unpacked: {error.strerror or error}", advice) from error


@contextmanager
def _sense(path: Path, damage: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn the errors of `zipfile` or `tarfile` for an invalid archive into a `TraceError`."""
    try:
        yield
    except damage as error:
        words = str(error) or type(error).__name__
        raise TraceError(path, f"is a damaged archive, or none ({words})", "copy it again") from error


def _sensed(path: Path, damage: tuple[type[Exception], ...], parts: Iterator[T]) -> Iterator[T]:
    """Yield the parts; errors that they raise, but none of the caller's, become a `TraceError` as in `_sense`."""
    with _sense(path, damage):
        yield from parts
