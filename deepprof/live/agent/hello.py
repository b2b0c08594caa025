"""The HELLO of a process that connects, with every field checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from deepprof.collectors.errors import escaped
from deepprof.collectors.live.packets import VERSION

LONGEST_NBYTES, LINES, VALUE_CHARS = 16 << 10, 128, 1024
SESSION = re.compile(r"[0-9a-f]{32}")
WORD = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
VARIABLE = "env:"


class ProtocolError(Exception):
    """A packet that no collector of ours writes: the connection ends. The text states what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ProcessHello:
    """A process and its collector. `session` is its own name for this run, kept over broken connections."""

    pid: int
    session: str
    collector: str
    format: str
    command: str = ""
    stand_in: bool = False
    continues: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)


def read_hello(payload: bytes | memoryview) -> ProcessHello:
    """Return the content of HELLO. Raises `ProtocolError`."""
    if len(payload) > LONGEST_NBYTES:
        raise ProtocolError("its hello is too long")
    words = split(bytes(payload).decode("utf-8", "replace"))
    if words.get("version") != str(VERSION):
        found = escaped(words.get("version", "none"))[:20]
        raise ProtocolError(f"it speaks version {found}, the agent {VERSION}; use one release for both")
    collector = words.get("collector", "")
    if not SESSION.fullmatch(words.get("session", "")) or not WORD.fullmatch(collector):
        raise ProtocolError("its hello lacks a session or a collector")
    return ProcessHello(
        pid=number(words.get("pid", "")),
        session=words["session"],
        collector=collector,
        format=words["format"] if WORD.fullmatch(words.get("format", "")) else collector,
        command=escaped(words.get("command", "")),
        stand_in=words.get("stand_in") == "1",
        continues=words.get("continues") == "1",
        variables={key.removeprefix(VARIABLE): value for key, value in words.items() if key.startswith(VARIABLE)},
    )


def split(text: str) -> dict[str, str]:
    """Return the lines `key=value` of a text, the first of every key."""
    words: dict[str, str] = {}
    for line in text.split("\n")[:LINES]:
        key, equals, value = line.partition("=")
        if equals:
            words.setdefault(key, value[:VALUE_CHARS])
    return words


def number(text: str) -> int:
    """Return a process id, 0 for what is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
