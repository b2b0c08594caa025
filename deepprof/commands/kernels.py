"""`deepprof kernels`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.arguments import add_columns, parse_count, parse_jobs
from deepprof.commands.inputs import add_paths
from deepprof.commands.output import add_output, capture, check_output, deliver
from deepprof.commands.progress import progress, reading

if TYPE_CHECKING:
    import argparse

    import polars as pl

SHOWN = 30  # rows in text without --top


class ListKernels:
    """List the kernels of a job by time, and what each computes: category, precision, unit and library.

    What a kernel computes follows from its name, by tables of patterns, and from the operator that launched it; a
    question mark marks what is not sure. --unknown lists only kernels whose names are in no table, as lines that can
    be pasted into one (docs/kernels.md).
    """

    command = "kernels"

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add_paths(parser)
        add("--unknown", action="store_true", help="only kernels that no table knows, as lines for a table")
        add("--top", metavar="N", type=parse_count, help=f"kernels to list (default {SHOWN} in text, else all)")
        add("--jobs", metavar="N", type=parse_jobs, help="processes that read (default: what the machine bears)")
        add_columns(parser)
        add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read the traces and list their kernels."""
        check_output(args)
        with reading() as watch:
            from deepprof.job import read_job

            traces = read_job(args.paths, jobs=args.jobs, watch=watch, columns=args.columns)
        with progress("analysing"):
            from deepprof.metrics.cpu_fallback import stand_ins
            from deepprof.metrics.kernels.totals import sum_kernels

            kernels = sum_kernels(stand_ins(traces), traces)
        deliver(_write(kernels, len(traces), args), args)
        return 0


def _write(kernels: pl.DataFrame, ranks: int, args: argparse.Namespace) -> str:
    import polars as pl

    from deepprof.render.kernel_list import print_kernels, write_kernels, write_lines

    if args.unknown:
        unknown = kernels.filter(pl.col("library").is_null()).group_by("name", maintain_order=True)
        kernels = unknown.agg(
            pl.exclude("calls", "time_ns", "share_ratio").first(), pl.col("calls", "time_ns", "share_ratio").sum()
        )
        kernels = kernels.select(list(kernels.columns))
    if args.format == "json":
        return write_kernels(kernels if args.top is None else kernels.head(args.top), ranks)
    if args.unknown:
        return write_lines(kernels.head(args.top or SHOWN).iter_rows(named=True))
    return capture(lambda console: print_kernels(kernels, console, args.top or SHOWN), args.output)
