"""`deepprof jobs`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from deepprof.commands.daemons import add_credentials, open_endpoint
from deepprof.commands.output import FORMATS
from deepprof.commands.streams import open_console, require_stdout
from deepprof.plurals import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from deepprof.live.client.daemon import Daemon
    from deepprof.render.live_table import Line

ACTIONS = ("list", "senders", "forget")


class Jobs:
    """List the jobs that a daemon keeps, and who sends them; forget jobs.

    `list` (the default) shows every job, also those of which only the history is left, with who sends it and what is
    kept of it; JOB shows only these. `senders` shows by the name of the token who sends what, of how much they may, and
    what was refused; `forget JOB ...` removes jobs that send nothing now, their history and captures with them.
    `senders` and `_forget` need the scope admin.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add("action", metavar="ACTION", nargs="?", choices=ACTIONS, default="list", help="list, senders or forget")
        add("jobs", metavar="JOB", nargs="*", help="names of jobs")
        where = "the daemon, unix:PATH or HOST:PORT (default: DEEPPROF_DAEMON or this machine's)"
        add("--daemon", metavar="ADDRESS", help=where)
        add("--format", choices=FORMATS, default="text", help="what to write (default text)")
        add_credentials(parser)

    def run(self, args: argparse.Namespace) -> int:
        """List jobs or senders, or have jobs forgotten."""
        _check_names(args.action, args.jobs)
        endpoint = open_endpoint(args.daemon, args)
        from deepprof.live.client.daemon import Daemon

        with Daemon(endpoint) as daemon:
            ACT[args.action](daemon, args)
        return 0


def _check_names(action: str, jobs: Sequence[str]) -> None:
    """Raise `UsageError` for an action without the jobs that it needs, or with jobs that it does not take."""
    from deepprof.collectors.errors import UsageError

    if action == "forget" and not jobs:
        raise UsageError("forget needs the names of jobs: deepprof jobs forget JOB; deepprof jobs lists them")
    if action == "senders" and jobs:
        raise UsageError("senders takes no job; deepprof jobs list JOB says who sends one")


def _list_jobs(daemon: Daemon, args: argparse.Namespace) -> None:
    from deepprof.collectors.errors import UsageError
    from deepprof.live.client.watch_view import draw_jobs_held

    jobs = daemon.jobs(past=True)
    if missing := set(args.jobs) - {job.job for job in jobs}:
        raise UsageError(f"{daemon.endpoint.address}: no job {min(missing)!r}; deepprof jobs lists them")
    jobs = tuple(job for job in jobs if job.job in args.jobs or not args.jobs)
    if args.format == "json":
        _write_json("jobs", daemon, jobs)
    else:
        now = time.time_ns()
        write(lambda width: draw_jobs_held(jobs, now, width), "no job is kept")


def _list_senders(daemon: Daemon, args: argparse.Namespace) -> None:
    from deepprof.live.client.watch_view import draw_senders

    senders = daemon.senders()
    if args.format == "json":
        _write_json("senders", daemon, senders)
    else:
        write(lambda width: draw_senders(senders, width), "nobody has sent anything yet")


def _forget(daemon: Daemon, args: argparse.Namespace) -> None:
    """Have jobs forgotten, and print what was removed; ends at the first that cannot be forgotten."""
    gone = list[dict[str, object]]()
    for job in args.jobs:
        iterations = daemon.forget(job)
        gone.append({"job": job, "iterations": iterations})
        if args.format == "text":
            write(lambda _, job=job, n=iterations: [(f"{job}: forgotten, {counted(n, 'iteration')}", "")], "")  # type: ignore[misc]
    if args.format == "json":
        _write_json("forgotten", daemon, gone)


ACT: dict[str, Callable[[Daemon, argparse.Namespace], None]] = {
    "list": _list_jobs,
    "senders": _list_senders,
    "forget": _forget,
}


def write(draw: Callable[[int], Iterable[Line]], nothing: str) -> None:
    """Write lines as stdout can show them, or the text `nothing` if there are none."""
    from deepprof.render.page import TextPage

    require_stdout()
    page = TextPage(open_console(sys.stdout))
    for text, style in list(draw(page.width)) or [(nothing, "")]:
        page.draw(text, style)


def _write_json(what: str, daemon: Daemon, values: object) -> None:
    """Write an object of `deepprof.jobs/1`."""
    import msgspec

    told = {"schema": "deepprof.jobs/1", "address": str(daemon.endpoint.address)}
    told[what] = msgspec.to_builtins(values, enc_hook=dict)
    require_stdout().buffer.write(msgspec.json.encode(told) + b"\n")
