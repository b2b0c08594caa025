"""Importers of trace files: a file is recognised by its content, and one importer turns it into a `Trace`.

There is one importer per format, and one registry of importers. They share these modules: `files`, `archives` and
`frames` open input within size limits, `value_columns` makes columns from lists, `flags` counts dropped and flagged
records, and `assembly` makes the `Trace`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from deepprof.collectors import plugins
from deepprof.collectors.errors import DeepProfError, EndRequest, TraceError
from deepprof.collectors.importers.files import read_head
from deepprof.collectors.importers.generic import explain, read_mapped
from deepprof.collectors.importers.generic.columns import Mapped, parse_columns
from deepprof.collectors.names.demangle import with_readable_names
from deepprof.collectors.trace import LAUNCH_SHAPES, OPERANDS, Trace, empty_table

__all__ = ["BUILTINS", "GROUP", "Importer", "importers", "list_formats", "read"]

GROUP = "deepprof.importers"
BUILTINS = (
    "deepprof.collectors.importers.kineto:Kineto",
    "deepprof.collectors.importers.nsys:Nsys",
    "deepprof.collectors.importers.xla.xplane:XPlane",
    "deepprof.collectors.importers.xla.viewer:XlaJson",
    "deepprof.collectors.importers.nsys.directory:NsysDirectory",
    "deepprof.collectors.importers.nsys.jax_archive:NsysJax",
    "deepprof.collectors.importers.amd.rpd:Rpd",
    "deepprof.collectors.importers.amd.rpd_json:RpdJson",
    "deepprof.collectors.importers.amd.rocpd:Rocpd",
    "deepprof.collectors.importers.amd.rocprof:Rocprof",
    "deepprof.collectors.importers.store:NativeStore",
    "deepprof.collectors.importers.nvprof:Nvprof",
    "deepprof.collectors.importers.nvprof.csv_files:NvprofCsv",
    "deepprof.collectors.importers.torch_snapshot:TorchSnapshot",
    "deepprof.collectors.importers.accesses:AccessRecording",
    "deepprof.collectors.importers.generic:Csv",
    "deepprof.collectors.importers.generic:Parquet",
)
UTF8_NBYTES = 4  # the longest character
READ_JOB = "name a trace file in it, or read all ranks in it with deepprof.read_job"
FORMATS = "name what a profiler wrote; `deepprof --formats` lists what is read"


@runtime_checkable
class Importer(Protocol):
    """A reader of one trace format. `suffixes` are the usual ends of file names; the content decides.

    An importer may have one more method, `covers(path) -> Iterable[Path]`: it returns the files next to `path` that
    reading `path` reads too, or that hold the same records again. In a directory they count as one trace. If it has
    `cheap_details = True`, reading with `details` uses hardly longer than without; with `shapes` it never may.
    """

    name: str
    suffixes: tuple[str, ...]

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `head`, the first 64 KiB of the decompressed content of `path`, is of this format.

        For a directory, as some formats are, `head` is empty. Never raises.
        """
        ...

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the trace in `path`; raises `TraceError`.

        `shapes` adds operands and launch shapes, `details` call stacks and other large tables, where the file has them.
        """
        ...


def importers() -> tuple[Importer, ...]:
    """Return every importer, built-in ones first; each importer that does not load causes one warning."""
    return tuple(each_importer())


def each_importer() -> Iterator[Importer]:
    """Yield every importer; each is loaded when it is requested."""
    yield from filter(None, map(_load_builtin, BUILTINS))
    yield from _load_installed()


@cache
def _load_builtin(value: str) -> Importer | None:
    found = plugins.load_builtin(GROUP, value)
    return found if isinstance(found, Importer) else None


@cache
def _load_installed() -> tuple[Importer, ...]:
    found = plugins.load_installed(GROUP, BUILTINS, FencedImporter)
    return tuple(each for each in found if isinstance(each, Importer))


class FencedImporter:
    """A plug-in's importer: where it raises it accepts nothing, and a file that it accepted cannot be read."""

    def __init__(self, importer: object, plugin: plugins.PlugIn) -> None:
        if not isinstance(importer, Importer):
            raise TypeError("this is no importer; one has name, suffixes, accepts and read")
        self.importer, self.plugin = importer, plugin
        self.name, self.suffixes = str(importer.name), tuple(map(str, importer.suffixes))
        self.cheap_details = has_cheap_details(importer)

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return what the plug-in returns."""
        return self.plugin.attempt(lambda: bool(self.importer.accepts(head, path)), otherwise=False)

    def covers(self, path: Path) -> Iterable[Path]:
        """Return what the plug-in returns."""
        return self.plugin.attempt(lambda: list(covers(self.importer, path)), [])

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the plug-in's trace; raises `TraceError` that names the plug-in if it raises anything else."""
        try:
            trace = self.importer.read(path, details=details, shapes=shapes)
            if not isinstance(trace, Trace):
                raise TypeError(f"read returned {type(trace).__name__}, not a Trace")
        except (DeepProfError, EndRequest):
            raise
        except plugins.FAILURES as error:
            raise TraceError(path, self.plugin.blame(error), plugins.REPORT_IT) from error
        return trace


def has_cheap_details(importer: object) -> bool:
    """Return whether an importer states that details take it hardly longer."""
    return getattr(importer, "cheap_details", False) is True


def read(
    path: str | os.PathLike[str], *, details: bool | None = False, shapes: bool = True, columns: Mapped | None = None
) -> Trace:
    """Return the trace in `path`, in the format that its content shows.

    Operands and launch shapes are read where the file has them, unless `shapes` is False. `details` requests call
    stacks and other large tables too; None requests them in formats where that uses hardly longer. `columns` maps the
    columns of a CSV, Parquet or Arrow table, as `{"start": "Begin", "duration": "Length", "name": "Kernel", "unit":
    "us"}`, as "start=Begin,…", or as the path of a TOML file; the keys are those of `generic.columns.GenericColumns`.
    Raises `TraceError` when the file cannot be read, is damaged, or is in no recognized format, and `UsageError` for an
    invalid mapping."""
    path = Path(path)
    if columns is not None:
        return with_readable_names(read_mapped(path, parse_columns(columns)))
    head = look_at(path)
    importer = recognise(head, path)
    if importer is None and os.path.isdir(path):
        raise TraceError(path, "is a directory", READ_JOB)
    if importer is None and (table := explain(head, path)):
        raise table
    if importer is None:
        raise TraceError(path, f"is no trace that DeepProf knows: it {describe(head)}", FORMATS)
    wanted = has_cheap_details(importer) if details is None else details
    trace = importer.read(path, details=wanted, shapes=shapes)
    return with_readable_names(trace if shapes else _without_shapes(trace))


def _without_shapes(trace: Trace) -> Trace:
    """Return the trace without operands and launch shapes, which some importers always read."""
    return replace(trace, operands=empty_table(OPERANDS), launch_shapes=empty_table(LAUNCH_SHAPES))


def covers(importer: Importer, path: Path) -> Iterable[Path]:
    """Return the files next to `path` that need not be read separately."""
    find: Callable[[Path], Iterable[Path]] = getattr(importer, "covers", lambda _: ())
    return find(path)


def look_at(path: Path) -> bytes:
    """Return the first bytes of the content of `path`, no bytes for a directory."""
    return b"" if os.path.isdir(path) else read_head(path)  # unlike Path.is_dir, isdir leaves errors to `read_head`


def recognise(head: bytes, path: Path) -> Importer | None:
    """Return the first importer that accepts `head`; those behind it are not loaded."""
    return next((importer for importer in each_importer() if importer.accepts(head, path)), None)


def list_formats() -> str:
    """Return a line for every format that is read, with the usual names of its files."""
    width = max(len(known.name) for known in importers())
    return "".join(f"{known.name:{width}}  {' '.join(known.suffixes)}\n" for known in importers())


def _is_text(head: bytes) -> bool:
    """Return whether content that starts with `head` is text; the last character of `head` may be cut off."""
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return len(head) - error.start < UTF8_NBYTES and error.start > 0
    return True


def describe(head: bytes) -> str:
    """Return what content that starts with `head` looks like, as the end of a sentence."""
    looks = (
        (not head, "has zero bytes"),
        (head.startswith(b"SQLite format 3\0"), "looks like an SQLite database of something else"),
        (b'"traceEvents"' in head or b'"ph"' in head, "looks like a Chrome trace without PyTorch's categories"),
        (head.lstrip().startswith((b"{", b"[")), "looks like JSON of something else"),
        (head.startswith(b"PK\x03\x04"), "looks like a zip archive"),
        (b"\0" in head, "looks like a binary file of an unknown kind"),
        (_is_text(head), "looks like text of an unknown kind"),
    )
    return next((words for matches, words in looks if matches), "looks like a binary file of an unknown kind")
