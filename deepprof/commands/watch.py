"""`deepprof watch`."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from deepprof.commands.arguments import parse_interval
from deepprof.commands.daemons import add_credentials, open_endpoint
from deepprof.commands.output import FORMATS
from deepprof.commands.streams import open_console, require_stdout

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from deepprof.live.client.watch_view import LiveScene

FOLLOW_S = 0.2  # between two checks of the terminal's size


class Watch:
    """Show the jobs that a daemon watches, as they run.

    On a terminal the view stays until Ctrl-C; into a pipe it is shown once. `--format json` writes a line per look.
    While the daemon is away, what was last seen stays, and it is called again.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        where = "the daemon, unix:PATH or HOST:PORT (default: DEEPPROF_DAEMON or this machine's)"
        add("address", metavar="ADDRESS", nargs="?", help=where)
        add("--job", metavar="JOB", default="", help="only this job")
        add("--once", action="store_true", help="show it once and end")
        add("--format", choices=FORMATS, default="text", help="what to write (default text)")
        add("--interval", metavar="S", type=parse_interval, default=1.0, help="seconds between two looks (default 1)")
        add_credentials(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Show the jobs once, or until Ctrl-C."""
        _check_address(args.address)
        endpoint = open_endpoint(args.address, args)
        from deepprof.live.client.watch_view import look_on

        screen = _WatchScreen()
        scenes = look_on(endpoint, args.job, lambda: screen.wait(args.interval))
        try:
            _show(scenes, args, screen)
        finally:
            scenes.close()
        return 0


class _WatchScreen:
    """The view on the terminal, drawn again when the terminal's size has changed."""

    def __init__(self) -> None:
        self.live: Live | None = None
        self.scene: LiveScene | None = None
        self.size: tuple[int, int] = (0, 0)

    def show(self, scene: LiveScene) -> None:
        """Draw a scene over the previous one."""
        if self.live is not None:
            self.scene, self.size = scene, self.live.console.size
            self.live.update(_draw(scene, self.live.console, self.size[1]), refresh=True)

    def wait(self, seconds: float) -> None:
        """Wait for the next look, and meanwhile follow the terminal's size."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, FOLLOW_S))
            if self.live is not None and self.scene is not None and self.live.console.size != self.size:
                self.show(self.scene)


def _check_address(address: str | None) -> None:
    """Raise `UsageError` where the address seems to be the name of a job."""
    from deepprof.collectors.errors import UsageError
    from deepprof.render.plain import shorten

    if address and ":" not in address:
        raise UsageError(
            f"{shorten(address)!r} is no address, unix:PATH or HOST:PORT; one job is watched with --job NAME"
        )


def _show(scenes: Iterator[LiveScene], args: argparse.Namespace, screen: _WatchScreen) -> None:
    """Show scenes as `args` requests."""
    stdout = require_stdout()
    if args.format == "json":
        for scene in scenes:
            stdout.buffer.write(encode(scene))
            stdout.buffer.flush()
            if args.once:
                return
    elif args.once or not stdout.isatty():
        console = open_console(sys.stdout)
        stdout.write(_draw(next(scenes), console, None).plain + "\n")
    else:
        _show_live(scenes, open_console(sys.stdout), screen)


def _show_live(scenes: Iterator[LiveScene], console: Console, screen: _WatchScreen) -> None:
    """Show each scene over the previous one until Ctrl-C, on a screen that is restored afterwards."""
    from rich.live import Live

    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as screen.live:
        for scene in scenes:
            screen.show(scene)


def _draw(scene: LiveScene, console: Console, height: int | None) -> Text:
    from rich.text import Text

    from deepprof.live.client.watch_view import draw_scene
    from deepprof.render.page import TextPage

    page = TextPage(console)
    lines = [Text(page.show(text), style) for text, style in draw_scene(scene, page.width, height)]
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def encode(scene: LiveScene) -> bytes:
    """Return a scene as a line of JSON."""
    import msgspec

    jobs = [msgspec.to_builtins(job, enc_hook=dict) for job in scene.jobs]
    for job in jobs:
        ranks = (scene.ranks or {}).get(job["job"])
        job["rank_states"] = None if ranks is None else [msgspec.to_builtins(rank, enc_hook=dict) for rank in ranks]
    told = {"schema": "deepprof.watch/1", "address": scene.address, "now_unix_ns": scene.now_unix_ns}
    return msgspec.json.encode({**told, "notice": scene.notice or None, "jobs": jobs}) + b"\n"
