"""`deepprof export`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from deepprof.commands.arguments import CONTEXT_MEASURES
from deepprof.commands.inputs import add_inputs, add_layers, add_paths, add_stacks, analyze_paths
from deepprof.commands.progress import progress
from deepprof.commands.streams import say
from deepprof.plurals import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import BinaryIO

    from deepprof.analysis import Analysis

TARGETS = ("perfetto", "speedscope", "collapsed", "pprof", "state-graph", "csv", "parquet")
OF_LOOPS = ("state-graph",)  # targets that show nothing without an iteration
CONTEXT_TARGETS = ("speedscope", "collapsed", "pprof")
TABLES = ("iterations", "events", "findings")
DOT = (".dot", ".gv")  # the names of files for Graphviz
COMPRESSION = 5  # level for .gz: the usual 6 uses three times as long for files that are 6 % smaller


class Export:
    """Write what was found in a trace for another tool.

    Targets:
      perfetto      a trace for ui.perfetto.dev: all events, with iterations, nested loops, idle causes and findings
                    on their own tracks
      speedscope    one iteration, the median of all, and the calling contexts, for www.speedscope.app
      collapsed     the calling contexts as stacks, for flamegraph.pl, inferno and speedscope; --by states what counts
      pprof         the calling contexts with all that they needed, for go tool pprof, Pyroscope and Parca
      state-graph   what the device does and waits for in an iteration, and in which order, with the paper's Table III:
                    a picture (SVG), or for Graphviz where FILE ends with .dot or .gv
      csv, parquet  the per-iteration table; with --what, all device events or the findings
    A FILE that ends with .gz is compressed. --from and --until count from the job's first device event.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add_paths(parser)
        add("--to", choices=TARGETS, required=True, metavar="TARGET", help=", ".join(TARGETS))
        add("-o", "--output", metavar="FILE", required=True, help="file to write")
        add("--flows", action="store_true", help="perfetto: arrows from launches to kernels")
        add(
            "--by",
            choices=CONTEXT_MEASURES,
            help="collapsed: what is divided up (default device)",
        )
        add("--what", choices=TABLES, help="csv, parquet: which table (default iterations)")
        add_stacks(parser)
        add_layers(parser)
        add_inputs(parser, until="--until")

    def run(self, args: argparse.Namespace) -> int:
        """Read, analyse and write; print on stderr what the file contains."""
        from deepprof.files import check_target

        _check_options(args)
        check_target(args.output)
        analysis = analyze_paths(args, details=args.to in CONTEXT_TARGETS and (args.stacks or None))
        _require_iterations(analysis, args)
        with progress("writing"), _open_target(args.output) as file:
            written = write(analysis, file, args)
        say(f"{args.output}: {written}")
        return 0


def _check_options(args: argparse.Namespace) -> None:
    """Raise `UsageError` for an option that the target does not have."""
    from deepprof.collectors.errors import UsageError

    if args.flows and args.to != "perfetto":
        raise UsageError(f"--flows: {args.to} shows no arrows; leave it out or choose --to perfetto")
    given = "--stacks" if args.stacks else "--hlo" if args.hlo else None
    if given and args.to not in CONTEXT_TARGETS:
        raise UsageError(f"{given}: {args.to} shows no calling contexts; leave it out or choose --to pprof")
    if args.by and args.to != "collapsed":
        raise UsageError(f"--by: {args.to} has no number of its own; leave it out or choose --to collapsed")
    if args.what and args.to not in {"csv", "parquet"}:
        raise UsageError(f"--what: {args.to} is no table; leave it out or choose --to csv or parquet")


def _require_iterations(analysis: Analysis, args: argparse.Namespace) -> None:
    """Raise `TraceError` where the output needs iterations and there are none."""
    from deepprof.collectors.errors import TraceError

    table = args.to in {"csv", "parquet"} and args.what in {None, "iterations"}
    if (table or args.to in OF_LOOPS) and not analysis.loops:
        problem = f"no iteration found: {analysis.no_loop_reason}"
        raise TraceError(", ".join(args.paths), problem, "--to perfetto shows the trace without iterations")


@contextmanager
def _open_target(path: str) -> Iterator[BinaryIO]:
    """Open the file to write, compressed if its name ends with .gz: the bytes do not depend on the time of writing."""
    from deepprof.files import open_file

    with open_file(path) as file:
        if path.endswith(".gz"):
            import gzip

            with gzip.GzipFile("", "wb", COMPRESSION, file, mtime=0) as packed:
                yield cast("BinaryIO", packed)
        else:
            yield file


def write(analysis: Analysis, file: BinaryIO, args: argparse.Namespace) -> str:
    """Write the target to `file` and return a line on what was written."""
    if args.to == "perfetto":
        from deepprof.render.perfetto import write_perfetto

        written = write_perfetto(analysis, file, flows=args.flows)
        arrows = f", {written.flows:,} arrows" if args.flows else ""
        return f"{written.slices:,} slices on {written.tracks:,} tracks ({written.dropped:,} dropped){arrows}"
    if args.to == "speedscope":
        from deepprof.render.speedscope import write_speedscope

        return write_speedscope(analysis, file)
    if args.to == "collapsed":
        from deepprof.render.collapsed import write_collapsed
        from deepprof.render.flame import MEASURES

        return write_collapsed(analysis.contexts, file, MEASURES[args.by or "device"])
    if args.to == "pprof":
        from deepprof.render.pprof import write_pprof

        return write_pprof(analysis.contexts, file)
    if args.to == "state-graph":
        return _write_state_graph(analysis, file, args.output)
    from deepprof.render.tabular import table_of, write_table

    table = table_of(analysis, args.what or "iterations")
    write_table(table, file, args.to)
    return f"{table.height:,} rows of {table.width} columns"


def _write_state_graph(analysis: Analysis, file: BinaryIO, path: str) -> str:
    """Write the state graph of the loop that the report is about, as the name of the file states."""
    from deepprof.diagnosis.answer import choose_loop
    from deepprof.render.wording import wording_of
    from deepprof.web.documents.places import name_loop
    from deepprof.web.documents.states import write_states
    from deepprof.web.state_graph import draw_svg, write_dot

    loop = choose_loop(analysis) or analysis.loops[0]
    title = f"State graph of {name_loop(loop, wording_of(analysis))}"
    document = write_states(analysis, analysis.loops.index(loop))
    draw = write_dot if path.removesuffix(".gz").endswith(DOT) else draw_svg
    file.write(draw(document, title).encode())
    states, changes = counted(len(document.nodes), "state"), counted(len(document.edges), "transition")
    return f"{states}, {changes}"
