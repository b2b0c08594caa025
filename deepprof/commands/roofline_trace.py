"""`deepprof roofline` of a trace: its kernels and layers next to the peaks of their device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.arguments import parse_count, parse_seed
from deepprof.commands.inputs import analyze_paths, choose_rank
from deepprof.commands.output import capture, deliver

if TYPE_CHECKING:
    import argparse

    from deepprof.analysis import Analysis
    from deepprof.render.roofline_report import RooflineReport

BY = ("operator", "layer", "kernel")
FORMATS = ("text", "json", "csv")
PICTURES = ("svg", "html")  # only by the name of -o
SHOWN = 15  # rows in text without --top
# What to do, by what is missing.
NO_SHAPES = (
    "no shapes of operators are recorded",
    "give a trace of torch.profiler.profile(record_shapes=True, …)",
)
NO_KERNEL = ("no kernel ran in an iteration or marked step", "record several iterations that use the device")


def add_trace_options(group: argparse._ArgumentGroup) -> None:
    """Add what only a trace needs."""
    add = group.add_argument
    add("--by", choices=BY, help="what rows are (default operator, with its operands)")
    add("--rank", metavar="N", type=parse_seed, help="of a job of several: which rank (default the first)")
    add("--top", metavar="N", type=parse_count, help=f"rows to show (default {SHOWN} in text, else all)")
    add("--format", choices=FORMATS, help="what to write (default text, or what the name of -o ends with)")


def run_trace(args: argparse.Namespace) -> int:
    """Read the traces, compare them with the peaks and report."""
    args.format, args.by = _choose_format(args), args.by or BY[0]
    peaks = None
    if args.peaks is not None:  # first: a wrong name shall not cost the time of reading
        from deepprof.metrics.cost.peak_files import load_peaks

        peaks = load_peaks(args.peaks)
    report = _find_report(analyze_paths(args, details=None), args)
    if peaks is not None:
        from msgspec.structs import replace

        from deepprof.metrics.cost.loop_roofline import rate_roofline

        report = replace(report, roofline=rate_roofline(report.roofline, peaks))
    deliver(_write(report, args), args)
    return 0


def _choose_format(args: argparse.Namespace) -> str:
    """Return the format that `--format` names, or else the name of the output."""
    suffix = (args.output or "").rpartition(".")[2].lower()
    return str(args.format or (suffix if suffix in {*FORMATS, *PICTURES} else FORMATS[0]))


def _find_report(analysis: Analysis, args: argparse.Namespace) -> RooflineReport:
    """Return the roofline of the rank's longest loop, or of its marked step or recording.

    Raises `UsageError` for a rank that there is not, and `TraceError` where no shapes were recorded.
    """
    from deepprof.collectors.errors import TraceError
    from deepprof.render.roofline_report import list_reports

    choose_rank(analysis, args)
    reports = [each for each in list_reports(analysis) if args.rank in (None, each.rank)]
    if not reports:
        without = all(trace.operands.is_empty() for trace in analysis.traces)
        raise TraceError(", ".join(args.paths), *(NO_SHAPES if without else NO_KERNEL))
    first = min(each.rank for each in reports)
    return max((each for each in reports if each.rank == first), key=lambda each: each.iterations * each.mean_ns)


def _write(report: RooflineReport, args: argparse.Namespace) -> str:
    from deepprof.metrics.cost.roofline_rows import list_rows
    from deepprof.render.roofline_report import encode_roofline, print_roofline, write_roofline

    rows = list_rows(report.roofline.groups, args.by)
    if args.format == "text":
        most = args.top or SHOWN
        return capture(lambda console: print_roofline(report, rows, args.by, console, most), args.output)
    shown = rows if args.top is None else rows.head(args.top)
    if args.format in PICTURES:
        return write_roofline(report, shown, args.by, args.output)
    return shown.write_csv() if args.format == "csv" else encode_roofline(report, shown, args.by)
