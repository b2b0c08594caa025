"""The calling contexts of a running job, which a daemon keeps: `deepprof flame --daemon`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from deepprof.commands.daemons import open_endpoint
from deepprof.commands.inputs import find_between, find_selection
from deepprof.commands.progress import progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    import polars as pl

    from deepprof.live.client.daemon import Daemon
    from deepprof.live.wire.figures import RankState

HOW = "start it with deepprof run --contexts python"
OF_FILES = {  # options, and what they are without
    "iteration": None,
    "stacks": False,
    "hlo": None,
    "layers": None,
    "iterations": (),
    "stream": None,
    "same_device": False,
    "jobs": None,
    "columns": None,
}


class _SentFlame(Struct, frozen=True, eq=False):
    """The contexts (`SENT`) of a rank of a job, and the time that they are of, in Unix ns; None: nothing was sent."""

    job: str
    rank: int
    contexts: pl.DataFrame
    start_ns: int
    end_ns: int


def read_flame(args: argparse.Namespace) -> _SentFlame:
    """Return what the daemon keeps of the contexts of the job, rank and time that `args` names.

    Raises `UsageError` where the job sends none, and for options that are for files.
    """
    job = _check(args)
    endpoint = open_endpoint(args.daemon, args)
    with progress("reading"):
        from deepprof.live.client.daemon import Daemon

        with Daemon(endpoint) as daemon:
            ranks = daemon.ranks(job)
            return _read(daemon, ranks, _choose_rank(job, ranks, args.rank), args)


def _read(daemon: Daemon, ranks: Sequence[RankState], rank: int, args: argparse.Namespace) -> _SentFlame:
    from deepprof.collectors.errors import UsageError
    from deepprof.collectors.times import TIME_LIMIT_NS
    from deepprof.metrics.contexts.sent import read_sent

    job, between = args.paths[0], find_between(args)
    begun = min(each.first_seen_unix_ns for each in ranks)
    start, end = (None if moment is None else min(begun + moment, TIME_LIMIT_NS) for moment in between or (None, None))
    history = daemon.contexts(job, rank=rank, start_ns=start, end_ns=end)
    if history.sums.is_empty():
        if between is None:
            raise UsageError(f"rank {rank} of job {job!r} has sent no calling contexts; {HOW}")
        raise UsageError(f"rank {rank} of job {job!r} sent no calling contexts in this time; leave out --from and --to")
    contexts = read_sent(history.nodes).measure(history.sums)
    starts, ends = history.sums["time_ns"], history.sums["time_ns"] + history.sums["window_ns"]
    return _SentFlame(job, rank, contexts, min(starts.to_list()), max(ends.to_list()))


def say_left_out(contexts: pl.DataFrame) -> str | None:
    """Return a line on what the job did not collect, to keep the cost down; None where it did all."""
    from deepprof.metrics.contexts.sent import is_left_out

    counts = contexts.filter(is_left_out()).select("name", "count").rows()
    parts = [_count(count, name[1:].split()[0]) for name, count in counts if count]
    if not parts:
        return None
    return f"{' and '.join(parts)} left out to keep the cost down: sums are of the others."


def _count(number: int, things: str) -> str:
    return f"{number:,} {things if number > 1 else things[:-1]}"


def _check(args: argparse.Namespace) -> str:
    """Return the name of the job; raises `UsageError` for arguments that apply to files only."""
    from deepprof.collectors.errors import UsageError
    from deepprof.job.part import check_between
    from deepprof.render.flame import SENT_MEASURES

    if len(args.paths) != 1:
        raise UsageError(f"{len(args.paths)} jobs named; with --daemon name one: deepprof flame JOB --daemon")
    given = [name for name, without in OF_FILES.items() if getattr(args, name) != without] + [*find_selection(args)]
    if given:
        raise UsageError(f"--{given[0].replace('_', '-')} is for traces; leave it out with --daemon")
    if args.by is not None and args.by not in SENT_MEASURES:
        raise UsageError(f"--by {args.by}: a running job sends no such numbers; choose {', '.join(SENT_MEASURES)}")
    if (between := find_between(args)) is not None:
        check_between(between)
    return str(args.paths[0])


def _choose_rank(job: str, ranks: Sequence[RankState], wanted: int | None) -> int:
    """Return the rank that is requested, the first one by default."""
    from deepprof.collectors.errors import UsageError

    numbers = [each.rank for each in ranks]
    if not numbers:
        raise UsageError(f"job {job!r} has no rank; deepprof watch shows the jobs that there are")
    if wanted is not None and wanted not in numbers:
        raise UsageError(f"--rank {wanted}: there is no such rank; there are {min(numbers)} to {max(numbers)}")
    return min(numbers) if wanted is None else wanted
