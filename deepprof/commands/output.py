"""Writing a report to a file or to stdout, in its width and colours, JSON in UTF-8 and text as stdout can show it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from deepprof.commands.streams import open_console, require_stdout

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rich.console import Console

FORMATS = ("text", "json")
FILE_WIDTH = 100


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add `--format` and `-o`."""
    parser.add_argument("--format", choices=FORMATS, default="text", help="what to write (default text)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to FILE instead of stdout (- is stdout)")


def check_output(args: argparse.Namespace) -> None:
    """Take `-o -` as stdout, and raise `UsageError` where `-o` names a file that cannot be written."""
    from deepprof.files import check_target

    args.output = None if args.output == "-" else args.output
    if args.output is not None:
        check_target(args.output)


def capture(show: Callable[[Console], None], output: str | None) -> str:
    """Return what `show` prints on a console, in stdout's width and colours unless it goes to the file `output`."""
    from io import StringIO

    from rich.console import Console

    console = open_console(sys.stdout)
    if output is not None:
        console = Console(file=StringIO(), width=FILE_WIDTH, color_system=None)
    with console.capture() as captured:  # `deliver` prints it: rich would end the process when the pipe closes
        show(console)
    return captured.get()


def deliver(content: str, args: argparse.Namespace) -> None:
    """Write the report to the file or to stdout; JSON is always UTF-8, text on stdout is what stdout can show."""
    encoding = "utf-8" if args.output is not None or args.format == "json" else require_stdout().encoding
    deliver_bytes(content.encode(encoding, "strict" if args.output is not None else "replace"), args)


def deliver_bytes(content: bytes, args: argparse.Namespace) -> None:
    """Write the report to the file or to stdout as it is."""
    from deepprof.files import write_file

    if args.output is not None:
        write_file(args.output, content)
        return
    stdout, rest = require_stdout(), content
    while rest:  # an unbuffered stdout (python -u) may take only a part
        rest = rest[stdout.buffer.write(rest) :]
