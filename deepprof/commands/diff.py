"""`deepprof diff`."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from deepprof.commands.arguments import parse_count, quote
from deepprof.commands.inputs import add_inputs, add_layers, analyze_paths
from deepprof.commands.output import add_output, capture, check_output, deliver
from deepprof.commands.progress import progress
from deepprof.commands.streams import say
from deepprof.plurals import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from deepprof.analysis import Analysis
    from deepprof.results.comparison_result import Comparison, LoopPair

FAILED = 1
REGRESSION = re.compile(r"regression=(?:(\d{1,4}(?:\.\d{1,6})?)%|(0\.\d{1,8}))", re.ASCII)


class Diff:
    """Compare two runs: what got slower, by how much, and which code and which kernels changed.

    A is the run before, B the run after; each is a file, a directory, an archive, a store or a glob of one job's
    ranks. With -o FILE.html the report is a page to examine. Exit 0: reported, 1: --fail-on was met, 2: wrong usage,
    unreadable input or nothing that can be compared.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add("a", metavar="A", help="the run before: a trace, a directory or a glob of one job's ranks")
        add("b", metavar="B", help="the run after")
        add_output(parser)
        regression = "exit 1 where B's median iteration is slower by more than that, and surely slower"
        add("--fail-on", metavar="regression=5%", type=parse_regression, help=regression.replace("%", "%%"))
        add("--top", metavar="N", type=parse_count, help="rows of each table (default: 10 in text, all in JSON)")
        add_inputs(parser)
        add_layers(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read and analyse both, compare and report."""
        from deepprof.collectors.errors import TraceError

        check_output(args)
        if _is_page(args):
            from deepprof.web.html import require_assets

            require_assets()
        runs, comparison = _compare_paths(args)
        if not comparison.pairs:
            sentence = comparison.headline.sentence.rstrip(".")
            advice = "record three or more iterations of the same ranks in both runs"
            raise TraceError(f"{args.a} and {args.b}", sentence[0].lower() + sentence[1:], advice)
        deliver(_write_page(comparison, *runs) if _is_page(args) else render(comparison, args), args)
        return 0 if args.fail_on is None else FAILED * _fails(comparison, args.fail_on)


def parse_regression(text: str) -> float:
    """Return the limit in `regression=5%` or `regression=0.05` as a ratio."""
    found = REGRESSION.fullmatch(text)
    if found is None:
        raise ArgumentTypeError(f"{quote(text)} is not a limit such as regression=5% or regression=0.05")
    return float(found[1]) / 100 if found[1] else float(found[2])


def _compare_paths(args: argparse.Namespace) -> tuple[Sequence[Analysis], Comparison]:
    """Read the two runs that the arguments name, and compare them."""
    runs = [analyze_paths(args, [path], details=None) for path in (args.a, args.b)]
    with progress("comparing"):
        from deepprof.comparison import compare

        return runs, compare(*runs)


def _is_page(args: argparse.Namespace) -> bool:
    return args.format == "text" and str(args.output or "").lower().endswith((".html", ".htm"))


def _write_page(comparison: Comparison, a: Analysis, b: Analysis) -> str:
    from deepprof.web.documents.diff import name_runs
    from deepprof.web.html import write_report
    from deepprof.web.package import write_comparison

    title = " → ".join(name_runs(comparison.a_paths, comparison.b_paths))
    return write_report(title, write_comparison(comparison, a, b)).decode()


def render(comparison: Comparison, args: argparse.Namespace) -> str:
    """Return the report in the format that `args` names."""
    if args.format == "json":
        from deepprof.render.comparison_json import encode

        return encode(comparison, limit=args.top)
    from deepprof.render.comparison_text import OPERATIONS, print_comparison

    limit = args.top or OPERATIONS
    return capture(lambda console: print_comparison(comparison, console, limit=limit), args.output)


def _fails(comparison: Comparison, limit: float) -> bool:
    """Print on stderr the pairs that are slower by more than `limit`; return whether one of them surely is slower."""
    slower = [pair for pair in comparison.pairs if pair.time.ratio - 1 > limit]
    for pair in slower:
        say(f"deepprof: {_describe(pair, limit)}")
    if slower:
        say(f"deepprof: A: {comparison.a_answer.summary}")
        say(f"deepprof: B: {comparison.b_answer.summary}")
    return any(map(_is_sure, slower))


def _is_sure(pair: LoopPair) -> bool:
    """Return whether the interval of a pair's ratio is above 1, which means equal times."""
    return pair.time.low is not None and pair.time.low > 1


def _describe(pair: LoopPair, limit: float) -> str:
    """Return a sentence on how much slower a pair is, and whether that is sure."""
    time, place = pair.time, f"rank {pair.b.rank}, device {pair.b.device}"
    more = f"{place}: iterations are {100 * time.ratio - 100:.3g}% slower, which is more than {100 * limit:.3g}%"
    if _is_sure(pair):
        return f"regression: {more}"
    counts = f"{time.a_iterations} and {counted(time.b_iterations, 'iteration')}"
    return f"no regression: {more}, but not sure with {counts}"
