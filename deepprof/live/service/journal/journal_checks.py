"""Checks of the journal's files, one by one and every byte, and a repair that keeps all whole frames."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from deepprof.live.segments.segment_files import HEAD_NBYTES, ScannedFrame
from deepprof.live.service.folder import StoreError, naming, open_plain, require_kind
from deepprof.live.service.journal.segments import (
    BLANK,
    HEADER,
    KINDS,
    JournalPlace,
    list_segments,
    pack_blank,
    path_of,
    read_head,
)
from deepprof.live.service.store_problem import FsckContext
from deepprof.plurals import counted

UNSYNCED = "nothing that was acknowledged, after a crash"
COPIED_NBYTES = 64 << 20  # most damaged bytes that are put aside at once


@dataclass(slots=True)
class _JournalFacts:
    """Facts that the rest of the store must agree with: the journal's end, and its highest session."""

    end: JournalPlace
    highest_session: int = 0


def inspect_journal(bench: FsckContext, folder: Path) -> _JournalFacts:
    """Check every segment in `folder`, and repair it if instructed to. Raises `StoreError` for a newer version."""
    facts = _JournalFacts(JournalPlace(0, 0, 0))
    if not os.path.lexists(folder):
        return facts
    if not _is_kind(bench, folder, folder=True):
        return facts
    numbers = list_segments(folder)
    names = {path_of(folder, number).name for number in numbers}
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name not in names:
            bench.report(Path(entry.path), "is no file of a journal")
            bench.put_aside(Path(entry.path))
    for number in numbers:
        path = path_of(folder, number)
        if _is_kind(bench, path):
            with naming(path):
                _inspect_segment(bench, path, number, facts, last=number == numbers[-1])
    return facts


def _is_kind(bench: FsckContext, path: Path, *, folder: bool = False) -> bool:
    """Return whether a plain file (or a `folder`) is at `path`; anything else is reported, and put aside."""
    try:
        return require_kind(path, folder=folder)
    except StoreError as error:
        bench.report(path, error.problem, "what it stood for")
        bench.put_aside(path)
        return False


def _inspect_segment(bench: FsckContext, path: Path, number: int, facts: _JournalFacts, *, last: bool) -> None:
    file = open_plain(path, os.O_RDWR if bench.repair else os.O_RDONLY)
    try:
        segment = read_head(file, path, number)
        if segment.salt is None:
            _report_head(bench, path, file, segment.nbytes, last=last)
            return
        whole, damage = segment.survey(file, payloads=True)
        facts.highest_session = max(facts.highest_session, *segment.sessions, 0)
        _mend(bench, path, file, segment.salt, [one for one in damage if one.offset < whole])
        end = [one for one in damage if one.offset >= whole]
        _cut_end(bench, path, file, end, torn=last and all(one.torn for one in end))
        facts.end = JournalPlace(number, whole, 0)
    finally:
        os.close(file)


def _report_head(bench: FsckContext, path: Path, file: int, size: int, *, last: bool) -> None:
    """Report a segment whose head is damaged, or was never written."""
    if last and not any(os.pread(file, HEAD_NBYTES + 1, HEAD_NBYTES)):
        bench.report(path, "was begun but holds nothing, as a crash leaves it")
    else:
        bench.report(path, "its head is damaged, and nothing in it can be believed", f"all of its {size} bytes")
    bench.put_aside(path)


def _mend(bench: FsckContext, path: Path, file: int, salt: int, damage: list[ScannedFrame]) -> None:
    """Report damaged ranges between whole frames, and write a blank over each."""
    for one in damage:
        bench.report(path, f"{one.nbytes} bytes from {one.offset} on are damaged", _said(one))
        if bench.repair and one.nbytes >= HEADER:
            _keep_bytes(bench, path, file, one.offset, one.nbytes)
            os.pwrite(file, pack_blank(one.nbytes - HEADER, salt, one.offset), one.offset)
            os.fsync(file)


def _cut_end(bench: FsckContext, path: Path, file: int, end: list[ScannedFrame], *, torn: bool) -> None:
    """Report the bytes behind the last whole frame, and cut them off."""
    if not end:
        return
    whole, nbytes = end[0].offset, sum(one.nbytes for one in end)
    if torn:
        bench.report(path, f"{nbytes} bytes from {whole} on are torn, as a crash leaves them", UNSYNCED)
    else:
        bench.report(path, f"{nbytes} bytes from {whole} on are damaged", "; ".join(map(_said, end[:3])))
    if bench.repair:
        _keep_bytes(bench, path, file, whole, nbytes)
        os.ftruncate(file, whole)
        os.fsync(file)


def _keep_bytes(bench: FsckContext, path: Path, file: int, offset: int, nbytes: int) -> None:
    """Put a copy of damaged bytes aside."""
    bench.keep(f"{path.name}-{offset}", os.pread(file, min(nbytes, COPIED_NBYTES), offset))


def _said(one: ScannedFrame) -> str:
    if one.header is None or one.header.kind == BLANK:
        return "the messages in them"
    session, first, count = one.header.numbers
    return f"a {KINDS[one.header.kind]} of session {session}, {counted(count, 'record')} from {first} on"
