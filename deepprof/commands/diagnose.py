"""`deepprof diagnose`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.inputs import add_inputs, add_paths, analyze_paths
from deepprof.commands.output import add_output, capture, check_output, deliver

if TYPE_CHECKING:
    import argparse

    from deepprof.analysis import Analysis

__all__ = ["Diagnose"]

SEVERITIES = ("info", "warning", "critical")  # diagnosis.finding has the same; --help must not load it
FINDINGS = 5
FAILED = 1


class Diagnose:
    """Find the training iteration in a trace and say where its time goes.

    PATH is a file, a directory, an archive, a store or a glob of one job's ranks; the format is recognised by content.
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
        add("--all", action="store_true", help=f"all findings instead of the first {FINDINGS}")

    def run(self, args: argparse.Namespace) -> int:
        """Read, analyse and report."""
        check_output(args)
        analysis = analyze_paths(args)
        limit = None if args.all else FINDINGS
        content = render_json(analysis, limit) if args.format == "json" else render_text(analysis, limit, args.output)
        deliver(content, args)
        return FAILED if args.fail_on and fails(analysis, args.fail_on) else 0


def render_json(analysis: Analysis, limit: int | None) -> str:
    """Return the report as JSON."""
    from deepprof.render.json import encode

    return encode(analysis, limit=limit)


def render_text(analysis: Analysis, limit: int | None, output: str | None) -> str:
    """Return the report as text."""
    from deepprof.render.text import print_report

    return capture(lambda console: print_report(analysis, console, limit=limit), output)


def fails(analysis: Analysis, severity: str) -> bool:
    """Say whether any finding, shown or not, is of `severity` or above."""
    threshold = SEVERITIES.index(severity)
    return any(SEVERITIES.index(finding.severity) >= threshold for finding in analysis.findings)
