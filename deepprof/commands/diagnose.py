"""`deepprof diagnose`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from deepprof.commands.daemons import add_daemon, analyze_window
from deepprof.commands.inputs import (
    add_cluster,
    add_inputs,
    add_layers,
    add_paths,
    add_peaks,
    add_shapes,
    analyze_in_cluster,
    analyze_paths,
)
from deepprof.commands.output import add_output, capture, check_output, deliver
from deepprof.commands.streams import say
from deepprof.diagnosis import MAX_FINDINGS, SEVERITIES
from deepprof.plurals import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from deepprof.analysis import Analysis

FAILED = 1


class Diagnose:
    """Find the training iteration in a trace and state where its time goes.

    PATH is a file, a directory, an archive, a store or a glob of one job's ranks; the format is recognised by content.
    With --daemon, PATH is the name of a job that the daemon has, and what it keeps of its records is read.
    --from and --to count from the job's first device event. Exit 0: reported, 1: --fail-on was met, 2: wrong usage or
    unreadable input.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add_paths(parser)
        add_output(parser)
        add(
            "--fail-on",
            metavar="SEVERITY",
            choices=SEVERITIES,
            help="exit 1 on a finding of info, warning, critical or above",
        )
        add_inputs(parser)
        add_cluster(parser)
        add("--ncu", metavar="FILE", help="why kernels stall: what ncu --csv --page raw wrote of the same program")
        add_layers(parser)
        add_shapes(parser)
        add_peaks(parser)
        add("-v", "--verbose", action="store_true", help="also how the iteration was found, and all notes")
        add("--all", action="store_true", help=f"all findings instead of the first {MAX_FINDINGS}")
        add_daemon(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read, analyse and report."""
        check_output(args)
        analysis = _choose_source(args)(args)
        limit = None if args.all else MAX_FINDINGS
        content = _render_json(analysis, limit) if args.format == "json" else _render_text(analysis, limit, args)
        deliver(content, args)
        if args.fail_on and not analysis.loops:
            say("--fail-on: no iteration was found, so that rules on iterations had nothing to examine")
        failed = bool(args.fail_on) and _fails(analysis, args.fail_on)
        if failed:
            _explain_failure(analysis, args.fail_on)
        return FAILED if failed else 0


def _choose_source(args: argparse.Namespace) -> Callable[[argparse.Namespace], Analysis]:
    """Return the function that reads and analyses: a daemon's window, or files in a cluster or in this process."""
    _check_given(args)
    if args.daemon is not None:
        return analyze_window
    if args.cluster is not None:
        return analyze_in_cluster
    return partial(analyze_paths, details=None, ncu=args.ncu)


def _check_given(args: argparse.Namespace) -> None:
    """Raise `UsageError` for files that belong to traces, or their devices, where this process does not read these."""
    from deepprof.collectors.errors import UsageError

    given = next((name for name in ("ncu", "layers", "peaks") if getattr(args, name) is not None), None)
    if given is not None and (args.daemon is not None or args.cluster is not None):
        option = "--cluster" if args.daemon is None else "--daemon"
        raise UsageError(f"--{given} is for traces that are read here; leave it out with {option}")


def _explain_failure(analysis: Analysis, severity: str) -> None:
    """Print on stderr why --fail-on was met, with the report's answer."""
    from deepprof.render.answer import summarize_answer

    found = counted(_count_severe(analysis, severity), "finding")
    say(f"deepprof: --fail-on {severity}: {found}. {summarize_answer(analysis)}")


def _render_json(analysis: Analysis, limit: int | None) -> str:
    from deepprof.render.json import encode

    return encode(analysis, limit=limit)


def _render_text(analysis: Analysis, limit: int | None, args: argparse.Namespace) -> str:
    from deepprof.render.text import print_report

    return capture(lambda console: print_report(analysis, console, limit=limit, verbose=args.verbose), args.output)


def _fails(analysis: Analysis, severity: str) -> bool:
    """Return whether any finding, shown or not, is of `severity` or above."""
    return _count_severe(analysis, severity) > 0


def _count_severe(analysis: Analysis, severity: str) -> int:
    """Return the number of findings, shown or not, of `severity` or above."""
    severe = SEVERITIES[SEVERITIES.index(severity) :]
    return sum(finding.severity in severe for finding in analysis.findings)
