"""Frames and name scopes of compiled operations, as texts in `Trace.stacks`."""

from __future__ import annotations

import re

STACK_NBYTES = 64 * 1024  # of one instruction's frames
BRACKET_OR_SLASH = re.compile(r"[/()\[\]{}]")


def write_frame(file: str, line: int, function: str) -> str:
    """Return a frame of Python as in `Trace.stacks`."""
    return f"{file}({max(line, 0)}): {function}"


def clean(name: bytes) -> str:
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
    for mark in BRACKET_OR_SLASH.finditer(name):
        letter = mark[0]
        depth = max(0, depth + (letter in "([{") - (letter in ")]}"))
        if letter == "/" and not depth:
            found.append(name[start : mark.start()])
            start = mark.end()
    return [scope for scope in [*found, name[start:]] if scope]
