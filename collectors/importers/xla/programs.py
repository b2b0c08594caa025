"""The compiled programs in a profile: for which line of Python, and in which name scopes, each operation was made.

XLA keeps that of each instruction, and a fused one has that of one of its parts. Only the programs that ran are
decoded, instruction by instruction.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from deepprof.collectors.importers.value_columns import INT64, UINT64, NameTable
from deepprof.collectors.importers.xla.events import Profile
from deepprof.collectors.importers.xla.wire import ProtobufError, cut, fields, read_number
from deepprof.collectors.importers.xla.xplane_schema import XPlaneSchema
from deepprof.collectors.trace import STACKS

PROGRAM = re.compile(r"(.*)\((\d{1,20})\)", re.DOTALL)  # jit_train_step(30): its name and its number
PROGRAM_STATS = ("Hlo Proto", "hlo_proto")
INSTRUCTIONS = 4_000_000  # of one program, each read twice at most
HEAD_NBYTES = 16 * 1024**2  # of a program without its computations
INSTRUCTION_NBYTES = 64 * 1024**2  # constants are part of it
CALLERS = 1000  # of one instruction, as Python allows
STACK_NBYTES = 64 * 1024  # of one instruction's frames
STACKS_NBYTES = 256 * 1024**2  # of those of all
UNKNOWN = "<unknown>"
OPERATION = ("program", "hlo_module", "hlo_op")

Span = tuple[int, int]


@dataclass(slots=True)
class HloPrograms:
    """Where the compiled programs lie in a file, by name and number; `unread` counts those that could not be read."""

    content: bytearray
    schema: XPlaneSchema
    spans: dict[tuple[str, int | None], Span] = field(default_factory=dict)
    unread: int = 0

    def find(self, used: pl.DataFrame) -> pl.DataFrame:
        """Return operations with the `at` of their program in `spans`: the one of that number, else of that name.

        Null if there is none, or several of the name.
        """
        schema = {"hlo_module": pl.String(), "program": pl.Int64()}
        known = pl.DataFrame(list(self.spans), schema, orient="row").with_row_index("at")
        by_number = known.drop_nulls("program").unique("program", keep="none").select("program", exact="at")
        by_name = known.unique("hlo_module", keep="none").select("hlo_module", named="at")
        rows = used.join(by_number, on="program", how="left", maintain_order="left")
        rows = rows.join(by_name, on="hlo_module", how="left", maintain_order="left")
        return rows.with_columns(at=pl.coalesce("exact", "named")).drop("exact", "named")


def list_programs(programs: HloPrograms, plane: Span, kinds: Iterable[int]) -> None:
    """Add the programs in a plane; `kinds` are the numbers of the stats that hold programs."""
    content, wanted = programs.content, set(kinds)
    for entry in _bodies(content, plane, 4):
        for metadata in _bodies(content, entry, 2):
            name = next((bytes(content[a:b]).decode(errors="replace") for a, b in _bodies(content, metadata, 2)), "")
            found = PROGRAM.fullmatch(name)
            key = (found[1], _signed(int(found[2]))) if found else (name, None)
            for stat in _bodies(content, metadata, 5):
                if _number(content, stat, 1) in wanted:
                    programs.spans[key] = next(_bodies(content, stat, 6), (0, 0))


def _signed(number: int) -> int:
    """Return a number of 64 bits as events have it."""
    return (number + INT64) % UINT64 - INT64


def _bodies(content: bytearray, message: Span, number: int) -> Iterator[Span]:
    """Yield the values of a field that has a length."""
    wanted = number << 3 | 2
    return ((body, end) for key, _, body, end in fields(content, *message) if key == wanted)


def _number(content: bytearray, message: Span, number: int) -> int:
    """Return the value of a number's field, 0 if it is absent."""
    bodies = (body for key, _, body, _ in fields(content, *message) if key == number << 3)
    return next((read_number(content, body, message[1])[0] for body in bodies), 0)


def attach_stacks(profile: Profile, programs: HloPrograms) -> pl.DataFrame:
    """Give the events of operations their `stack_id`, and return the table of stacks."""
    parts = [batch.select(OPERATION) for batch in map(_completed, profile.batches) if "hlo_op" in batch.columns]
    if not parts or not programs.spans:
        return pl.DataFrame(schema=STACKS)
    used = pl.concat(parts).drop_nulls("hlo_op").unique(maintain_order=True)
    texts = NameTable()
    found = used.with_columns(stack_id=pl.Series(_find_stacks(used, programs, texts), dtype=pl.UInt32))
    profile.batches = [_attach(batch, found) for batch in profile.batches]
    return pl.DataFrame({"stack_id": range(len(texts)), "frames": list(texts)}, schema=STACKS)


def _completed(batch: pl.DataFrame) -> pl.DataFrame:
    """Return a batch with all columns of `OPERATION`."""
    kinds = (pl.Int64(), pl.String(), pl.String())
    absent = [(name, kind) for name, kind in zip(OPERATION, kinds, strict=True) if name not in batch.columns]
    return batch.with_columns(pl.lit(None, kind).alias(name) for name, kind in absent)


def _attach(batch: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Return a batch with `stack_id` in place of the columns of `OPERATION`."""
    if "hlo_op" not in batch.columns:
        return batch
    rows = _completed(batch).join(found, on=list(OPERATION), how="left", nulls_equal=True, maintain_order="left")
    return rows.drop(OPERATION)


def _find_stacks(used: pl.DataFrame, programs: HloPrograms, texts: NameTable) -> list[int | None]:
    """Return the number of the stack of each operation in use, in `texts`; None for none."""
    placed = programs.find(used)
    spans = list(programs.spans.values())
    known = {
        at: _read_program(programs, spans[at], set(names))
        for at, names in placed.drop_nulls("at").group_by("at").agg("hlo_op").iter_rows()
    }
    found, nbytes = list[int | None](), 0
    for at, operation in placed.select("at", "hlo_op").iter_rows():
        text = known[at].get(operation) if at is not None else None
        nbytes += len(text or "")
        found.append(texts[text] if text and nbytes < STACKS_NBYTES else None)
    return found


def _read_program(programs: HloPrograms, program: Span, wanted: set[str]) -> dict[str, str]:
    """Return the frames of the wanted operations of a program by name; one that cannot be read is counted."""
    try:
        found: dict[str, str] = {}
        for module in _bodies(programs.content, program, 1):
            found |= _HloReader(programs.content, programs.schema, module).find(wanted)
    except (ProtobufError, programs.schema.error):
        programs.unread += 1
        return {}
    return found


@dataclass(frozen=True, slots=True)
class _HloOrigin:
    """What an instruction was made for: its name scopes, and its frames of Python as in `Trace.stacks`."""

    scopes: str
    source: str


class _HloReader:
    """Decodes one program."""

    def __init__(self, content: bytearray, schema: XPlaneSchema, module: Span) -> None:
        self.content, self.schema = content, schema
        parts = cut(content, *module, number=3)
        if len(parts.rest) > HEAD_NBYTES:
            raise ProtobufError(f"a program with more than {HEAD_NBYTES} bytes beside its computations")
        head = schema.module.FromString(parts.rest)
        self.name, self.index, self.computations = _clean(head.name), head.stack_frame_index, parts.bodies
        self.frames: dict[int, str] = {}
        self.count = 0

    def find(self, wanted: set[str]) -> dict[str, str]:
        """Return the frames of the wanted instructions by name."""
        plain, callers = dict[str, _HloOrigin](), list[tuple[str, _HloOrigin, list[int]]]()
        for computation in self.computations:
            for instruction in self.instructions(cut(self.content, *computation, number=2).bodies):
                if (name := _clean(instruction.name)) in wanted:
                    plain[name] = self.origin(instruction.metadata)
                    if instruction.called_computation_ids and not plain[name].source:
                        callers.append((name, plain[name], list(instruction.called_computation_ids)))
        called = self.parts({number for *_, numbers in callers for number in numbers})
        for name, own, numbers in callers:
            part = next((called[number] for number in numbers if number in called), own)
            plain[name] = _HloOrigin(own.scopes or part.scopes, part.source)
        return {name: self.write(origin) for name, origin in plain.items()}

    def instructions(self, bodies: Sequence[Span]) -> Iterator[Any]:
        """Yield the instructions; raises `ProtobufError` for more, or larger ones, than a program has."""
        self.count += len(bodies)
        if self.count > INSTRUCTIONS or any(end - start > INSTRUCTION_NBYTES for start, end in bodies):
            raise ProtobufError(
                f"more than {INSTRUCTIONS} instructions, or more than {INSTRUCTION_NBYTES} bytes of one"
            )
        return (self.schema.instruction.FromString(bytes(self.content[start:end])) for start, end in bodies)

    def parts(self, wanted: set[int]) -> dict[int, _HloOrigin]:
        """Return for each wanted computation what its root was made for, else what most of it was made for."""
        found = dict[int, _HloOrigin]()
        for computation in self.computations if wanted else ():
            parts = cut(self.content, *computation, number=2)
            head = self.schema.computation.FromString(parts.rest)
            if head.id in wanted:
                origins = [(one.id, self.origin(one.metadata)) for one in self.instructions(parts.bodies)]
                counts = Counter(origin for _, origin in origins if origin.source)
                root = next((origin for number, origin in origins if number == head.root_id and origin.source), None)
                found[head.id] = root or max(counts, key=counts.__getitem__, default=_HloOrigin("", ""))
        return found

    def origin(self, metadata: Any) -> _HloOrigin:
        """Return what an instruction with this metadata was made for."""
        scopes = write_scopes(_clean(metadata.op_name))
        source = self.stack(metadata.stack_frame_id)
        if not source and metadata.source_file:
            source = write_frame(_clean(metadata.source_file), metadata.source_line, UNKNOWN)
        return _HloOrigin(scopes[:STACK_NBYTES], source)

    def stack(self, number: int) -> str:
        """Return the frames of Python at a place of the program, the innermost first; empty if it is not known."""
        if number not in self.frames:
            found, nbytes, at = list[str](), 0, number
            while 0 < at <= len(self.index.stack_frames) and len(found) < CALLERS and nbytes < STACK_NBYTES:
                frame = self.index.stack_frames[at - 1]
                found.append(self.frame(frame.file_location_id))
                nbytes, at = nbytes + len(found[-1]), frame.parent_frame_id
            self.frames[number] = ";".join(filter(None, found))
        return self.frames[number]

    def frame(self, location: int) -> str:
        """Return one frame of Python, empty if its place is not known."""
        if not 0 < location <= len(self.index.file_locations):
            return ""
        place = self.index.file_locations[location - 1]
        file, function = (
            _clean(texts[number - 1]) if 0 < number <= len(texts) else UNKNOWN
            for texts, number in (
                (self.index.file_names, place.file_name_id),
                (self.index.function_names, place.function_name_id),
            )
        )
        return write_frame(file, place.line, function)

    def write(self, origin: _HloOrigin) -> str:
        """Return frames as in `Trace.stacks`; an operation without a scope is in that of its program."""
        return ";".join(filter(None, [origin.scopes or f"{self.name or UNKNOWN}/", origin.source]))


def write_frame(file: str, line: int, function: str) -> str:
    """Return a frame of Python as in `Trace.stacks`."""
    return f"{file}({max(line, 0)}): {function}"


def _clean(name: bytes) -> str:
    """Return a name as text that can be part of a stack."""
    return name[:STACK_NBYTES].decode(errors="replace").replace(";", ",")


def write_scopes(operation: str) -> str:
    """Return the name scopes in the name of an operation as in `Trace.stacks`."""
    return ";".join(f"{scope}/" for scope in reversed(split_scopes(operation)))


def split_scopes(name: str) -> list[str]:
    """Return the name scopes in the name of an operation, the outermost first: parts of it between slashes.

    Slashes within brackets separate nothing.
    """
    found, depth, start = list[str](), 0, 0
    for at, letter in enumerate(name):
        depth = max(0, depth + (letter in "([{") - (letter in ")]}"))
        if letter == "/" and not depth:
            found.append(name[start:at])
            start = at + 1
    return [scope for scope in [*found, name[start:]] if scope]
