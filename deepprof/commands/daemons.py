"""Parts that the commands with a daemon share: the credentials for its endpoint, and reading a job from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.inputs import analyze_selected, find_between
from deepprof.commands.progress import progress

if TYPE_CHECKING:
    import argparse

    from deepprof.analysis import Analysis
    from deepprof.live.client.endpoint import Endpoint


def add_credentials(parser: argparse.ArgumentParser) -> None:
    """Add the options for a token and certificates."""
    group = parser.add_argument_group("to be let in by the daemon (each also a variable, DEEPPROF_TOKEN_FILE ...)")
    group.add_argument("--token-file", metavar="FILE", help="file with the token")
    group.add_argument("--ca", metavar="FILE", help="certificates that vouch for the daemon: asks for TLS")
    group.add_argument("--cert", metavar="FILE", help="own certificate")
    group.add_argument("--key", metavar="FILE", help="key of the own certificate")


def open_endpoint(address: str | None, args: argparse.Namespace) -> Endpoint:
    """Return the endpoint of the daemon at `address`, else of the default one, with the credentials in `args`."""
    from deepprof.live.client.extra import require_grpc

    require_grpc()
    from deepprof.live.client.credentials import Credentials
    from deepprof.live.client.endpoint import find_endpoint

    return find_endpoint(address, Credentials(args.token_file, args.ca, args.cert, args.key))


def add_daemon(parser: argparse.ArgumentParser) -> None:
    """Add `--daemon`; with it PATH is the name of a job."""
    text = (
        "read what a daemon keeps of the job PATH instead of files: unix:PATH or HOST:PORT; "
        "at the end of the line without ADDRESS it is that of DEEPPROF_DAEMON or this machine's"
    )
    parser.add_argument("--daemon", metavar="ADDRESS", nargs="?", const="", help=text)
    add_credentials(parser)


def analyze_window(args: argparse.Namespace) -> Analysis:
    """Analyse the records that the daemon keeps of the job that `args` names, as `inputs.analyze_paths` does for files.

    With `--same-device`, `args` may name several jobs, whose ranks are numbered one after the other.
    """
    _check_job(args)
    endpoint = open_endpoint(args.daemon, args)
    with progress("reading"):
        from deepprof.live.client.daemon import Daemon

        between = find_between(args)
        with Daemon(endpoint) as daemon:
            traces = [trace for job in args.paths for trace in daemon.window(job, between=between)]
    with progress("analysing"):
        from deepprof.job import number_ranks

        ranks = number_ranks(traces) if len(args.paths) > 1 else traces  # two jobs have a rank 0 each
        return analyze_selected(ranks, args)


def _check_job(args: argparse.Namespace) -> None:
    """Raise `UsageError` for arguments that apply to files only."""
    from deepprof.collectors.errors import UsageError

    if len(args.paths) != 1 and not args.same_device:
        raise UsageError(
            f"{len(args.paths)} jobs named; with --daemon name one: deepprof diagnose --daemon ADDRESS JOB "
            "(or several that use one device, with --same-device)"
        )
    if args.columns is not None:
        raise UsageError("--columns is for files; leave it out with --daemon")
    if args.cluster is not None:
        raise UsageError("--cluster is for files; leave it out with --daemon")
