"""Compiled programs by hand, byte by byte, as XPlane profiles hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.collectors.xplane_profile import data, number, varint

METADATA = "/host:metadata"


def instruction(
    name: str, op_name: str = "", frame: int = 0, place: tuple[str, int] = ("", 0), **more: object
) -> bytes:
    """Return an instruction that was made for `op_name` at a frame or a place; `more`: its id, what it calls."""
    file, line = place
    origin = data(2, op_name) + data(3, file) + number(4, line) + number(15, frame)
    called = b"".join(varint(one) for one in more.get("calls", ()))  # type: ignore[attr-defined]
    return data(1, name) + data(2, "fusion") + data(7, origin) + number(35, more.get("id", 1)) + data(38, called)


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
    """Return the plane that holds compiled programs, by name and number: `jit_f(3)`."""
    body = number(1, 9) + data(2, METADATA) + data(5, number(1, 1) + data(2, number(1, 1) + data(2, stat)))
    for at, (name, content) in enumerate(programs.items(), start=1):
        held = data(5, number(1, 1) + data(6, content))
        body += data(4, number(1, at) + data(2, number(1, at) + data(2, name) + held))
    return body
