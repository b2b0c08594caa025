"""`deepprof flame`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.arguments import CONTEXT_MEASURES, parse_count, parse_seed
from deepprof.commands.inputs import add_inputs, add_layers, add_paths, add_stacks, analyze_paths, choose_rank
from deepprof.commands.output import capture, check_output, deliver

if TYPE_CHECKING:
    import argparse

    import polars as pl
    from rich.console import Console

    from deepprof.analysis import Analysis

LEVELS = 12  # lines within each other, without --depth


class Flame:
    """Draw whose code takes the time: the hottest calling contexts, as a tree.

    Each line has its share and what it took, then the frames: threads, Python functions with their lines, modules,
    operators, ranges and calls, down to the kernels. Kernels of the backward pass stand under the forward operator that
    made them. With --bottom-up a tree begins with what took the time itself, and has its callers within it.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add_paths(parser)
        add(
            "--by",
            choices=CONTEXT_MEASURES,
            default="device",
            help="what is divided up (default device: its busy time, added up)",
        )
        add("--bottom-up", action="store_true", help="from what took it to its callers")
        add("--iteration", metavar="N", type=parse_seed, help="one iteration of the loop, by its number")
        add("--search", metavar="TEXT", help="only frames whose name or file contains TEXT, and what lies within them")
        add("--depth", metavar="N", type=parse_count, default=LEVELS, help=f"levels to show (default {LEVELS})")
        add("--rank", metavar="N", type=parse_seed, help="of a job of several: which rank (default the first)")
        add("-o", "--output", metavar="FILE", help="write to FILE instead of stdout (- is stdout)")
        add_stacks(parser)
        add_layers(parser)
        add_inputs(parser)
        parser.set_defaults(format="text")

    def run(self, args: argparse.Namespace) -> int:
        """Read, analyse and draw."""
        check_output(args)
        analysis = analyze_paths(args, details=args.stacks or None)
        contexts = _choose(analysis, args)
        advice = analysis.without_lines
        deliver(capture(lambda console: _draw(contexts, console, args, advice), args.output), args)
        return 0


def _choose(analysis: Analysis, args: argparse.Namespace) -> pl.DataFrame:
    """Return the contexts of the rank, with `own`, what each of them took."""
    import polars as pl

    from deepprof.analysis.selection import find_main_loop, say_iterations
    from deepprof.collectors.errors import UsageError
    from deepprof.render.flame import MEASURES, derive_own

    rank = choose_rank(analysis, args)
    contexts = analysis.contexts.filter(pl.col("rank") == rank)
    if args.iteration is None:
        return contexts.with_columns(own=MEASURES[args.by].own)
    loop = find_main_loop(analysis, rank)
    taken = analysis.contexts_in_iterations.filter(loop=loop, iteration=args.iteration)
    if taken.is_empty():
        raise UsageError(f"--iteration {args.iteration}: {say_iterations(analysis, rank)}")
    return derive_own(contexts, taken.select("context", whole=MEASURES[args.by].whole))


def _draw(contexts: pl.DataFrame, console: Console, args: argparse.Namespace, advice: str | None) -> None:
    """Draw the contexts; `advice` is how to record functions, where none were."""
    from deepprof.metrics.contexts.views import look_down, look_up
    from deepprof.render.flame import MEASURES, draw_flame, keep_found
    from deepprof.render.page import TextPage

    page, measure, whole = TextPage(console), MEASURES[args.by], int(contexts["own"].sum())
    shown = contexts if args.search is None else keep_found(contexts, args.search)
    tree = (look_up if args.bottom_up else look_down)(shown, shown["own"])
    where = "" if args.iteration is None else f" of iteration {args.iteration}"
    found = "" if args.search is None else f", {measure.write(int(tree.value[0]))} of it in {args.search!r}"
    page.line(f"{measure.title}{where}: {measure.write(whole)}{found}")
    draw_flame(page, tree, measure, args.depth, args.search or "")
    if advice is not None:
        page.skip()
        page.line(f"No function was recorded; {advice}.", "dim")
