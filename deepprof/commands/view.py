"""`deepprof view`."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from deepprof.commands.inputs import add_inputs, add_layers, add_paths, add_shapes, add_stacks, analyze_paths
from deepprof.commands.streams import require_stdout

if TYPE_CHECKING:
    import argparse

    from deepprof.analysis import Analysis

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
WITH_DISPLAY = ("darwin", "win32")
LOOK_S = 0.5  # between two looks whether the server has failed


class View:
    """Show where the time goes in a browser: findings, iterations, timeline, flame graph, memory.

    The page is served on 127.0.0.1 until Ctrl-C; the address that is printed contains a token, without which nothing is
    shown. On a terminal with a display the browser opens by itself. From another machine: ssh -L PORT:127.0.0.1:PORT.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add_paths(parser)
        add("--port", metavar="N", type=_parse_port, default=0, help="port to serve at (default: a free one)")
        add("--no-browser", action="store_true", help="only print the address")
        add_stacks(parser)
        add_layers(parser)
        add_shapes(parser)
        add_inputs(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read, analyse, and serve until Ctrl-C."""
        from deepprof.web.extra import require_server
        from deepprof.web.html import require_assets

        require_server()
        require_assets()
        stdout = require_stdout()
        analysis = analyze_paths(args, details=args.stacks or None)
        _serve(analysis, args.port, opens=not args.no_browser and stdout.isatty())
        return 0


def _serve(analysis: Analysis, port: int, *, opens: bool) -> None:
    """Serve the page of an analysis until Ctrl-C, or until the server fails."""
    from deepprof.web.package import PageDocuments
    from deepprof.web.perfetto import VIEWER, find_perfetto
    from deepprof.web.server import ViewServer

    perfetto = find_perfetto()
    documents = PageDocuments(analysis, server=True, perfetto=None if perfetto is None else VIEWER)
    title, failures = documents.session.title, list[BaseException]()
    server = ViewServer(documents, title=title, port=port, perfetto=perfetto, failed=failures.append)
    try:
        _tell(server.address, opens=opens)
        with suppress(KeyboardInterrupt):
            while not failures:
                time.sleep(LOOK_S)  # not a lock: with the signal handler of polars Ctrl-C interrupts no wait for one
    finally:
        server.close()
    for error in failures:
        raise error


def _tell(address: str, *, opens: bool) -> None:
    """Print the address, and open it where there is a display."""
    stdout = require_stdout()
    stdout.write(f"{address}\n")
    stdout.flush()
    if opens and (sys.platform in WITH_DISPLAY or any(os.environ.get(name) for name in DISPLAYS)):
        import webbrowser

        webbrowser.open(address)


def _parse_port(text: str) -> int:
    from argparse import ArgumentTypeError

    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) < 1 << 16):
        raise ArgumentTypeError(f"{text!r} is no port, 0 to 65535")
    return int(text)
