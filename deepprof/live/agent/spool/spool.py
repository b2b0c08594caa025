"""A spool: one rank's messages on disk in the order of their numbers, from one process to the next.

Every message is handed to the system by one write before `append` returns. That survives kill -9 of the agent, the
usual failure. It is not synced, because a machine that loses power ends the job's processes too, and syncing five times
a second would slow the disk that the job reads from.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Self

from google.protobuf.message import DecodeError

from deepprof.live.agent.spool.fillers import make_gap
from deepprof.live.agent.spool.names import SpoolNames
from deepprof.live.agent.spool.reading import SpoolCursor, SpoolMessage, SpoolReader
from deepprof.live.agent.spool.segments import HEADER, KINDS, SpoolSegment, create_segment, load_segment, pack_frame
from deepprof.live.agent.spool.spool_folder import DAMAGED, SPOOL_NAME, SpoolError, SpoolFolder, make_root, name_spool
from deepprof.live.segments.frame_format import FrameHeader
from deepprof.live.segments.segment_files import SegmentWriter, name_of
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import Hello

LIMIT_NBYTES = 1 << 30  # some 15 million records: a quarter of an hour of a busy GPU, on any node's disk
SEGMENT_NBYTES = 16 << 20  # acknowledged messages are removed in pieces of this size
HELLO, HELLO_NBYTES = "hello", 1 << 20
BEGUN = {"hello.new"}  # the only file of a spool whose maker was killed meanwhile


class SpoolBudget:
    """The disk space of all spools of an agent: at most `limit_nbytes` for records.

    Messages that must be kept in any case (gaps, ends) go beyond it, and threads that append at the same moment may do
    so by a message each.
    """

    def __init__(self, limit_nbytes: int = LIMIT_NBYTES) -> None:
        self.limit_nbytes, self.nbytes = limit_nbytes, 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> None:
        """Count `nbytes` more, or less where they are negative."""
        with self._lock:
            self.nbytes += nbytes

    def fits(self, nbytes: int) -> bool:
        """Return whether there is space for `nbytes` more."""
        return self.nbytes + nbytes <= self.limit_nbytes


class Spool:
    """One rank's messages on disk; `Spool.open` makes or recovers it.

    One thread calls `append`, one other (or the same) `read`, `seek`, `skip`, `trim`. `next` is the number after the
    last record, `source_next` the process's own count after it, `first` the number at which the kept messages begin,
    and `names_first` how many names were known there. `problem` is why the disk used nothing last.
    """

    def __init__(
        self, folder: SpoolFolder, hello: Hello, budget: SpoolBudget, segment_nbytes: int, *, is_new: bool
    ) -> None:
        self.folder, self.hello, self.budget, self.is_new = folder, hello, budget, is_new
        self.segment_nbytes = segment_nbytes
        self.problem = ""
        self._lock = threading.RLock()
        self._segments: dict[int, SpoolSegment] = {}
        self._names = SpoolNames(folder)
        self._charged = 0
        self._recover()
        self._settle()

    @classmethod
    def open(
        cls, root: Path, hello: Hello, budget: SpoolBudget | None = None, *, segment_nbytes: int = SEGMENT_NBYTES
    ) -> Self:
        """Return the spool of hello's job, rank and collector under `root`: made, or found again and recovered.

        Raises `SpoolError` if another process contains it, or it cannot be made.
        """
        make_root(root)
        folder = SpoolFolder(root / name_spool(hello), make=True)
        return cls.load(folder, budget or SpoolBudget(), hello, segment_nbytes)

    @classmethod
    def load(
        cls, folder: SpoolFolder, budget: SpoolBudget, hello: Hello | None, segment_nbytes: int = SEGMENT_NBYTES
    ) -> Self:
        """Return the spool in an open folder; without a `hello` it must have one. Raises `SpoolError`."""
        try:
            found = _read_hello(folder)
            if found is None:
                if hello is None:
                    raise SpoolError(folder.path, "says not whose records it keeps", "remove it")
                folder.write_new(HELLO, hello.SerializeToString())
            return cls(folder, hello or found or Hello(), budget, segment_nbytes, is_new=found is None)
        except OSError as error:
            folder.close()
            raise SpoolError(folder.path, f"cannot be used: {error.strerror or error}", "look at its disk") from error
        except SpoolError:
            folder.close()
            raise

    def _recover(self) -> None:
        """Load the segments on disk, and go on after them."""
        numbers = self.folder.segments()
        broken = False
        for number in numbers:
            segment = self._load(number, whole=number == numbers[-1])
            broken = segment is None
            if segment is not None:
                self._segments[number] = segment
        number = numbers[-1] + 1 if numbers else 1
        if not self._segments:
            self._segments[number] = create_segment(self.folder, number, 0, 0, self._names.count)
        elif broken or self._last.is_torn:
            self._segments[number] = self._make(number)
        self._names.match(self._last.names)
        self._writer = self._open_writer(self._last)
        if broken:
            self._write("gap", make_gap(self.next, 0, "damaged"), 0, self.source_next)

    def _open_writer(self, segment: SpoolSegment) -> SegmentWriter:
        return SegmentWriter(self.folder.open(name_of(segment.number), os.O_WRONLY))

    def _load(self, number: int, *, whole: bool) -> SpoolSegment | None:
        """Return a segment, None if the file is none, which is then set aside."""
        with suppress(OSError):
            if (segment := load_segment(self.folder, number, whole=whole)) is not None:
                return segment
        self.folder.set_aside(name_of(number))
        return None

    def _make(self, number: int) -> SpoolSegment:
        """Return a new segment that goes on after the last."""
        last = self._last
        made = create_segment(self.folder, number, last.next, last.source_next, last.names)
        made.ended = last.ended
        return made

    @property
    def _last(self) -> SpoolSegment:
        return next(reversed(self._segments.values()))

    @property
    def next(self) -> int:
        """The number after the last record."""
        return self._last.next

    @property
    def source_next(self) -> int:
        """The process's own count of records after the last one."""
        return self._last.source_next

    @property
    def ended(self) -> bool:
        """Whether an End was appended."""
        return self._last.ended

    @property
    def first(self) -> int:
        """The number at which the kept messages begin."""
        return next(iter(self._segments.values())).first

    @property
    def names_first(self) -> int:
        """How many names were known at `first`."""
        return next(iter(self._segments.values())).names_first

    @property
    def names_count(self) -> int:
        """How many names are available."""
        return self._last.names

    @property
    def names(self) -> list[str]:
        """All texts of the rank in the order of their ids, read from disk: at most 64 MiB."""
        return self.read_names(0, self.names_count)

    @property
    def nbytes(self) -> int:
        """Size on disk."""
        return self._charged

    def read_names(self, first: int, until: int) -> list[str]:
        """Return the texts of the ids [first, until), from disk."""
        return self._names.read(first, until)

    def append(self, request: SendRequest, count: int, source_next: int = 0, *, forced: bool = False) -> bool:
        """Append a message of `count` records, and set the number of its first; False: nothing was kept.

        Then the budget has no space (unless `forced`), or the disk uses nothing: `problem` states why. `source_next`
        never falls. Raises `ValueError` for names that do not follow those known or use more than 64 MiB, and for
        anything after an End.
        """
        with self._lock:
            if self.ended:
                raise ValueError("nothing follows an End")
            kind = _set_first(request, self.next)
            if not forced and not self.budget.fits(HEADER + request.ByteSize()):
                self.problem = "the spool is full"
                return False
            try:
                self._write(kind, request, count, max(source_next, self.source_next))
            except OSError as error:
                self.problem = f"the disk takes no records: {error.strerror or error}"
                return False
            finally:
                self._settle()
            self.problem = ""
            return True

    def _settle(self) -> None:
        """Charge the budget with the size on disk; a closed spool is charged when it is opened next."""
        if self._writer.file < 0:
            return
        nbytes = self._names.size + sum(segment.size for segment in self._segments.values())
        self.budget.take(nbytes - self._charged)
        self._charged = nbytes

    def _write(self, kind: str, request: SendRequest, count: int, source_next: int) -> None:
        """Write a message and its names. Raises `OSError` with nothing appended."""
        if self._last.size >= self.segment_nbytes:
            self._rotate()
        self._add_names(request)
        last, payload = self._last, request.SerializeToString()
        names = last.names + (len(request.batch.names) if kind == "batch" else 0)
        frame = FrameHeader(KINDS.index(kind), (last.next, count, source_next, names), len(payload))
        self._writer.write([pack_frame(frame, payload, last.number, last.size), payload], last.size)
        last.take(frame)

    def _add_names(self, request: SendRequest) -> None:
        """Keep the names that a batch contains; those of a batch that did not fit may be here already."""
        names = request.batch.names if request.WhichOneof("message") == "batch" else ()
        if names and request.batch.first_name != self._last.names:
            raise ValueError(f"names from {request.batch.first_name} on, expected {self._last.names}")
        self._names.add(names[self._names.count - self._last.names :])

    def _rotate(self) -> None:
        made = self._make(self._last.number + 1)
        writer = self._open_writer(made)
        self._writer.close()
        self._writer, self._segments = writer, {**self._segments, made.number: made}

    def read(self, since: SpoolCursor = SpoolCursor()) -> Iterator[SpoolMessage]:  # noqa: B008 - a value that nobody can change
        """Yield the messages from `since` on that are there now; a damaged one as a gap. Raises `OSError`."""
        with self._lock:  # the last one grows while it is read
            segments = {**self._segments, self._last.number: copy(self._last)}
        return SpoolReader(self.folder, segments, self.read_names).read(since)

    def seek(self, durable: int) -> SpoolCursor:
        """Return where the first message starts that is not durable when all records below `durable` are."""
        found = SpoolCursor()
        with self._lock:
            for segment in self._segments.values():
                if not segment.is_durable(durable):
                    break
                found = SpoolCursor(segment.number, segment.size)
        for message in self.read(found):
            if not message.is_durable(durable):
                break
            found = message.after
        return found

    def skip(self, durable: int) -> None:
        """Go on after the daemon's records if it has more than this spool, which was damaged: its numbers are used."""
        with self._lock:
            if durable > self.next and not self.ended:
                lost = durable - self.next
                self.append(make_gap(self.next, lost, "damaged"), lost, forced=True)

    def trim(self, durable: int, reader: SpoolCursor | None = None) -> None:
        """Remove the segments whose messages are all durable; the last stays, so that the numbers are not forgotten.

        Those that a `reader` is in or has not reached yet stay too: some contain only watermarks, which are no records.
        """
        with self._lock:
            while len(self._segments) > 1 and self._is_over(durable):
                number = next(iter(self._segments))
                if reader is not None and number >= reader.segment:
                    break
                self._segments = {key: value for key, value in self._segments.items() if key != number}
                with suppress(OSError):
                    self.folder.unlink(name_of(number))
            self._settle()

    def _is_over(self, durable: int) -> bool:
        """Return whether the oldest segment, and what is missing after it, is durable."""
        oldest, following = list(self._segments.values())[:2]
        if not oldest.is_torn and following.first == oldest.next:
            return oldest.is_durable(durable)
        return durable > oldest.next and durable >= following.first

    def rename(self, collectors: Iterable[str]) -> None:
        """Keep the records of another collector from now on: the first of `collectors` that has no spool.

        A kill in the middle leaves a folder that does not state whose it is. Raises `OSError`.
        """
        with self._lock:
            hellos = (_name_again(self.hello, collector) for collector in collectors)
            hello = next(each for each in hellos if not self.folder.path.with_name(name_spool(each)).exists())
            self.folder.rename(name_spool(hello))
            self.folder.write_new(HELLO, hello.SerializeToString())
            self.hello = hello

    def close(self) -> None:
        """Close the files; the spool stays on disk."""
        with self._lock:
            self._writer.close()
            self._names.close()
            self.folder.close()
            self.budget.take(-self._charged)
            self._charged = 0

    def remove(self) -> None:
        """Remove it from disk; it is closed afterwards."""
        self.folder.remove()
        self.close()


def _set_first(request: SendRequest, first: int) -> str:
    """Set the number of a message's first record; returns its kind. Raises `ValueError` for a Hello or nothing."""
    kind: str | None = request.WhichOneof("message")
    if kind is None or kind not in KINDS:
        raise ValueError(f"a spool keeps batches, gaps and an End, not {kind}")
    if kind != "end":
        getattr(request, kind).first = first
    return kind


def _name_again(hello: Hello, collector: str) -> Hello:
    other = Hello()
    other.CopyFrom(hello)
    other.collector = collector
    return other


def _read_hello(folder: SpoolFolder) -> Hello | None:
    """Return a spool's Hello, None if there is none that fits the folder; one that does not fit is set aside."""
    try:
        hello = Hello.FromString(folder.read(HELLO, HELLO_NBYTES))
        if folder.path.name == name_spool(hello):
            return hello
    except FileNotFoundError:
        return None
    except (OSError, DecodeError):
        pass
    folder.set_aside(HELLO)
    return None


def find_spools(root: Path, budget: SpoolBudget) -> list[Spool]:
    """Return the spools under `root` that no process holds, recovered, oldest first; none if `root` is missing.

    They are of a former agent that was killed, or whose daemon was away when the job ended. A spool that does not state
    whose records it keeps gets a name that ends in `.damaged`, and is left alone.
    """
    try:
        entries = [entry for entry in os.scandir(root) if SPOOL_NAME.fullmatch(entry.name)]
        ages = [(entry.stat(follow_symlinks=False).st_mtime_ns, entry.name) for entry in entries]
    except OSError:
        return []
    found = [_load_found(root / name, budget) for _, name in sorted(ages)]
    return [spool for spool in found if spool is not None]


def _load_found(path: Path, budget: SpoolBudget) -> Spool | None:
    """Return a spool, None if it is kept or there is none."""
    try:
        folder = SpoolFolder(path)
    except SpoolError:  # held, or no folder
        return None
    if set(os.listdir(folder.file)) <= BEGUN:
        folder.remove()
        folder.close()
        return None
    try:
        return Spool.load(folder, budget, None)
    except SpoolError:
        with suppress(OSError):
            path.rename(path.with_name(path.name + DAMAGED))
        return None
