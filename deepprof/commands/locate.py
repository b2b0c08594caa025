"""`deepprof locate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.arguments import parse_count, parse_seed, quote
from deepprof.commands.inputs import add_inputs, add_layers, add_paths, analyze_paths, choose_rank
from deepprof.commands.output import add_output, capture, check_output, deliver

if TYPE_CHECKING:
    import argparse

    import polars as pl

    from deepprof.collectors.trace import Trace
    from deepprof.metrics.contexts.kernel_totals import Amount
    from deepprof.metrics.contexts.tree import ContextTree
    from deepprof.render.located import LocatedBlock, LocateReport

OWN = "own:"
QUESTIONS = ("most-called", "longest", "most-bytes", "most-memory")
VALUES = {"most-called": "calls", "longest": "device_ns", "most-bytes": "nbytes"}
NO_BYTES = "the bytes of kernels are not known: no shapes of operators are recorded (record_shapes=True)"
NO_ADDRESS = ("has no allocations with their addresses", "record them with torch.profiler.profile(profile_memory=True)")
NO_KERNEL = ("has no kernel or copy", "record a program that uses the device")


class Locate:
    """Find the kernel that is called most, runs longest or moves most bytes, and the code that launches it.

    WHAT is most-called, longest (most time in all), most-bytes (copies too), most-memory (what is in use at the peak,
    by operator and size, in a snapshot by call stack) or own:EXPRESSION, such as own:registers*calls: numbers,
    + - * / ( ) and the columns calls, device_ns, mean_ns, min_ns, max_ns, nbytes, grid, block, registers and
    shared_nbytes. The stack runs from Python over operators to the device. Details are read: call stacks, shapes, how
    kernels were launched.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add("what", metavar="WHAT", type=_parse_question, help=f"{', '.join(QUESTIONS)} or own:EXPRESSION")
        add_paths(parser)
        add("--top", metavar="N", type=parse_count, default=1, help="the first N (default 1)")
        add("--rank", metavar="N", type=parse_seed, help="of a job of several: which rank (default the first)")
        add_output(parser)
        add_layers(parser)
        add_inputs(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read, analyse and state where."""
        check_output(args)
        _order_by(args.what)  # first: a wrong expression shall not cost the time of reading
        analysis = analyze_paths(args, details=True)
        rank = choose_rank(analysis, args)
        trace, tree = analysis.find_trace(rank), analysis.context_trees[rank]
        find = _locate_memory if args.what == "most-memory" else _locate_kernels
        deliver(_write(find(trace, tree, args), args), args)
        return 0


def _parse_question(text: str) -> str:
    from argparse import ArgumentTypeError

    if text in QUESTIONS or text.startswith(OWN):
        return text
    raise ArgumentTypeError(f"{quote(text)} is none of {', '.join(QUESTIONS)} and own:EXPRESSION")


def _order_by(what: str) -> pl.Expr:
    """Return what kernels are ordered by; raises `UsageError` for an expression that is none."""
    import polars as pl

    from deepprof.metrics.contexts.kernel_expressions import parse_expression
    from deepprof.metrics.contexts.kernel_totals import NUMBERS

    if what.startswith(OWN):
        return parse_expression(what.removeprefix(OWN), NUMBERS)
    return pl.col(VALUES.get(what, "calls")).cast(pl.Float64)


def _write(report: LocateReport, args: argparse.Namespace) -> str:
    from deepprof.render.located import encode_located, print_located
    from deepprof.render.page import TextPage

    if args.format == "json":
        return encode_located(report)
    return capture(lambda console: print_located(report, TextPage(console)), args.output)


def _locate_kernels(trace: Trace, tree: ContextTree, args: argparse.Namespace) -> LocateReport:
    """Return the kernels with the largest values; raises `TraceError` where no kernel has one."""
    import polars as pl

    from deepprof.collectors.errors import TraceError
    from deepprof.metrics.contexts.kernel_totals import list_calls, total_calls
    from deepprof.render.located import LocateReport

    calls = list_calls(trace, tree)
    totals = total_calls(calls)
    if totals.is_empty():
        raise TraceError(trace.path, *NO_KERNEL)
    kernels = totals if args.what == "most-bytes" else totals.filter(pl.col("activity").is_in(["kernel", "graph"]))
    found = kernels.with_columns(value=_order_by(args.what)).drop_nulls("value")
    if found.is_empty():
        because = "what it needs is not recorded"
        if args.what.startswith(OWN):
            because = f"it divides by zero, or {because}"
        advice = "name other columns, or record shapes (record_shapes=True)"
        raise TraceError(trace.path, f"{args.what} has no value for any kernel: {because}", advice)
    ordered = found.sort("value", "device_ns", "name_id", descending=[True, True, False])
    whole = int(totals["device_ns"].sum())
    blocks = [_describe_kernel(row, whole, calls, tree, trace, args.what) for row in ordered.head(args.top).to_dicts()]
    unknown = totals.filter(pl.col("activity") == "kernel")["nbytes"].null_count() and args.what == "most-bytes"
    notes = [NO_BYTES] if unknown and trace.operands.is_empty() else []
    return LocateReport(by=args.what, rank=trace.rank or 0, total=ordered.height, located=blocks, notes=notes)


def _describe_kernel(  # noqa: PLR0913, PLR0917  one row and what it is looked up in
    row: dict[str, object], whole_ns: int, calls: pl.DataFrame, tree: ContextTree, trace: Trace, what: str
) -> LocatedBlock:
    """Return one kernel with the place that launched it most."""
    from deepprof.metrics.contexts.kernel_totals import find_place_of
    from deepprof.render.located import LocatedBlock, list_frames

    name_id, activity, device_ns = int(str(row.pop("name_id"))), str(row["activity"]), int(str(row["device_ns"]))
    by: Amount = "calls" if what == "most-called" else "nbytes" if what == "most-bytes" else "device_ns"
    place = find_place_of(calls, tree, (name_id, activity), by)
    return LocatedBlock(
        name=trace.name(name_id),
        share_ratio=device_ns / whole_ns if whole_ns else None,
        places=place.places,
        stack_calls=place.calls,
        stack_ns=place.device_ns,
        stack=list_frames(place.frames),
        **row,  # type: ignore[arg-type]
    )


def _locate_memory(trace: Trace, tree: ContextTree, args: argparse.Namespace) -> LocateReport:
    """Return the allocations that hold most memory at the peak; raises `TraceError` where none are recorded."""
    from deepprof.collectors.errors import TraceError
    from deepprof.metrics.memory.peak_allocations import find_allocation, find_peak
    from deepprof.render.located import LocatedBlock, LocateReport, list_frames
    from deepprof.render.units import format_bytes

    peak = find_peak(trace, tree)
    if peak is None or peak.held.is_empty():
        raise TraceError(trace.path, *NO_ADDRESS)
    whole = peak.in_use_nbytes or peak.known_nbytes
    blocks = [
        LocatedBlock(
            name=row["operator"] or row["line"],
            activity="allocation",
            value=row["nbytes"],
            calls=row["calls"],
            nbytes=row["nbytes"],
            piece_nbytes=row["piece_nbytes"],
            share_ratio=row["nbytes"] / whole if whole else None,
            stack=list_frames(find_allocation(trace, tree, row["event"])),
        )
        for row in peak.held.head(args.top).to_dicts()
    ]
    earlier = whole - peak.known_nbytes
    notes = [f"at the peak {format_bytes(whole)} are in use"]
    if earlier > 0:
        notes[0] += f", of which {format_bytes(earlier)} were allocated before the recording began"
    return LocateReport(
        by=args.what,
        rank=trace.rank or 0,
        device=peak.device,
        in_use_nbytes=peak.in_use_nbytes,
        total=peak.held.height,
        located=blocks,
        notes=notes,
    )
