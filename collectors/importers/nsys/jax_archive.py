"""nsys-jax: the zip that NVIDIA's JAX-Toolbox makes from a capture, or the directory that it unpacks to.

It contains no kernels: nsys' recipe has projected the NVTX ranges of XLA onto the GPU, so that work is known only as
thunks (one HLO operation each) of modules. Innermost thunks become the device events, modules the annotations. The
compiled programs in it state what each operation computes.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.archives import TOTAL_NBYTES, is_zip, open_archive
from deepprof.collectors.importers.assembly import Records, assemble
from deepprof.collectors.importers.files import open_file
from deepprof.collectors.importers.flags import Tally
from deepprof.collectors.importers.frames import FrameFile
from deepprof.collectors.importers.nsys import jax_ranges as nsys_jax_ranges
from deepprof.collectors.importers.nsys.jax_programs import PROGRAMS, attach_operations
from deepprof.collectors.trace import DEVICES, Trace

FOLDER = "nvtx_gpu_proj_trace"
# nsys-jax-combine makes a directory of the same name, with one file of every report.
RANGES = re.compile(rf"(?:.*/)?{FOLDER}/trace\.parquet(?:/[^/]+)?")
THREADS = re.compile(r"(?:.*/)?thread-metadata\.parquet(?:/[^/]+)?")
TARGETS = re.compile(r"(?:.*/)?[^/]+\.gpu_target_config\.pbtxt(?:\.xz)?")
TARGET_NBYTES = 64 * 1024
ENTRIES = 100_000
Files = Mapping[str, Callable[[], Path]]  # by name inside; each function writes or finds the file and returns its path


class NsysJax:
    """Importer of nsys-jax archives."""

    name = "nsys-jax"
    suffixes = (".zip",)
    cheap_details = True

    def accepts(self, head: bytes, path: Path) -> bool:
        """Return whether `path` is a zip, or a directory, with the projected ranges of a capture; never raises."""
        try:
            if not is_zip(head):
                return (path / FOLDER / "trace.parquet").exists()
            with open_archive(path) as archive:
                return any(RANGES.fullmatch(member.name) for member in archive.members)
        except (TraceError, OSError):
            return False

    def read(self, path: Path, *, details: bool = False, shapes: bool = True) -> Trace:
        """Return the ranges in `path` with clock "session", devices numbered as in the job.

        With `details`, also for which lines of Python the operations were made. Each table uses at most `LIMIT_NBYTES`
        of memory, and as much disk if it is in an archive. Raises `TraceError` when `path` cannot be read, is damaged,
        or contains no ranges.
        """
        with _open_bundle(path) as files:
            tables = [files[name]() for name in sorted(files) if RANGES.fullmatch(name)]
            if not tables:
                problem = "holds no ranges projected onto the GPU"
                raise TraceError(path, problem, "make it again with `nsys-jax`")
            threads = [files[name]() for name in sorted(files) if THREADS.fullmatch(name)]
            try:
                return _make_trace(path, tables, threads, files, details=details)
            except TraceError as error:
                raise TraceError(path, f"{Path(error.path).name} {error.problem}", error.advice) from error


@contextmanager
def _open_bundle(path: Path) -> Iterator[Files]:
    """Yield the files of the archive or the directory `path` that are read."""
    if path.is_dir():
        yield {file.relative_to(path).as_posix(): partial(Path, file) for file in _list_files(path)}
        return
    with open_archive(path) as archive:
        wanted = [member for member in archive.members if _is_wanted(member.name)]
        yield {member.name: partial(archive.extract, member) for member in wanted}


def _list_files(path: Path) -> list[Path]:
    """Return the files below `path` that are read; raises `TraceError` when one is a link that leads out of it."""
    try:
        places = (path, path / FOLDER, path / FOLDER / "trace.parquet", path / "thread-metadata.parquet", path / "dump")
        entries = [entry for place in places if place.is_dir() for entry in place.iterdir()][:ENTRIES]
        files = [entry for entry in entries if _is_wanted(entry.relative_to(path).as_posix()) and entry.is_file()]
        strays = [file for file in files if not file.resolve().is_relative_to(path.resolve())]
    except (OSError, RuntimeError) as error:
        raise TraceError(path, f"cannot be listed: {error}", "check the path and its permissions") from error
    if strays:
        raise TraceError(path, f"holds a link that leads out of it ({strays[0].name})", "copy the file there")
    return files


def _is_wanted(name: str) -> bool:
    """Return whether the file called `name` is read."""
    return any(pattern.fullmatch(name) for pattern in (RANGES, THREADS, TARGETS, PROGRAMS))


def _make_trace(path: Path, tables: list[Path], threads: list[Path], files: Files, *, details: bool) -> Trace:
    """Return the trace of the ranges in `tables`; the tables in `threads` contain the device of every thread."""
    tally = Tally()
    parts = [nsys_jax_ranges.read_ranges(FrameFile(table)) for table in tables]
    read = sum(part.height for part in parts)
    ranges = pl.concat([part.with_columns(report=pl.lit(at)) for at, part in enumerate(parts)])
    known = [nsys_jax_ranges.read_launchers(FrameFile(table)) for table in threads]
    launchers = pl.concat([part.with_columns(report=pl.lit(at)) for at, part in enumerate(known)]) if known else None
    outside = int(ranges.filter(pl.col("name").is_null())["operations"].sum())
    ranges = tally.keep(ranges, pl.col("name").is_not_null(), "outside-ranges")
    ranges = nsys_jax_ranges.place(ranges, launchers)
    device, annotations = nsys_jax_ranges.split(ranges)
    device, programs, more = attach_operations(path, device, files, details=details)
    records = Records(device=device, annotations=annotations, tally=tally)
    numbers = sorted(set(device["device"].to_list())) if device.height else []
    return assemble(
        path,
        "nsys-jax",
        records,
        read=read,
        clock="session",
        devices=_describe_devices(numbers, _read_target(files)),
        notes=(*_notes(device, outside, placed=launchers is not None), *more),
        stacks=programs.stacks,
        instructions=programs.instructions,
    )


def _notes(device: pl.DataFrame, outside: int, *, placed: bool) -> Iterator[str]:
    """Yield notes for the reader of a report; `outside` counts the operations in no range."""
    yield (
        "nsys-jax keeps no kernels: device events are XLA thunks projected onto the GPU, under the name of their HLO "
        "operation; a stream stands for the thread that launched them, and collectives and copies are not told apart"
    )
    if device.is_empty():
        yield "the capture has no ranges of XLA on a GPU"
    if outside:
        yield f"{outside} GPU operations ran outside of every range and are in no table"
    if not placed and device.height:
        yield "the archive does not say which thread drove which GPU; they are numbered in the order of their threads"


def _read_target(files: Files) -> str:
    """Return what XLA wrote about the GPU that it compiled for, "" if there is nothing readable."""
    name = next((name for name in sorted(files) if TARGETS.fullmatch(name)), None)
    if name is None:
        return ""
    with open_file(files[name]()) as file:
        content = file.read(TARGET_NBYTES)
    try:
        decoder = lzma.LZMADecompressor(memlimit=TARGET_NBYTES * 1024)
        plain = decoder.decompress(content, TARGET_NBYTES) if name.endswith(".xz") else content
    except lzma.LZMAError:
        return ""
    return plain.decode("utf-8", "replace")


def _describe_devices(numbers: list[int], target: str) -> pl.DataFrame:
    """Return DEVICES for the devices `numbers`, all of the kind that `target` describes."""
    memory, cores = (_find_integer(target, key) for key in ("device_memory_size", "core_count"))
    found = re.search(r'device_description_str: "([^"\n]{1,200})"', target)
    rows = [
        {"device": number, "name": found[1], "memory_nbytes": memory, "multiprocessors": cores, "properties": "{}"}
        for number in numbers
        if found and 0 <= number < 2**16
    ]
    return pl.DataFrame(rows, schema=DEVICES)


def _find_integer(text: str, key: str) -> int | None:
    """Return the number after `key` in the text form of a protobuf."""
    found = re.search(rf"\b{key}: (\d{{1,15}})\b", text)
    value = int(found[1]) if found else 0
    return value if 0 < value < (2**32 if key == "core_count" else TOTAL_NBYTES * 1024) else None
