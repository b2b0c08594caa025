"""Compiled programs by hand, byte by byte, as XPlane profiles hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.collectors.xplane_profile import data, number, varint

METADATA = "/host:metadata"


TYPES = {"pred": 1, "s8": 2, "s32": 4, "f16": 10, "f32": 11, "f64": 12, "bf16": 16, "f8e4m3fn": 20}


def shape(text: str) -> bytes:
    """Return a shape: `bf16[64,32]`, or of a tuple `f32[4] s8[9]`."""
    if " " in text:
        return number(2, 13) + b"".join(data(4, shape(part)) for part in text.split())
    kind, _, sizes = text.partition("[")
    return number(2, TYPES[kind]) + b"".join(number(3, int(size)) for size in sizes.rstrip("]").split(",") if size)


def instruction(
    name: str,
    op_name: str = "",
    frame: int = 0,
    place: tuple[str, int] = ("", 0),
    *,
    opcode: str = "fusion",
    of: str = "",
    **more: Any,
) -> bytes:
    """Return an instruction that was made for `op_name` at a frame or a place, and returns the shape `of`.

    `more`: its `id`, what it `calls`, its `operands`, `kind`, `target`, `config` and `precision` (highest of operands,
    algorithm).
    """
    file, line = place
    origin = data(2, op_name) + data(3, file) + number(4, line) + number(15, frame)
    numbers = (b"".join(varint(one) for one in more.get(key, ())) for key in ("operands", "calls"))
    operands, called = numbers
    highest, algorithm = more.get("precision", (0, 0))
    exact = data(1, varint(0) + varint(highest)) + number(2, algorithm) if "precision" in more else b""
    body = data(1, name) + data(2, opcode) + (data(3, shape(of)) if of else b"") + data(7, origin)
    body += data(11, more.get("kind", "")) + data(28, more.get("target", "")) + number(35, more.get("id", 1))
    return body + data(36, operands) + data(38, called) + data(43, more.get("config", "")) + data(51, exact)


def computation(*instructions: bytes, id: int = 1, root: int = 1) -> bytes:
    return data(1, f"region_{id}") + b"".join(data(2, one) for one in instructions) + number(5, id) + number(6, root)


def program(name: str, computations: Sequence[bytes], frames: Sequence[tuple[str, str, int, int]] = ()) -> bytes:
    """Return a program; `frames` are (file, function, line, parent), numbered from 1."""
    index = b"".join(data(1, file) for file, *_ in frames) + b"".join(data(2, function) for _, function, *_ in frames)
    for at, (_, _, line, _) in enumerate(frames, start=1):
        index += data(3, number(1, at) + number(2, at) + number(3, line))
    index += b"".join(data(4, number(1, at) + number(2, parent)) for at, (*_, parent) in enumerate(frames, start=1))
    return data(1, data(1, name) + b"".join(data(3, one) for one in computations) + data(17, index))


def metadata_plane(programs: Mapping[str, bytes], stat: str = "Hlo Proto") -> bytes:
    """Return the plane that contains compiled programs, by name and number: `jit_f(3)`."""
    body = number(1, 9) + data(2, METADATA) + data(5, number(1, 1) + data(2, number(1, 1) + data(2, stat)))
    for at, (name, content) in enumerate(programs.items(), start=1):
        held = data(5, number(1, 1) + data(6, content))
        body += data(4, number(1, at) + data(2, number(1, at) + data(2, name) + held))
    return body
