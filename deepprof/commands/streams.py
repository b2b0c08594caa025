"""What the command line says besides its report, and how it says it when nobody can listen."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from deepprof.collectors.errors import UsageError
from deepprof.render.plain import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["open_console", "require_stdout", "say", "settle"]

COLUMNS, LINES = 80, 25  # where the environment names no number


def say(text: str) -> None:
    """Print one line on stderr, whatever `text` holds; where stderr fails, the exit code has to do."""
    if sys.stderr is None:  # print would take stdout instead
        return
    try:
        print(printable(" ".join(text.split())), file=sys.stderr, flush=True)  # noqa: T201
    except OSError:
        settle(sys.stderr)


def require_stdout() -> TextIO:
    """Return stdout; raises `UsageError` where the caller closed it."""
    if sys.stdout is None:
        raise UsageError("stdout is closed; write to a file with -o FILE")
    return sys.stdout


def settle(stream: TextIO | None) -> None:
    """Point a stream that fails at nothing, so that the interpreter's last flush cannot fail once more."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def open_console(stream: TextIO | None) -> Console:
    """Return a console on `stream`, never narrower than a report can be; it follows the size of a terminal."""
    from rich.console import Console, ConsoleDimensions

    from deepprof.render.page import NARROWEST

    class ReportConsole(Console):
        @property
        def size(self) -> ConsoleDimensions:
            """The size that the terminal has now: a width that was set would stay what it was."""
            width, height = super().size
            return ConsoleDimensions(max(width, NARROWEST), height)

        @size.setter
        def size(self, new: tuple[int, int]) -> None:
            self.width, self.height = new

    try:
        console = ReportConsole(file=stream)
        _ = console.size
    except ValueError:  # COLUMNS or LINES is no number: rich believes "²" and a thousand digits
        console = ReportConsole(file=stream, width=COLUMNS, height=LINES)
    return console
