"""`deepprof flame`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.arguments import CONTEXT_MEASURES, parse_count, parse_seed
from deepprof.commands.daemons import add_daemon
from deepprof.commands.inputs import add_inputs, add_layers, add_paths, add_stacks, analyze_paths, choose_rank
from deepprof.commands.output import capture, check_output, deliver, deliver_bytes

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    import polars as pl
    from rich.console import Console

    from deepprof.analysis import Analysis
    from deepprof.render.flame import FlameMeasure

LEVELS = 12  # lines within each other, without --depth
FLAME_FORMATS = ("text", "json", "collapsed", "speedscope", "pprof")  # of deepprof.render.flame_formats
# Options, and what they are without.
OF_TEXT = {"bottom_up": False, "search": None, "iteration": None, "depth": LEVELS}
BY_MEASURE = ("text", "collapsed")  # the other formats have every measure


class Flame:
    """Draw whose code uses the time: the hottest calling contexts, as a tree.

    Each line has its share and what it needed, then the frames: threads, Python functions with their lines, modules,
    operators, ranges and calls, down to the kernels. Kernels of the backward pass are under the forward operator that
    made them. With --bottom-up a tree begins with what used the time itself, and has its callers within it.

    With --daemon PATH is a job that runs, or ran: its contexts come from the job itself (deepprof run --contexts),
    as sums over its whole time or, with --from and --to, a part of it, counted from when the daemon first saw the job.

    Other programs read --format collapsed (flamegraph.pl, inferno), speedscope and pprof (go tool pprof).
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add_paths(parser)
        add(
            "--by",
            choices=CONTEXT_MEASURES,
            help="what is divided up (default device: its busy time, added up; of a running job without it, host)",
        )
        add("--bottom-up", action="store_true", help="from what took it to its callers")
        add("--iteration", metavar="N", type=parse_seed, help="one iteration of the loop, by its number")
        add("--search", metavar="TEXT", help="only frames whose name or file contains TEXT, and what lies within them")
        add("--depth", metavar="N", type=parse_count, default=LEVELS, help=f"levels to show (default {LEVELS})")
        add("--rank", metavar="N", type=parse_seed, help="of a job of several: which rank (default the first)")
        add("--format", choices=FLAME_FORMATS, default="text", help="what to write (default text)")
        add("-o", "--output", metavar="FILE", help="write to FILE instead of stdout (- is stdout)")
        add_stacks(parser)
        add_layers(parser)
        add_inputs(parser)
        add_daemon(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read, analyse and draw."""
        check_output(args)
        _check_format(args)
        (_show_sent if args.daemon is not None else _show_recorded)(args)
        return 0


def _check_format(args: argparse.Namespace) -> None:
    """Raise `UsageError` for options that only the text has."""
    from deepprof.collectors.errors import UsageError

    given = [name for name, without in OF_TEXT.items() if getattr(args, name) != without]
    if args.format != "text" and given:
        raise UsageError(f"--{given[0].replace('_', '-')}: --format {args.format} has all contexts; leave one out")
    if args.by is not None and args.format not in BY_MEASURE:
        raise UsageError(f"--by {args.by}: --format {args.format} has all measures; leave one out")


def _show_recorded(args: argparse.Namespace) -> None:
    from deepprof.render.flame import MEASURES
    from deepprof.render.flame_formats import FlameOrigin, write_flame_format

    analysis = analyze_paths(args, details=args.stacks or None)
    args.by = args.by or "device"
    contexts = _choose(analysis, args)
    if args.format == "text":
        advice = analysis.without_lines
        last = None if advice is None else f"No function was recorded; {advice}."
        deliver(capture(lambda console: _draw(contexts, console, args, MEASURES, last), args.output), args)
        return
    origin = FlameOrigin(job=", ".join(args.paths), rank=choose_rank(analysis, args))
    deliver_bytes(write_flame_format(args.format, contexts, origin, MEASURES, args.by), args)


def _show_sent(args: argparse.Namespace) -> None:
    """Show the contexts that a running job sends."""
    from deepprof.commands.flame_live import read_flame, say_left_out
    from deepprof.render.flame import SENT_MEASURES
    from deepprof.render.flame_formats import FlameOrigin, write_flame_format

    sent = read_flame(args)
    args.by = args.by or ("device" if sent.contexts["device_ns"][0] else "host")
    contexts = sent.contexts.with_columns(own=SENT_MEASURES[args.by].own)
    if args.format == "text":
        last = say_left_out(contexts)
        deliver(capture(lambda console: _draw(contexts, console, args, SENT_MEASURES, last), args.output), args)
        return
    origin = FlameOrigin(job=sent.job, rank=sent.rank, start_unix_ns=sent.start_ns, end_unix_ns=sent.end_ns)
    deliver_bytes(write_flame_format(args.format, sent.contexts, origin, SENT_MEASURES, args.by), args)


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


def _draw(
    contexts: pl.DataFrame,
    console: Console,
    args: argparse.Namespace,
    measures: Mapping[str, FlameMeasure],
    last: str | None,
) -> None:
    """Draw the contexts; `last` is a line below them."""
    from deepprof.metrics.contexts.views import look_down, look_up
    from deepprof.render.flame import draw_flame, keep_found
    from deepprof.render.page import TextPage

    page, measure, whole = TextPage(console), measures[args.by], int(contexts["own"].sum())
    shown = contexts if args.search is None else keep_found(contexts, args.search)
    tree = (look_up if args.bottom_up else look_down)(shown, shown["own"])
    where = "" if args.iteration is None else f" of iteration {args.iteration}"
    found = "" if args.search is None else f", {measure.write(int(tree.value[0]))} of it in {args.search!r}"
    page.line(f"{measure.title}{where}: {measure.write(whole)}{found}")
    draw_flame(page, tree, measure, args.depth, args.search or "")
    if last is not None:
        page.skip()
        page.line(last, "dim")
