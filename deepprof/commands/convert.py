"""`deepprof convert`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.arguments import add_columns, parse_jobs
from deepprof.commands.progress import reading
from deepprof.commands.streams import say
from deepprof.plurals import counted

if TYPE_CHECKING:
    import argparse

    from deepprof.job.conversion import ConversionResult


class Convert:
    """Write traces to a store, for repeated questions and other tools.

    A store is a directory with Parquet tables per rank, which DeepProf reads many times faster than the original
    files, and DuckDB, pandas and polars as they are. PATH is what `deepprof diagnose` takes. An existing store is
    replaced.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add("paths", metavar="PATH", nargs="+", help="a trace, a directory or a glob of one job's ranks")
        add("-o", "--output", metavar="DIR", required=True, help="directory to write, such as job.deepprof")
        add("--jobs", metavar="N", type=parse_jobs, help="processes that read (default: what the machine bears)")
        add_columns(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Write the store and print its contents on stderr in one line."""
        from deepprof.collectors.store import check_store_target

        check_store_target(args.output)
        with reading() as watch:
            from deepprof.job.conversion import convert

            written = convert(args.paths, args.output, jobs=args.jobs, watch=watch, columns=args.columns)
        for note in written.notes:
            say(f"note: {note}")
        say(f"{args.output}: {_describe(written)}")
        return 0


def _describe(written: ConversionResult) -> str:
    ranks = counted(written.ranks, "rank")
    dropped = ", ".join(f"{reason} {count:,}" for reason, count in written.dropped.items())
    kept = f"{written.kept:,} of {written.read:,} records kept"
    return f"{ranks}, {kept}, dropped: {dropped or 'none'}; {written.nbytes / 1e6:,.1f} MB"
