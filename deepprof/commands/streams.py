"""Messages of the command line besides its report, also where stdout or stderr is closed or fails."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from deepprof.collectors.errors import UsageError
from deepprof.render.plain import printable

if TYPE_CHECKING:
    from rich.console import Console

COLUMNS, LINES = 80, 25  # where the environment names no number


def say(text: str) -> None:
    """Print one line on stderr, whatever characters `text` contains; where stderr fails, only the exit code reports."""
    if sys.stderr is None:  # `print` would write to stdout instead
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
    """Redirect a stream that fails to the null device, so that the interpreter's last flush cannot fail again."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def open_console(stream: TextIO | None) -> Console:
    """Return a console on `stream`, at least as wide as a report needs; it follows the size of a terminal."""
    from rich.console import Console, ConsoleDimensions

    from deepprof.render.page import NARROWEST

    class ReportConsole(Console):
        @property
        def size(self) -> ConsoleDimensions:
            """The terminal's current size: a width that was set once would not follow it."""
            width, height = super().size
            return ConsoleDimensions(max(width, NARROWEST), height)

        @size.setter
        def size(self, new: tuple[int, int]) -> None:
            self.width, self.height = new

    try:
        console = ReportConsole(file=stream)
        _ = console.size
    except ValueError:  # COLUMNS or LINES is no number: rich accepts "²" and a thousand digits
        console = ReportConsole(file=stream, width=COLUMNS, height=LINES)
    return console
