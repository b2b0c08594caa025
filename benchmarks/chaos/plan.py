"""The plan of what fails in a daemon and where its wall clock is; `inject.c` reads it while the daemon runs."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntFlag
from pathlib import Path

__all__ = ["Call", "Plan", "find_compiler"]

SOURCE = Path(__file__).with_name("inject.c")
CLOCK, RULE, RULES = struct.Struct("=q"), struct.Struct("=iiii240s"), 4
LEFT, HITS = struct.Struct("=i"), struct.Struct("=i")
AT_LEFT, AT_HITS = 8, 12  # in a rule
FOR_AS_LONG = -1


class Call(IntFlag):
    """Calls on files, as the rules of `inject.c` name them; CREATE is an open for writing."""

    OPEN = 1
    CREATE = 2
    READ = 4
    WRITE = 8
    SYNC = 16
    RENAME = 32
    TRUNCATE = 64
    UNLINK = 128
    MKDIR = 256


def find_compiler() -> str | None:
    """Return the C compiler, None where there is none."""
    return shutil.which("cc")


class Plan:
    """A plan in `folder`, with the library that follows it, compiled there."""

    def __init__(self, folder: Path) -> None:
        self.library, self.path = folder / "inject.so", folder / "plan"
        self.faults = self.missed = 0  # blocks with a fault so far, and those of them that no call has met
        compiler = find_compiler()
        assert compiler, "the faults are injected by a library in C: install a compiler (cc)"
        flags = ("-O1", "-std=gnu11", "-shared", "-fPIC")
        subprocess.run([compiler, *flags, "-o", str(self.library), str(SOURCE), "-ldl"], check=True)
        self.path.write_bytes(bytes(CLOCK.size + RULES * RULE.size))
        with self.path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)

    @property
    def environ(self) -> dict[str, str]:
        """What has a process follow the plan, and end with this one."""
        return {"LD_PRELOAD": str(self.library), "CHAOS_PLAN": str(self.path), "CHAOS_PARENT": str(os.getpid())}

    def close(self) -> None:
        self.map.close()

    def move_clock(self, offset_ns: int) -> None:
        """Set the daemon's wall clock so far from the machine's."""
        CLOCK.pack_into(self.map, 0, offset_ns)

    @contextmanager
    def failing(self, calls: Call, error: int, prefix: Path, left: int = FOR_AS_LONG, rule: int = 0) -> Iterator[None]:
        """Have `calls` on paths below `prefix` fail with `error` in the block: always, or the next `left` times.

        An `error` of 0 has them wait for the block's end, and then be done.
        """
        at, before = CLOCK.size + rule * RULE.size, self.hits(rule)
        RULE.pack_into(self.map, at, calls, error, 0, before, os.fsencode(prefix))
        LEFT.pack_into(self.map, at + AT_LEFT, left)  # last: it arms the rule
        try:
            yield
        finally:
            LEFT.pack_into(self.map, at + AT_LEFT, 0)
            self.faults += 1
            self.missed += self.hits(rule) == before

    def hits(self, rule: int = 0) -> int:
        """Return how many calls the rule has failed so far."""
        return int(HITS.unpack_from(self.map, CLOCK.size + rule * RULE.size + AT_HITS)[0])
