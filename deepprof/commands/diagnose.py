"""`deepprof diagnose`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from deepprof.commands.arguments import add_columns, parse_counts, parse_jobs, parse_stream, parse_time
from deepprof.commands.progress import progress, reading
from deepprof.commands.streams import open_console, require_stdout

if TYPE_CHECKING:
    import argparse

    from deepprof.analysis import Analysis

__all__ = ["Diagnose"]

FORMATS = ("text", "json")
SEVERITIES = ("info", "warning", "critical")  # diagnosis.finding has the same; --help must not load it
FINDINGS = 5
FAILED = 1
FILE_WIDTH = 100


class Diagnose:
    """Find the training iteration in a trace and say where its time goes.

    PATH is a file, a directory, an archive, a store or a glob of one job's ranks; the format is recognised by content.
    --from and --to count from the job's first device event. Exit 0: reported, 1: --fail-on was met, 2: wrong usage or
    unreadable input.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add("paths", metavar="PATH", nargs="+", help="a trace, a directory or a glob of one job's ranks")
        add("--format", choices=FORMATS, default="text", help="what to write (default text)")
        add("-o", "--output", metavar="FILE", help="write to FILE instead of stdout (- is stdout)")
        counts = "iteration count known beforehand, or one per loop"
        add("--iterations", metavar="N[,N...]", type=parse_counts, default=(), help=counts)
        add("--stream", metavar="DEVICE:STREAM", type=parse_stream, help="main stream, instead of choosing it")
        add(
            "--fail-on",
            metavar="SEVERITY",
            choices=SEVERITIES,
            help="exit 1 on a finding of info, warning, critical or above",
        )
        add("--from", dest="start", metavar="TIME", type=parse_time, help="look only at what follows, such as 2.5s")
        add("--to", dest="end", metavar="TIME", type=parse_time, help="look only at what comes before, such as 4s")
        add("--jobs", metavar="N", type=parse_jobs, help="processes that read (default: what the machine bears)")
        add_columns(parser)
        add("--all", action="store_true", help=f"all findings instead of the first {FINDINGS}")

    def run(self, args: argparse.Namespace) -> int:
        """Read, analyse and report."""
        from deepprof.files import check_target

        args.output = None if args.output == "-" else args.output
        if args.output is not None:
            check_target(args.output)
        analysis = analyze_paths(args)
        limit = None if args.all else FINDINGS
        content = render_json(analysis, limit) if args.format == "json" else render_text(analysis, limit, args.output)
        deliver(content, args)
        return FAILED if args.fail_on and fails(analysis, args.fail_on) else 0


def analyze_paths(args: argparse.Namespace) -> Analysis:
    """Read the traces that the arguments name, and analyse them as one job."""
    with reading() as watch:
        from deepprof.analysis import analyze
        from deepprof.job import read_job

        between = None if args.start is None and args.end is None else (args.start, args.end)
        traces = read_job(args.paths, jobs=args.jobs, between=between, watch=watch, columns=args.columns)
    with progress("analysing"):
        return analyze(traces, counts=args.iterations, stream=args.stream)


def render_json(analysis: Analysis, limit: int | None) -> str:
    """Return the report as JSON."""
    from deepprof.render.json import encode

    return encode(analysis, limit=limit)


def render_text(analysis: Analysis, limit: int | None, output: str | None) -> str:
    """Return the report as text, in stdout's width and colours unless it goes to a file."""
    from io import StringIO

    from rich.console import Console

    from deepprof.render.text import print_report

    console = open_console(sys.stdout)
    if output is not None:
        console = Console(file=StringIO(), width=FILE_WIDTH, color_system=None)
    with console.capture() as capture:  # printed by deliver: rich would end the process when the pipe closes
        print_report(analysis, console, limit=limit)
    return capture.get()


def deliver(content: str, args: argparse.Namespace) -> None:
    """Write the report to the file or to stdout; JSON is UTF-8 wherever it goes, text is what stdout can show."""
    from deepprof.files import write_file

    if args.output is not None:
        write_file(args.output, content.encode())
        return
    stdout = require_stdout()
    rest = content.encode("utf-8" if args.format == "json" else stdout.encoding, "replace")
    while rest:  # an unbuffered stdout (python -u) may take only a part
        rest = rest[stdout.buffer.write(rest) :]


def fails(analysis: Analysis, severity: str) -> bool:
    """Say whether any finding, shown or not, is of `severity` or above."""
    threshold = SEVERITIES.index(severity)
    return any(SEVERITIES.index(finding.severity) >= threshold for finding in analysis.findings)
