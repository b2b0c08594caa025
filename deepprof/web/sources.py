"""Lines of code next to what they cost: of Python files that the trace names, if they are on this machine.

A trace may name any file. What is shown is shown to whoever runs `deepprof view`, on this machine alone, and only
regular Python files of a bearable size are read; a page that is sent to others contains no code.
"""

from __future__ import annotations

import os
import re
import stat
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.web.documents.source import SourceDocument
from deepprof.web.documents.texts import tidy

if TYPE_CHECKING:
    from deepprof.analysis import Analysis

AROUND = 12  # lines before and after
MOST_NBYTES = 4 << 20
SUFFIX = ".py"
LINE_END = re.compile(r"\r\n|\r|\n")  # as Python counts them; str.splitlines ends lines at a form feed, too


class SourceFiles:
    """The Python files that the contexts of an analysis name."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of files, as the trace has them."""
        return frozenset(self._analysis.contexts["file"].drop_nulls().unique().to_list())

    def read(self, file: str, line: int) -> SourceDocument | None:
        """Return the lines around a line of a file that the trace names; None for any other file."""
        if file not in self.names or not 1 <= line < 1 << 31:
            return None
        try:
            lines = _read_lines(file)
        except (OSError, ValueError) as error:
            why = "is not on this machine" if isinstance(error, FileNotFoundError) else f"cannot be shown ({error})"
            return SourceDocument(file=tidy(file), line=line, problem=tidy(f"{file} {why}"))
        first = max(1, line - AROUND)
        shown = [tidy(text) for text in lines[first - 1 : line + AROUND]]
        return SourceDocument(file=tidy(file), line=line, first=first, lines=shown)


def _read_lines(file: str) -> list[str]:
    """Return the lines of a Python file; raises `OSError` or `ValueError` where it cannot or shall not be shown."""
    path = Path(file)
    if path.suffix != SUFFIX:
        raise ValueError("it is no Python file")
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe of that name must not hang
    with open(handle, "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_NBYTES:
            raise ValueError(f"it is no file of up to {MOST_NBYTES >> 20} MiB")
        return LINE_END.split(opened.read(MOST_NBYTES).decode("utf-8", "replace").removesuffix("\n"))
