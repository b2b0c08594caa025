"""`deepprof agent`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.collectors.errors import UsageError
from deepprof.commands.arguments import quote
from deepprof.commands.daemons import add_credentials, open_endpoint

if TYPE_CHECKING:
    import argparse

LEAST_NBYTES = 64 << 10  # of the spool: a smaller one has no space for a message, and nothing would arrive


class Agent:
    """Collect from the jobs on this node, and send to a daemon.

    `deepprof run` starts one where none listens. What the daemon has not taken yet is on disk: neither the end of
    the daemon nor that of the agent loses what has come.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        from deepprof.commands.run import parse_job, parse_socket

        add = parser.add_argument
        where = "where jobs speak to it (default: DEEPPROF_SOCKET, or beside the daemon's)"
        add("--socket", metavar="PATH", type=parse_socket, help=where)
        add(
            "--to",
            metavar="ADDRESS",
            help="the daemon, unix:PATH or HOST:PORT (default: DEEPPROF_DAEMON or this machine's)",
        )
        add("--spool", metavar="DIR", help="folder for what is on its way (default: ~/.local/state/deepprof/agent)")
        add(
            "--spool-limit",
            metavar="SIZE",
            type=_parse_limit,
            default="1GiB",
            help="of all ranks together (default: 1GiB)",
        )
        cost = (
            "share of one core that collecting may take of a process; above, only windows are collected (default: 0.05)"
        )
        add("--overhead", metavar="RATIO", type=_parse_ratio, default=0.05, help=cost)
        windows = "ask PyTorch for a window now and then (default: 2,000 ms each 60 s)"
        add("--kineto", metavar="EVERY_S:WINDOW_MS", nargs="?", const="60:2000", help=windows)
        add("--tail", metavar="FILE.rpd", type=_parse_file, help="follow a file that RPD's tracer is writing")
        add("--watch", metavar="DIR", type=_parse_folder, help="send the reports that appear in a directory")
        names = "name of the job of --tail and --watch (default: the file's or directory's)"
        add("--job", metavar="NAME", type=parse_job, help=names)
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
        """Serve until instructed to stop."""
        import os

        os.environ.setdefault("POLARS_MAX_THREADS", "1")  # for tables of this size threads cost more than they save
        endpoint = open_endpoint(args.to, args)
        from deepprof.live.agent.kineto.schedule import parse_schedule
        from deepprof.live.agent.node_agent import AgentSettings, default_socket, default_spool, run
        from deepprof.live.agent.pacing import Pacing
        from deepprof.live.agent.sources import SourceOptions
        from deepprof.live.service.config.sections import LogSection
        from deepprof.live.service.logs import writing_logs

        socket = args.socket or _find_socket(os.environ.get("DEEPPROF_SOCKET")) or default_socket(os.environ)
        settings = AgentSettings(
            socket=Path(socket).absolute(),
            spool=Path(args.spool) if args.spool else default_spool(os.environ),
            spool_nbytes=args.spool_limit,
            pacing=Pacing(args.overhead),
            for_all=args.for_all,
            until_idle=args.until_idle,
            source_options=SourceOptions(
                kineto=parse_schedule(args.kineto) if args.kineto else None,
                tail=args.tail,
                watch=args.watch,
                job=args.job,
            ),
        )
        with writing_logs(LogSection(format=args.log_format)):
            run(settings, endpoint)
        return 0


def _find_socket(text: str | None) -> Path | None:
    """Return the socket that the environment names, None where it names none. Raises `UsageError`."""
    from argparse import ArgumentTypeError

    from deepprof.commands.run import parse_socket

    try:
        return parse_socket(text) if text else None
    except ArgumentTypeError as error:
        raise UsageError(f"DEEPPROF_SOCKET: {error}") from error


def _parse_ratio(text: str) -> float:
    """Return a ratio above 0, at most 1. Raises `ArgumentTypeError`."""
    from argparse import ArgumentTypeError

    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 < ratio <= 1:
        raise ArgumentTypeError(f"{quote(text)} is no number above 0, at most 1")
    return ratio


def _parse_limit(text: str) -> int:
    """Return a number of bytes, at least `LEAST_NBYTES`. Raises `ArgumentTypeError`."""
    from argparse import ArgumentTypeError

    from deepprof.live.service.config.quantities import parse_nbytes

    try:
        nbytes = parse_nbytes(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{quote(text)} {error}") from error
    if nbytes < LEAST_NBYTES:
        raise ArgumentTypeError(f"{quote(text)} is less than {LEAST_NBYTES >> 10} KiB: no message has room in it")
    return nbytes


def _parse_folder(text: str) -> Path:
    """Return the path of a directory, which need not exist yet. Raises `ArgumentTypeError`."""
    from argparse import ArgumentTypeError

    path = Path(text)
    if not text or (path.exists() and not path.is_dir()):
        raise ArgumentTypeError(f"{quote(text)} is no directory")
    return path


def _parse_file(text: str) -> Path:
    """Return the path of a file that SQLite writes, which need not exist yet. Raises `ArgumentTypeError`."""
    from argparse import ArgumentTypeError

    path = Path(text)
    if not text or (path.exists() and not path.is_file()):
        raise ArgumentTypeError(f"{quote(text)} is no file")
    return path
