"""The compiled programs in a profile: what operations compute, for which line of Python, in which name scopes.

XLA keeps that of every instruction, and a fused one has that of one of its parts. Only the programs that ran are
decoded (`hlo_reader`), instruction by instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import polars as pl
from msgspec import Struct, field

from deepprof.collectors.importers.value_columns import INT64, UINT64, NameTable
from deepprof.collectors.importers.xla.events import Profile
from deepprof.collectors.importers.xla.hlo_reader import HLO_COLUMNS, HloOperation, HloReader
from deepprof.collectors.importers.xla.wire import ProtobufError, fields, read_number
from deepprof.collectors.importers.xla.xplane_schema import XPlaneSchema
from deepprof.collectors.instructions import INSTRUCTIONS
from deepprof.collectors.trace import STACKS
from deepprof.plurals import counted

PROGRAM = re.compile(r"(.*)\((\d{1,20})\)", re.DOTALL)  # jit_train_step(30): its name and its number
PROGRAM_STATS = ("Hlo Proto", "hlo_proto")
STACKS_NBYTES = 256 * 1024**2  # of those of all
INSTRUCTIONS_CHARS = 256 * 1024**2  # of the texts of all instructions
OPERATION = ("program", "hlo_module", "hlo_op")
OPERATION_TYPES = (pl.Int64(), pl.String(), pl.String())

Span = tuple[int, int]


class HloPrograms(Struct):
    """Where the compiled programs are in a file, by name and number; `unread` counts those that could not be read."""

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
    return (number + INT64) % UINT64 - INT64


def _bodies(content: bytearray, message: Span, number: int) -> Iterator[Span]:
    wanted = number << 3 | 2
    return ((body, end) for key, _, body, end in fields(content, *message) if key == wanted)


def _number(content: bytearray, message: Span, number: int) -> int:
    """Return the value of a number's field, 0 if it is absent."""
    bodies = (body for key, _, body, _ in fields(content, *message) if key == number << 3)
    return next((read_number(content, body, message[1])[0] for body in bodies), 0)


class ProgramTables(Struct, frozen=True, eq=False):
    """The operations of compiled programs that ran: the tables `Trace.stacks` and `Trace.instructions`."""

    stacks: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=STACKS))
    instructions: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=INSTRUCTIONS))


def attach_programs(profile: Profile, programs: HloPrograms, *, details: bool) -> ProgramTables:
    """Give the events of operations their `instruction`, with `details` a `stack_id` too; return the tables of both."""
    parts = [batch.select(OPERATION) for batch in map(_completed, profile.batches) if "hlo_op" in batch.columns]
    none = pl.DataFrame(schema=dict(zip(OPERATION, OPERATION_TYPES, strict=True)))
    used = pl.concat([none, *parts]).drop_nulls("hlo_op").unique(maintain_order=True)
    found, tables = find_operations(used, programs, details=details)
    profile.batches = [_attach(batch, found) for batch in profile.batches]
    return tables


def find_operations(used: pl.DataFrame, programs: HloPrograms, *, details: bool) -> tuple[pl.DataFrame, ProgramTables]:
    """Return the operations, rows of `OPERATION`, with their `stack_id` and `instruction`, and the tables of both.

    Without `details` no stack is found.
    """
    texts, rows = NameTable(), list[dict[str, object]]()
    stacks, numbers, nbytes, nchars = list[int | None](), list[int | None](), 0, 0
    for program, operation in _read_operations(used, programs):
        nbytes += len(operation.stack) if operation and details else 0
        nchars += operation.nchars if operation else 0
        stacks.append(texts[operation.stack] if operation and details and nbytes < STACKS_NBYTES else None)
        numbers.append(len(rows) if operation and nchars < INSTRUCTIONS_CHARS else None)
        if operation and numbers[-1] is not None:
            rows.append({"instruction": len(rows)} | program | {name: getattr(operation, name) for name in HLO_COLUMNS})
    columns = {"stack_id": stacks, "instruction": numbers}
    found = used.with_columns(pl.Series(name, values, pl.UInt32) for name, values in columns.items())
    table = pl.DataFrame(rows, schema=INSTRUCTIONS).with_columns(_without_empty())
    return found, ProgramTables(pl.DataFrame({"stack_id": range(len(texts)), "frames": list(texts)}, STACKS), table)


def _without_empty() -> pl.Expr:
    """Return the texts of instructions, null in place of empty ones."""
    text = pl.col(HLO_COLUMNS[1:])
    return pl.when(text.str.len_bytes() > 0).then(text)


def _completed(batch: pl.DataFrame) -> pl.DataFrame:
    """Return a batch with all columns of `OPERATION`."""
    absent = [(name, kind) for name, kind in zip(OPERATION, OPERATION_TYPES, strict=True) if name not in batch.columns]
    return batch.with_columns(pl.lit(None, kind).alias(name) for name, kind in absent)


def _attach(batch: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Return a batch with `stack_id` and `instruction` in place of the columns of `OPERATION`."""
    if "hlo_op" not in batch.columns:
        return batch
    rows = _completed(batch).join(found, on=list(OPERATION), how="left", nulls_equal=True, maintain_order="left")
    return rows.drop(OPERATION)


def _read_operations(
    used: pl.DataFrame, programs: HloPrograms
) -> Iterator[tuple[dict[str, object], HloOperation | None]]:
    """Yield for the operations in use, in order, name and number of their programs, and the operations there."""
    placed = programs.find(used)
    keys, spans = list(programs.spans), list(programs.spans.values())
    known = {
        at: _read_program(programs, spans[at], set(names))
        for at, names in placed.drop_nulls("at").group_by("at", maintain_order=True).agg("hlo_op").iter_rows()
    }
    for at, operation in placed.select("at", "hlo_op").iter_rows():
        name, number = keys[at] if at is not None else ("", None)
        yield {"program": name, "program_id": number}, known[at].get(operation) if at is not None else None


def _read_program(programs: HloPrograms, program: Span, wanted: set[str]) -> dict[str, HloOperation]:
    """Return the requested operations of a program by name; a program that cannot be read is counted."""
    found: dict[str, HloOperation] = {}
    try:
        for module in _bodies(programs.content, program, 1):
            found |= HloReader(programs.content, programs.schema, module).find(wanted)
    except (ProtobufError, programs.schema.error):
        programs.unread += 1
        return {}
    return found


def write_unread(unread: int) -> str:
    """Return the note on compiled programs that could not be read."""
    return f"{counted(unread, 'compiled program')} cannot be read: only names of kernels are known"
