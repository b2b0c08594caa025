"""A compiled program of XLA, decoded instruction by instruction: what instructions compute, and for which operation.

A fusion calls computations; the opcodes of their instructions are its parts. A program may be damaged, or made to
exhaust memory: sizes, counts and the depth of calls are limited.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from deepprof.collectors.importers.xla.name_scopes import STACK_NBYTES, clean, write_frame, write_scopes
from deepprof.collectors.importers.xla.wire import ProtobufError, cut
from deepprof.collectors.importers.xla.xplane_schema import XPlaneSchema

INSTRUCTIONS = 4_000_000  # of one program; those of fused computations are read twice
HEAD_NBYTES = 16 * 1024**2  # of a program without its computations
INSTRUCTION_NBYTES = 64 * 1024**2  # constants are part of it
WHOLE_NBYTES = 1024**2  # of a computation that is decoded at once: protobuf takes up to 50 times as much
DECLARED_NBYTES = 4 * 1024**2  # of an instruction without its constant: protobuf takes up to 50 times as much
LITERAL = 8  # the field of a constant
CALLERS = 1000  # of one instruction, as Python allows
TEXT_CHARS = 1000  # of a name, of an opcode's target or of a shape in `Trace.instructions`
OPCODE_CHARS = 40
OPCODES = 32  # different ones in a fused computation
OPERANDS = 8  # of an instruction, whose shapes are kept
RANK = 16  # dimensions of a shape that are written
FUSED = 16  # computations within one instruction
UNKNOWN = "<unknown>"
TUPLE = 13
ELEMENT_TYPES: Mapping[int, str] = {
    **{1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16", 11: "f32"},
    **{12: "f64", 15: "c64", 16: "bf16", 18: "c128", 19: "f8e5m2", 20: "f8e4m3fn", 21: "s4", 22: "u4"},
    **{23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2", 28: "f8e4m3", 29: "f8e3m4"},
    **{32: "f4e2m1fn", 33: "f8e8m0fnu"},
}
PRECISIONS = ("DEFAULT", "HIGH", "HIGHEST")
ALGORITHMS = (
    *("", "ALG_DOT_ANY_F8_ANY_F8_F32", "ALG_DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM", "ALG_DOT_F16_F16_F16"),
    *("ALG_DOT_F16_F16_F32", "ALG_DOT_BF16_BF16_BF16", "ALG_DOT_BF16_BF16_F32", "ALG_DOT_BF16_BF16_F32_X3"),
    *("ALG_DOT_BF16_BF16_F32_X6", "ALG_DOT_TF32_TF32_F32", "ALG_DOT_TF32_TF32_F32_X3", "ALG_DOT_F32_F32_F32"),
    *("ALG_DOT_F64_F64_F64", "ALG_DOT_BF16_BF16_F32_X9"),
)
CONTAINERS = frozenset({"fusion", "call", "async-start"})  # what they call is what they do
PRODUCTS = frozenset({"dot", "convolution", "ragged-dot", "scaled-dot"})
# Opcodes that compute nothing: they name values, or see the same bytes in another shape.
SILENT = frozenset({"", "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", *CONTAINERS})
# How exactly a library multiplies, and how a fusion is compiled, in a backend's configuration.
CONFIGURED_PRECISION = re.compile(rb'"operand_precision":\s*\[([^\]]{0,200})\]')
CONFIGURED_ALGORITHM = re.compile(rb'"algorithm":\s*"(ALG_DOT_\w{1,40})"')
CONFIGURED_KIND = re.compile(rb'"kind":\s*"(__\w{1,60})"')
CONFIG_NBYTES = 64 * 1024

Span = tuple[int, int]
_Place = tuple[bytes, int, bytes, int]  # name of the operation, number of its frame, file, line
NO_PLACE: _Place = (b"", 0, b"", 0)


class _HloOrigin(Struct, frozen=True):
    """What an instruction was made for: the name with its scopes, and its frames of Python as in `Trace.stacks`."""

    op_name: str
    source: str


NOWHERE = _HloOrigin("", "")


class HloOperation(Struct, frozen=True):
    """One instruction, as in `Trace.instructions`; `stack` has its frames as in `Trace.stacks`."""

    name: str
    opcode: str
    target: str
    parts: str
    shape: str
    operands: str
    factors: str
    precision: str
    op_name: str
    stack: str

    @property
    def nchars(self) -> int:
        """How long its texts are, without the stack."""
        return sum(len(getattr(self, name)) for name in HLO_COLUMNS)


HLO_COLUMNS = ("name", "opcode", "target", "parts", "shape", "operands", "factors", "precision", "op_name")


class _HloInstruction(Struct):
    """What is kept of a decoded instruction; `operands` are numbers of others in its computation."""

    opcode: str
    shape: str
    origin: _HloOrigin
    operands: list[int]
    called: list[int]
    target: str
    precision: str
    shapes: list[str] = field(default_factory=list)  # of the operands


class _HloBody(Struct):
    """A fused computation: what it was made for, the counts of its opcodes, its product, and what it calls.

    `scalars` counts opcodes that return single numbers, as those that compute an index do.
    """

    origin: _HloOrigin = NOWHERE
    opcodes: Counter[str] = field(default_factory=Counter)
    scalars: Counter[str] = field(default_factory=Counter)
    factors: str = ""
    precision: str = ""
    called: list[int] = field(default_factory=list)

    def count(self, opcode: str, shape: Any) -> None:
        """Count an opcode that returns such a shape."""
        single = not shape.dimensions and shape.element_type != TUPLE
        counts = self.scalars if single else self.opcodes
        if opcode in counts or len(counts) < OPCODES:
            counts[opcode] += 1


class _HloComputation(Struct, frozen=True):
    """A computation: its number and its root's, and its instructions, either decoded or as places in the content."""

    number: int
    root: int
    decoded: Sequence[Any]
    bodies: list[Span]


class HloReader:
    """Decodes one program. Raises `ProtobufError`, or protobuf's own error, where it is damaged or too large."""

    def __init__(self, content: bytearray, schema: XPlaneSchema, module: Span) -> None:
        self.content, self.schema = content, schema
        parts = cut(content, *module, number=3)
        if len(parts.rest) > HEAD_NBYTES:
            raise ProtobufError(f"a program with more than {HEAD_NBYTES} bytes beside its computations")
        head = schema.module.FromString(parts.rest)
        self.name, self.number, self.index = clean(head.name), head.id, head.stack_frame_index
        self.computations = parts.bodies
        self.frames: dict[int, str] = {}
        self.places: dict[int, Span] = {}  # of computations, by their numbers
        self.bodies: dict[int, _HloBody] = {}
        self.count = 0
        self.known: dict[int, str] = {}  # shapes of operands, by their numbers

    def find(self, wanted: set[str]) -> dict[str, HloOperation]:
        """Return the requested instructions by name."""
        found, raw = dict[str, _HloInstruction](), {name.encode() for name in wanted}
        for span in self.computations:
            computation = self.decode(span)
            self.places[computation.number] = span
            found |= self.select(computation, raw)
        return {name: self.describe(name, instruction) for name, instruction in found.items()}

    def decode(self, span: Span) -> _HloComputation:
        """Return a computation; a large one has its instructions still to be decoded, one by one."""
        start, end = span
        if end - start <= WHOLE_NBYTES:
            whole = self.schema.computation.FromString(bytes(self.content[start:end]))
            bodies, decoded = [], whole.instructions
        else:
            parts = cut(self.content, start, end, number=2)
            whole, bodies, decoded = self.schema.computation.FromString(parts.rest), parts.bodies, ()
        self.count += len(bodies) + len(decoded)
        if self.count > INSTRUCTIONS or any(after - begin > INSTRUCTION_NBYTES for begin, after in bodies):
            raise ProtobufError(
                f"more than {INSTRUCTIONS} instructions, or more than {INSTRUCTION_NBYTES} bytes of one"
            )
        return _HloComputation(whole.id, whole.root_id, decoded, bodies)

    def list_instructions(self, computation: _HloComputation) -> Iterator[Any]:
        """Return the decoded instructions of a computation."""
        decode = self.schema.instruction.FromString
        return iter(computation.decoded or (decode(self.declared(*span)) for span in computation.bodies))

    def select(self, computation: _HloComputation, wanted: set[bytes]) -> dict[str, _HloInstruction]:
        """Return the requested instructions of a computation by name, with the shapes of their operands."""
        found, places = dict[str, _HloInstruction](), dict[int, int]()
        for at, instruction in enumerate(self.list_instructions(computation)):
            places[instruction.id] = at
            if (name := instruction.name) in wanted:
                found[name.decode()] = self.keep(instruction)
        for kept in found.values():
            kept.shapes = self.shapes(kept.operands, places, computation)
        return found

    def shapes(self, operands: Iterable[int], places: Mapping[int, int], computation: _HloComputation) -> list[str]:
        """Return the shapes of operands, by the `places` of instructions in the computation."""
        for number in operands:
            if number in places and number not in self.known:
                at, decode = places[number], self.schema.instruction.FromString
                whole = computation.decoded[at] if computation.decoded else None
                one = decode(self.declared(*computation.bodies[at])) if whole is None else whole
                self.known[number] = _write_shape(one.shape)
        return [self.known.get(number, "") for number in operands]

    def keep(self, instruction: Any) -> _HloInstruction:
        """Return what is kept of a decoded instruction."""
        opcode, config = _shorten(instruction.opcode, OPCODE_CHARS), instruction.backend_config[:CONFIG_NBYTES]
        return _HloInstruction(
            opcode=opcode,
            shape=_write_shape(instruction.shape),
            origin=self.origin(*_read_place(instruction.metadata)),
            operands=list(instruction.operand_ids[:OPERANDS]),
            called=list(instruction.called_computation_ids[:FUSED]),
            target=_find_target(instruction, opcode, config),
            precision=_find_precision(instruction.precision_config, config),
        )

    def declared(self, start: int, end: int) -> bytes:
        """Return an instruction's bytes; of a large one those without its constant."""
        if end - start <= DECLARED_NBYTES:
            return bytes(self.content[start:end])
        rest = cut(self.content, start, end, number=LITERAL).rest
        if len(rest) > DECLARED_NBYTES:
            raise ProtobufError(f"an instruction of more than {DECLARED_NBYTES} bytes beside its constant")
        return rest

    def describe(self, name: str, own: _HloInstruction) -> HloOperation:
        """Return an instruction with the parts in the computations that it calls."""
        bodies = self.walk(own.called, nested=own.opcode in CONTAINERS)
        first = next((body.origin for body in bodies if body.origin != NOWHERE), NOWHERE)
        inner = bodies if own.opcode in CONTAINERS else []
        multiplies = own.opcode in PRODUCTS or own.opcode == "custom-call"
        product = (_join_types(own.shapes), own.precision) if multiplies else ("", "")
        product = next(((body.factors, body.precision) for body in inner if body.factors), product)
        opcodes = sum((body.opcodes for body in inner), Counter[str]())
        opcodes = opcodes or sum((body.scalars for body in inner), Counter[str]())
        origin = own.origin if own.origin.source else _HloOrigin(own.origin.op_name or first.op_name, first.source)
        scopes = write_scopes(origin.op_name[:STACK_NBYTES]) or f"{self.name or UNKNOWN}/"
        return HloOperation(
            name=name[:TEXT_CHARS],
            opcode=own.opcode,
            target=own.target,
            parts=" ".join(sorted(opcodes, key=lambda opcode: (-opcodes[opcode], opcode))[:OPCODES]),
            shape=own.shape,
            operands=" ".join(own.shapes),
            factors=product[0],
            precision=product[1],
            op_name=(origin.op_name or first.op_name)[:TEXT_CHARS],
            stack=";".join(filter(None, [scopes, origin.source])),
        )

    def walk(self, called: Sequence[int], *, nested: bool) -> list[_HloBody]:
        """Return the computations that are called; with `nested`, those that fusions in them call too."""
        waiting, seen, found = list(called[:FUSED]), set[int](), list[_HloBody]()
        while waiting and len(found) < FUSED:
            number = waiting.pop(0)
            if number in seen or number not in self.places:
                continue
            seen.add(number)
            found.append(self.body(number))
            waiting += found[-1].called if nested else ()
        return found

    def body(self, number: int) -> _HloBody:
        """Return a computation, decoded when it is first called."""
        if number not in self.bodies:
            computation = self.decode(self.places[number])
            found, root = self.sum_up(computation)
            found.origin = self.choose(root, computation)
            self.bodies[number] = found
        return self.bodies[number]

    def sum_up(self, computation: _HloComputation) -> tuple[_HloBody, _HloOrigin]:
        """Return what a computation does, and what its root was made for."""
        places, found, root = dict[int, int](), _HloBody(), NOWHERE
        for at, one in enumerate(self.list_instructions(computation)):
            number = one.id
            places[number], opcode = at, _read_opcode(one.opcode)
            if number == computation.root:
                root = self.origin(*_read_place(one.metadata))
            if opcode in CONTAINERS:
                found.called += one.called_computation_ids[: FUSED - len(found.called)]
            elif opcode in PRODUCTS and not found.factors:
                found.factors = _join_types(self.shapes(one.operand_ids[:2], places, computation))
                found.precision = self.keep(one).precision
            if opcode not in SILENT:
                found.count(opcode, one.shape)
        return found, root

    def choose(self, root: _HloOrigin, computation: _HloComputation) -> _HloOrigin:
        """Return the origin of the root if it has a source, else the most frequent one that has, else any."""
        if root.source:
            return root
        origins = Counter(_read_place(one.metadata) for one in self.list_instructions(computation))
        placed = {place: count for place, count in origins.items() if any(place[1:])} or origins
        return self.origin(*max(placed, key=placed.__getitem__, default=NO_PLACE))

    def origin(self, op_name: bytes, frame: int, file: bytes, line: int) -> _HloOrigin:
        """Return what an instruction was made for: at a frame of the program's, or at a line where it has none."""
        source = self.stack(frame)
        if not source and file:
            source = write_frame(clean(file), line, UNKNOWN)
        return _HloOrigin(clean(op_name), source)

    def stack(self, number: int) -> str:
        """Return the frames of Python at a place of the program, the innermost first; empty if it is unknown."""
        if number not in self.frames:
            found, nbytes, at = list[str](), 0, number
            while 0 < at <= len(self.index.stack_frames) and len(found) < CALLERS and nbytes < STACK_NBYTES:
                frame = self.index.stack_frames[at - 1]
                found.append(self.frame(frame.file_location_id))
                nbytes, at = nbytes + len(found[-1]), frame.parent_frame_id
            self.frames[number] = ";".join(filter(None, found))
        return self.frames[number]

    def frame(self, location: int) -> str:
        """Return one frame of Python, empty if its place is unknown."""
        if not 0 < location <= len(self.index.file_locations):
            return ""
        place = self.index.file_locations[location - 1]
        file, function = (
            clean(texts[number - 1]) if 0 < number <= len(texts) else UNKNOWN
            for texts, number in (
                (self.index.file_names, place.file_name_id),
                (self.index.function_names, place.function_name_id),
            )
        )
        return write_frame(file, place.line, function)


def _read_place(metadata: Any) -> _Place:
    """Return for what, and where, an instruction with this metadata was made."""
    return metadata.op_name, metadata.stack_frame_id, metadata.source_file, metadata.source_line


@lru_cache(maxsize=1000)
def _read_opcode(raw: bytes) -> str:
    return _shorten(raw, OPCODE_CHARS)


def _join_types(shapes: Sequence[str]) -> str:
    """Return the element types of the first two operands, which have these shapes."""
    return " ".join(shape.partition("[")[0] for shape in shapes[:2]).strip()


def _write_shape(shape: Any) -> str:
    """Return type and dimensions of an array, `bf16[64,32]`; of a tuple those of its first part."""
    while shape.element_type == TUPLE and shape.tuple_shapes:
        shape = shape.tuple_shapes[0]
    name = ELEMENT_TYPES.get(shape.element_type, "")
    return f"{name}[{','.join(map(str, shape.dimensions[:RANK]))}]" if name else ""


def _find_target(instruction: Any, opcode: str, config: bytes) -> str:
    """Return what a custom call calls, or how a fusion is compiled: `kLoop`, `__triton_gemm`."""
    if opcode == "custom-call":
        return _shorten(instruction.custom_call_target, TEXT_CHARS)
    kind = CONFIGURED_KIND.search(config) if opcode == "fusion" else None
    return kind[1].decode() if kind else _shorten(instruction.fusion_kind, OPCODE_CHARS)


def _find_precision(declared: Any, config: bytes) -> str:
    """Return how exactly a product is computed: the algorithm, else the highest precision of an operand."""
    algorithm = ALGORITHMS[declared.algorithm] if 0 < declared.algorithm < len(ALGORITHMS) else ""
    if found := CONFIGURED_ALGORITHM.search(config):
        algorithm = found[1].decode()
    wanted = max(declared.operand_precision[:OPERANDS], default=-1)
    if said := CONFIGURED_PRECISION.search(config):
        wanted = max((at for at, name in enumerate(PRECISIONS) if b'"%b"' % name.encode() in said[1]), default=wanted)
    return algorithm or (PRECISIONS[wanted] if 0 <= wanted < len(PRECISIONS) else "")


def _shorten(name: bytes, most: int) -> str:
    """Return a text of a program on one line, of at most `most` characters."""
    return " ".join(name[: 4 * most].decode(errors="replace").split())[:most]
