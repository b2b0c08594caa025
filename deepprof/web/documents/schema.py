"""What all documents of the page share."""

from __future__ import annotations

import msgspec

VERSION = 1


class CodePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A line of code; `function` is empty where only the file is known."""

    file: str
    line: int
    function: str = ""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One number with its name; `text` is how people read it, with its unit."""

    name: str
    title: str
    value: float | None
    text: str


class TimePart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an iteration's time, by its name in the report; `idle`: the device waits."""

    name: str
    title: str
    idle: bool
