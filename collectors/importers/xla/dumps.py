"""Compiled programs that XLA wrote as text (`XLA_FLAGS=--xla_dump_to=DIR`), for profiles that do not hold them.

A profile names the operations that ran, a program states for which line of Python each was made. The names of programs
are not kept in a trace: an operation whose name represents different places in several programs has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl
from msgspec import Struct, field
from msgspec.structs import replace

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.xla.name_scopes import write_frame, write_scopes
from deepprof.collectors.trace import EVENT_STACKS, STACKS, Trace

PATTERNS = ("*after_optimizations.txt", "*.hlo", "*.hlo.txt")
FILES = 10_000
FILE_NBYTES = 256 * 1024**2
DEEPEST = 1000  # frames, as Python allows
SECTION = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)\s*")
ENTRY = re.compile(r'(\d{1,9}) (?:"((?:[^"\\]|\\.)*)"|\{([^}]*)\})\s*')
OPERATION = re.compile(r'\s*(?:ROOT )?%?([\w.\-]+) = .*metadata=\{((?:"(?:[^"\\]|\\.)*"|[^}"])*)\}')
FIELD = re.compile(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\d{1,9}))')
Numbers = dict[str, int]


class _DumpedProgram(Struct):
    """The tables at the head of a program: texts, places in files, and frames, each by number from 1."""

    texts: dict[str, dict[int, str]] = field(default_factory=dict)
    numbers: dict[str, dict[int, Numbers]] = field(default_factory=dict)

    def add(self, section: str, line: str) -> None:
        """Add a line of a section; others are passed over."""
        found = ENTRY.fullmatch(line)
        if found and found[2] is not None:
            self.texts.setdefault(section, {})[int(found[1])] = found[2]
        elif found:
            given = {key: int(number) for key, _, number in FIELD.findall(found[3]) if number}
            self.numbers.setdefault(section, {})[int(found[1])] = given

    def write_stack(self, number: int) -> str:
        """Return the frames at a place, the innermost first, as in `Trace.stacks`; empty if it is unknown.

        XLA prints the numbers of outer frames one too high: the first frame, which is outermost, names itself.
        """
        frames = self.numbers.get("StackFrames", {})
        shift = frames.get(1, {}).get("parent_frame_id", 0)
        found = list[str]()
        while number in frames and len(found) < DEEPEST:
            place = self.numbers.get("FileLocations", {}).get(frames[number].get("file_location_id", 0), {})
            file = self.texts.get("FileNames", {}).get(place.get("file_name_id", 0), "<unknown>")
            function = self.texts.get("FunctionNames", {}).get(place.get("function_name_id", 0), "<unknown>")
            found.append(write_frame(_clean(file), place.get("line", 0), _clean(function)))
            number = frames[number].get("parent_frame_id", 0) - shift
        return ";".join(found)


def attach_dump(trace: Trace, folder: Path) -> Trace:
    """Return the trace with the stacks of operations that have none, from the programs in a folder.

    Raises `TraceError` if there is no program in it, or one cannot be read.
    """
    known = _join_programs(_list_files(folder))
    first = int(trace.stacks["stack_id"].max() or -1) + 1 if trace.stacks.height else 0  # type: ignore[arg-type]
    texts = list(dict.fromkeys(known.values()))
    stacks = pl.DataFrame({"stack_id": range(first, first + len(texts)), "frames": texts}, schema=STACKS)
    numbers = {text: first + number for number, text in enumerate(texts)}
    of_names = trace.names.replace_strict({name: numbers[text] for name, text in known.items()}, default=None)
    stack_id = pl.lit(of_names.cast(pl.UInt32)).gather(pl.col("name_id"))
    operation = pl.col("category") == "op"
    host = trace.host_events.with_columns(
        stack_id=pl.coalesce("stack_id", pl.when(operation).then(stack_id)).cast(pl.UInt32)
    )
    rows = trace.device_events.select(stack_id=stack_id).with_row_index("event").drop_nulls()
    added = rows.join(trace.event_stacks, on="event", how="anti").cast(dict(EVENT_STACKS))  # type: ignore[arg-type]
    return replace(
        trace,
        host_events=host,
        stacks=pl.concat([trace.stacks, stacks]),
        event_stacks=pl.concat([trace.event_stacks, added]).sort("event"),
    )


def _list_files(folder: Path) -> list[Path]:
    files = sorted({file for pattern in PATTERNS for file in folder.glob(pattern)})
    if not files:
        advice = "give the folder that XLA_FLAGS=--xla_dump_to=DIR named, with *after_optimizations.txt in it"
        raise TraceError(folder, "holds no compiled program", advice)
    return files[:FILES]


def _join_programs(files: Iterable[Path]) -> dict[str, str]:
    """Return the frames of every operation by its name, without those that differ between programs."""
    known, unsure = dict[str, str](), set[str]()
    for file in files:
        for name, text in _read_program(file):
            if known.setdefault(name, text) != text:
                unsure.add(name)
    return {name: text for name, text in known.items() if name not in unsure}


def _read_program(file: Path) -> Iterator[tuple[str, str]]:
    try:
        if file.stat().st_size > FILE_NBYTES:
            raise TraceError(file, f"is larger than {FILE_NBYTES >> 20} MiB", "leave it out of the folder")
        lines = file.read_text(errors="replace").splitlines()
    except OSError as error:
        raise TraceError(file, f"cannot be read: {error.strerror}", "check its permissions") from error
    program, section = _DumpedProgram(), ""
    for line in lines:
        if found := SECTION.fullmatch(line):
            section = found[1]
        elif section and ENTRY.fullmatch(line):
            program.add(section, line)
        elif (made := OPERATION.match(line)) and (text := _write_origin(program, made[2])):
            yield made[1], text


def _write_origin(program: _DumpedProgram, metadata: str) -> str:
    """Return the frames of an operation with this metadata: its name scopes, then the functions around it."""
    given = {key: text or number for key, text, number in FIELD.findall(metadata)}
    scopes = write_scopes(_clean(given.get("op_name", "")))
    source = program.write_stack(int(given.get("stack_frame_id", 0) or 0))
    if not source and given.get("source_file"):
        source = write_frame(_clean(given["source_file"]), int(given.get("source_line", 0) or 0), "<unknown>")
    return ";".join(filter(None, [scopes, source]))


def _clean(text: str) -> str:
    return text.replace(";", ",")
