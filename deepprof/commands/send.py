"""`deepprof send`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.arguments import add_columns, parse_count, parse_jobs, parse_speed
from deepprof.commands.daemons import add_credentials, open_endpoint
from deepprof.commands.progress import counting, reading
from deepprof.commands.streams import say
from deepprof.plurals import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from deepprof.collectors.trace import Trace
    from deepprof.live.client.endpoint import Endpoint
    from deepprof.live.client.replay import ReplayTotals


class Send:
    """Send recorded traces to a daemon, as if the job ran now.

    PATH is what `deepprof diagnose` takes: every trace is a rank of the job. What the daemon has already, as after a
    break, is not sent again. A lost connection is taken up again; exit 2 when the daemon stays away or refuses.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add("paths", metavar="PATH", nargs="+", help="a trace, a directory or a glob of one job's ranks")
        add("--job", metavar="NAME", required=True, help="name of the job")
        add(
            "--to",
            metavar="ADDRESS",
            help="the daemon, unix:PATH or HOST:PORT (default: DEEPPROF_DAEMON or this machine's)",
        )
        speed = "times the recording's own: 1 is as it was, max (the default) as fast as the daemon takes it"
        add("--speed", metavar="X", type=parse_speed, help=speed)
        add("--repeat", metavar="N", type=parse_count, default=1, help="send it N times, one after the other in time")
        add("--collector", metavar="NAME", help="name of this sending, which the same name continues")
        add("--jobs", metavar="N", type=parse_jobs, help="processes that read (default: what the machine bears)")
        add_columns(parser)
        add_credentials(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read and send the traces, and print the counts."""
        endpoint = open_endpoint(args.to, args)
        from deepprof.live.client.replay import TraceReplay, check_words, replay

        check_words(args.job, args.collector)
        traces = _read_traces(args)
        how = TraceReplay(args.job, args.speed, args.repeat, args.collector)
        with counting("sending", "records") as watch:
            totals = replay(endpoint, traces, how, watch=watch, notice=_say_once())
        say(f"{endpoint.address}: {_describe(totals)}{_describe_account(endpoint, args.job, traces)}")
        return 0


def _say_once() -> Callable[[str], None]:
    """Return a function that prints a line unless it equals the line before."""
    said: list[str] = []

    def notice(text: str) -> None:
        if said[-1:] != [text]:
            say(f"{text} (trying again)")
        said[:] = [text]

    return notice


def _read_traces(args: argparse.Namespace) -> list[Trace]:
    """Return the ranks as recorded: numbered, but with their own clocks, which the later analysis aligns."""
    from deepprof.job import find_files, read_unaligned

    with reading() as watch:
        found = find_files(args.paths)
        traces = read_unaligned(found, jobs=args.jobs, watch=watch, columns=args.columns, shapes=False)
    for note in found.notes:
        say(f"note: {note}")
    return traces


def _describe(totals: ReplayTotals) -> str:
    ranks = counted(totals.ranks, "rank")
    rate = (totals.durable - totals.present) / totals.seconds if totals.seconds else 0.0
    present = f" ({totals.present:,} were there already)" if totals.present else ""
    return (
        f"{ranks}, {counted(totals.records, 'record')}, {totals.durable:,} acknowledged{present} "
        f"in {totals.seconds:,.2f} s, {rate:,.0f} records/s"
    )


def _describe_account(endpoint: Endpoint, job: str, traces: list[Trace]) -> str:
    """Return the counts of records that the daemon left out, empty where there are none or it does not report them."""
    from deepprof.live.client.daemon import Daemon
    from deepprof.live.client.errors import DaemonError

    sent = {trace.rank or 0 for trace in traces}
    try:
        with Daemon(endpoint) as daemon:
            accounts = [rank.account for rank in daemon.ranks(job) if rank.rank in sent]
    except DaemonError:  # a token that may send is not always allowed to read
        return ""
    counts = {"duplicate": sum(each.duplicate for each in accounts), "invalid": sum(each.invalid for each in accounts)}
    for account in accounts:
        for reason, count in account.dropped.items():
            counts[reason] = counts.get(reason, 0) + count
    return "".join(f", {count:,} {reason}" for reason, count in counts.items() if count)
