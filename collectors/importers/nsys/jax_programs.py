"""The compiled programs in an nsys-jax archive: XLA's dumps of modules, `module_0016.jit_train_step.….hlo.pb.xz`."""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import polars as pl

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import open_file
from deepprof.collectors.importers.xla.programs import (
    OPERATION,
    HloPrograms,
    ProgramTables,
    find_operations,
    write_unread,
)
from deepprof.collectors.importers.xla.xplane_schema import load_schema

PROGRAMS = re.compile(r"(?:.*/)?module_(\d{1,9})\.([^/]*?)\.[^/]*after_optimizations\.hlo\.pb(?:\.xz)?")
FILES = 10_000
FILE_NBYTES = 256 * 1024**2  # of a program, unpacked
TOTAL_NBYTES = 1024**3  # of all programs, unpacked
DECODER_NBYTES = 128 * 1024**2


def attach_operations(
    path: Path, events: pl.DataFrame, files: Mapping[str, Callable[[], Path]], *, details: bool
) -> tuple[pl.DataFrame, ProgramTables, list[str]]:
    """Return events (`hlo_op`, `hlo_module`, `program`) with `stack_id` and `instruction`, their tables, and notes.

    `files` are those of the archive `path` by their names in it. Stacks are found with `details` only.
    """
    used = events.select(OPERATION).drop_nulls("hlo_op").unique(maintain_order=True)
    found, tables, notes = used.with_columns(stack_id=None, instruction=None), ProgramTables(), list[str]()
    wanted = {*used["program"].drop_nulls(), *used.filter(pl.col("program").is_null())["hlo_module"].drop_nulls()}
    names = [name for name in sorted(files) if (known := PROGRAMS.fullmatch(name)) and _names_any(known, wanted)]
    try:
        schema = load_schema(path) if names else None
    except TraceError as error:
        notes.append(f"XLA's operations are classified by their names only: {error.advice} to read its programs")
    else:
        if schema:
            programs = HloPrograms(bytearray(), schema)
            _unpack(programs, names[:FILES], files)
            found, tables = find_operations(used, programs, details=details)
            notes += [write_unread(programs.unread)] if programs.unread else []
    joined = events.join(found, on=list(OPERATION), how="left", nulls_equal=True, maintain_order="left")
    return joined.drop(OPERATION), tables, notes


def _names_any(known: re.Match[str], wanted: Collection[int | str]) -> bool:
    """Return whether a file's name has the number or the name of a program among `wanted`."""
    return int(known[1]) in wanted or known[2] in wanted


def _unpack(programs: HloPrograms, names: Iterable[str], files: Mapping[str, Callable[[], Path]]) -> None:
    """Add the programs in these files; those that are cut off, or too large, are counted."""
    for name in names:
        known, start = PROGRAMS.fullmatch(name), len(programs.content)
        content = _read_program(files[name](), min(FILE_NBYTES, TOTAL_NBYTES - start))
        if content is None or known is None:
            programs.unread += 1
        else:
            programs.content += content
            programs.spans[known[2], int(known[1])] = (start, start + len(content))


def _read_program(path: Path, most: int) -> bytes | None:
    """Return the content of a file, unpacked if it is packed, of at most `most` bytes; None where there is no such."""
    packed = path.name.endswith(".xz")
    with open_file(path) as file:
        content = file.read(most + 1)
    try:
        decoder = lzma.LZMADecompressor(memlimit=DECODER_NBYTES)
        plain = decoder.decompress(content, most + 1) if packed else content
    except lzma.LZMAError:
        return None
    return plain if len(plain) <= most and (decoder.eof or not packed) else None
