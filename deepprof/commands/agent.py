"""`deepprof agent`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.collectors.errors import UsageError
from deepprof.commands.daemons import add_credentials, open_door

if TYPE_CHECKING:
    import argparse

__all__ = ["Agent"]


class Agent:
    """Collect from the jobs on this node, and send to a daemon.

    `deepprof run` starts one where none listens. What the daemon has not taken yet lies on disk: neither the end of
    the daemon nor that of the agent loses what has come.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add(
            "--socket", metavar="PATH", help="where jobs speak to it (default: DEEPPROF_SOCKET, or beside the daemon's)"
        )
        add(
            "--to",
            metavar="ADDRESS",
            help="the daemon, unix:PATH or HOST:PORT (default: DEEPPROF_DAEMON or this machine's)",
        )
        add("--spool", metavar="DIR", help="folder for what is on its way (default: ~/.local/state/deepprof/agent)")
        add("--spool-limit", metavar="SIZE", default="1GiB", help="of all ranks together (default: 1GiB)")
        cost = (
            "share of one core that collecting may take of a process; above, only windows are collected (default: 0.05)"
        )
        add("--overhead", metavar="RATIO", type=parse_ratio, default=0.05, help=cost)
        windows = "ask PyTorch for a window now and then (default: 2,000 ms each 60 s)"
        add("--kineto", metavar="EVERY_S:WINDOW_MS", nargs="?", const="60:2000", help=windows)
        add("--tail", metavar="FILE.rpd", help="follow a file that RPD's tracer is writing")
        add("--watch", metavar="DIR", help="send the reports that appear in a directory")
        add("--job", metavar="NAME", help="name of the job of --tail and --watch (default: the file's or directory's)")
        add("--for-all", action="store_true", help="take records of all users of this machine")
        add("--until-idle", action="store_true", help="end when nothing is left to do")
        formats = ("auto", "json", "text")
        add(
            "--log-format",
            choices=formats,
            default="auto",
            help="of what it says on stderr (default: text on a terminal)",
        )
        add_credentials(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Serve until told to stop."""
        import os
        from pathlib import Path

        os.environ.setdefault("POLARS_MAX_THREADS", "1")  # its pool costs more than it gives for tables of this size
        door = open_door(args.to, args)
        from deepprof.agent.agent import Settings, default_socket, default_spool, run
        from deepprof.agent.kineto.schedule import parse_schedule
        from deepprof.agent.pacing import Pacing
        from deepprof.agent.sources import Wishes
        from deepprof.service.config.quantities import parse_nbytes
        from deepprof.service.config.sections import Log
        from deepprof.service.logs import writing_logs

        socket = args.socket or os.environ.get("DEEPPROF_SOCKET") or default_socket(os.environ)
        try:
            limit = parse_nbytes(args.spool_limit)
        except ValueError as error:
            raise UsageError(f"--spool-limit: {error}") from error
        settings = Settings(
            socket=Path(socket).absolute(),
            spool=Path(args.spool) if args.spool else default_spool(os.environ),
            spool_nbytes=limit,
            pacing=Pacing(args.overhead),
            for_all=args.for_all,
            until_idle=args.until_idle,
            wishes=Wishes(
                kineto=parse_schedule(args.kineto) if args.kineto else None,
                tail=Path(args.tail) if args.tail else None,
                watch=Path(args.watch) if args.watch else None,
                job=args.job,
            ),
        )
        with writing_logs(Log(format=args.log_format)):
            run(settings, door)
        return 0


def parse_ratio(text: str) -> float:
    """Return a ratio from 0 to 1. Raises `ArgumentTypeError`."""
    from argparse import ArgumentTypeError

    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 < ratio <= 1:
        raise ArgumentTypeError("a number above 0, at most 1")
    return ratio
