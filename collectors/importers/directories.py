"""Directories searched for traces: which entries are read, and notes on the others.

Links do not extend the search beyond the directory: a link to a file is that file, as if its name had been given; a
link to a directory is not followed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from pathlib import Path

from msgspec import Struct, field

from deepprof.collectors import importers
from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.archives import is_archive
from deepprof.collectors.importers.files import NSYS_REPORTS
from deepprof.collectors.importers.generic import explain

DEPTH = 4
ENTRIES = 10_000  # of a directory: one with more is a home directory, not one job's traces
NAMED = 3  # files for which a note gives the reason why they are not read
REASON_LENGTH = 90
DAMAGED = "is no manifest of a store: what it says of its ranks is not known; convert them again"
ARCHIVE = "an archive beside traces, named by itself it is read"


class DirectoryListing(Struct, frozen=True):
    """The content of a directory: `traces` in the order of their names, and `notes` on its other files."""

    traces: list[Path]
    notes: tuple[str, ...] = ()


class _DirectoryEntries(Struct):
    """The entries of a directory by kind; `left` maps the others to the reason why they are not read."""

    known: dict[Path, importers.Importer] = field(default_factory=dict)
    archives: list[Path] = field(default_factory=list)
    left: dict[Path, str] = field(default_factory=dict)


def list_traces(path: Path) -> DirectoryListing:
    """Return the traces in the directory `path` and its sub-directories, and notes on what is not read.

    `path` alone if it is a trace. Sub-directories are followed three levels down, which is where TensorBoard keeps
    profiles. Hidden entries are skipped. An archive is read only if it is alone: next to traces it may hold the same
    traces again, and of several archives the user must name those to read, as each may unpack to 8 GiB. Raises
    `TraceError` when the directory cannot be read, has more than 10,000 entries, or contains no trace.
    """
    if importers.recognise(b"", path):
        return DirectoryListing([path])
    entries = list(islice(_walk(path, depth=DEPTH), ENTRIES + 1))
    if len(entries) > ENTRIES:
        raise TraceError(path, f"has more than {ENTRIES} entries", "name the trace files, or a glob of them")
    finds = _look_into(entries, path)
    if not finds.known:
        return DirectoryListing([_only_archive(finds, path)], tuple(_describe_left(finds.left, path)))
    covered = {other for entry, importer in finds.known.items() for other in importers.covers(importer, entry)}
    traces = sorted(finds.known.keys() - covered, key=natural)
    left = dict.fromkeys(finds.archives, ARCHIVE) | finds.left
    others = {entry: why for entry, why in left.items() if entry not in covered}
    return DirectoryListing(traces, (*_describe_reports(finds.known, covered), *_describe_left(others, path)))


def leave_reports(files: Sequence[Path]) -> DirectoryListing:
    """Return the named files without raw reports whose export is named too (as by `run.*`), and a note on them."""
    reports = {file for file in files if file.suffix in NSYS_REPORTS}
    others = [file for file in files if file not in reports] if reports else []
    covered = {report for other in others for report in _exported_from(other)} & reports
    return DirectoryListing([file for file in files if file not in covered], tuple(_describe_reports(files, covered)))


def _exported_from(file: Path) -> Iterable[Path]:
    """Return the files that `file` covers; none if it cannot be read, which reading it later reports."""
    try:
        importer = importers.recognise(importers.look_at(file), file)
    except TraceError:
        return ()
    return importers.covers(importer, file) if importer else ()


def _walk(root: Path, depth: int) -> Iterator[tuple[Path, str]]:
    """Yield the entries of `root` and of its directories, `depth` levels in all; a trace directory is one entry.

    Each entry comes with ""; a sub-directory that cannot be listed comes a second time, with the reason.
    """
    entries = _list_entries(root)
    yield from ((entry, "") for entry in entries)
    for folder in entries if depth > 1 else ():
        try:
            if folder.is_dir() and not folder.is_symlink() and not importers.recognise(b"", folder):
                yield from _walk(folder, depth - 1)
        except (TraceError, OSError) as error:
            yield folder, error.problem if isinstance(error, TraceError) else "cannot be looked at"


def _list_entries(folder: Path) -> list[Path]:
    """Return the entries of one directory that are not hidden; raises `TraceError`."""
    try:
        return [entry for entry in islice(folder.iterdir(), ENTRIES + 1) if not entry.name.startswith(".")]
    except OSError as error:
        raise TraceError(folder, f"cannot be listed: {error.strerror}", "check the path and its permissions") from error


def _look_into(entries: Sequence[tuple[Path, str]], root: Path) -> _DirectoryEntries:
    """Return the entries that `_walk` yields, sorted by kind."""
    finds = _DirectoryEntries()
    for entry, problem in entries:
        try:
            if problem:
                finds.left[entry] = problem
            else:
                _sort(entry, root, finds)
        except TraceError as error:
            finds.left[entry] = error.problem
        except (OSError, RuntimeError):  # RuntimeError: links in a circle
            finds.left[entry] = "cannot be looked at"
    return finds


def _sort(entry: Path, root: Path, finds: _DirectoryEntries) -> None:
    """Add one entry to `finds` by its kind; a directory that is no trace is not added, as its entries are."""
    if entry.is_dir():
        _sort_folder(entry, root, finds)
        return
    if not entry.is_file():
        finds.left[entry] = "no regular file" if entry.exists() else "a link that leads nowhere"
        return
    head = importers.look_at(entry)
    importer = importers.recognise(head, entry)
    if importer:
        finds.known[entry] = importer
    elif is_archive(head):
        finds.archives.append(entry)
    elif why := _explain_left(head, entry):
        finds.left[entry] = why


def _sort_folder(folder: Path, root: Path, finds: _DirectoryEntries) -> None:
    """Add one directory to `finds`: as a trace that is in `root`, or as a link that is not followed."""
    importer = importers.recognise(b"", folder)
    if importer and folder.resolve().is_relative_to(root.resolve()):
        finds.known[folder] = importer
    elif folder.is_symlink():
        finds.left[folder] = "a link to a directory, which is not followed"


def _explain_left(head: bytes, entry: Path) -> str:
    """Return why a file is not read, "" for the manifest of a store."""
    from deepprof.collectors.store import is_store
    from deepprof.collectors.store.manifest import MANIFEST

    if entry.name == MANIFEST:
        return "" if is_store(entry.parent) else DAMAGED
    table = explain(head, entry)
    return table.problem if table else importers.describe(head)


def _only_archive(finds: _DirectoryEntries, root: Path) -> Path:
    """Return the only archive of a directory without traces; raise `TraceError` if there is none or more than one."""
    if not finds.archives:
        problem = "; ".join(["is a directory that holds no trace", *_describe_left(finds.left, root)])
        raise TraceError(root, problem, "name the directory that the traces lie in")
    if len(finds.archives) > 1:
        names = [shlex.quote(str(path)) for path in sorted(finds.archives, key=natural)]
        command = " ".join(["deepprof diagnose", *names[:NAMED], *(["…"] if len(names) > NAMED else [])])
        raise TraceError(root, f"holds no trace but {len(names)} archives", f"name those to read: `{command}`")
    return finds.archives[0]


def _describe_reports(known: Iterable[Path], covered: Set[Path]) -> Iterator[str]:
    """Yield a note on the raw reports that are not read because their export is read."""
    reports = [path for path in sorted(known, key=natural) if path in covered and path.suffix in NSYS_REPORTS]
    if reports:
        newer = " (newer than its export: export it again)" if _is_newer(reports[0]) else ""
        more = f" and {len(reports) - 1} more" if len(reports) > 1 else ""
        yield f"the export of {reports[0].name}{newer}{more} was read, the report beside it was left"


def _is_newer(report: Path) -> bool:
    """Return whether a report was written after the database next to it."""
    try:
        return report.stat().st_mtime > report.with_suffix(".sqlite").stat().st_mtime
    except OSError:
        return False


def _describe_left(left: Mapping[Path, str], root: Path) -> Iterator[str]:
    """Yield a note on the files that are not read: the first few with reasons, files with a trace's suffix first."""
    suffixes = tuple(suffix for importer in importers.importers() for suffix in importer.suffixes)
    paths = sorted(left, key=lambda path: (left[path] != DAMAGED, not path.name.endswith(suffixes), natural(path)))
    if paths:
        told = ", ".join(f"{path.relative_to(root)} ({_shorten(left[path])})" for path in paths[:NAMED])
        more = f", and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
        yield f"not read in {root}: {told}{more}"


def _shorten(reason: str) -> str:
    """Return `reason`, cut to the length allowed in a note."""
    return reason if len(reason) <= REASON_LENGTH else reason[:REASON_LENGTH].rsplit(" ", 1)[0] + " …"


def natural(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts paths with the numbers in them in numeric order.

    >>> [path.name for path in sorted(map(Path, ["t10", "t9", "s"]), key=natural)]
    ['s', 't9', 't10']
    """
    pieces = re.split(r"([0-9]+)", str(path))
    return [(int(piece), "") if place % 2 else (0, piece) for place, piece in enumerate(pieces)]
