"""Parts that the commands that analyse a job share: the options on traces and on parts of them, and reading them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from deepprof.commands.arguments import (
    StoreIterations,
    add_columns,
    parse_iterations,
    parse_jobs,
    parse_numbers,
    parse_stream,
    parse_time,
)
from deepprof.commands.progress import progress, reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deepprof.analysis import Analysis
    from deepprof.collectors.layers.layers_file import ModelLayers
    from deepprof.collectors.stalls.stall_reasons import StallExport
    from deepprof.collectors.trace import Trace
    from deepprof.job.part import Between
    from deepprof.metrics.cost.roofs import DevicePeaks


def add_paths(parser: argparse.ArgumentParser) -> None:
    """Add PATH: one path of a job, or several."""
    parser.add_argument("paths", metavar="PATH", nargs="+", help="a trace, a directory or a glob of one job's ranks")


def add_inputs(parser: argparse.ArgumentParser, *, until: str = "--to") -> None:
    """Add the options on how traces are read and mined; `until` is the name of the option for the end of the range."""
    add = parser.add_argument
    counts = "iteration count known beforehand, or one per loop; FIRST:LAST looks only at these iterations"
    metavar = "N[,N...]|FIRST:LAST"
    add("--iterations", metavar=metavar, type=parse_iterations, action=StoreIterations, default=(), help=counts)
    add("--stream", metavar="DEVICE:STREAM", type=parse_stream, help="main stream, instead of choosing it")
    add("--from", dest="start", metavar="TIME", type=parse_time, help="look only at what follows, such as 2.5s")
    add(until, dest="end", metavar="TIME", type=parse_time, help="look only at what comes before, such as 4s")
    _add_selection(parser)
    text = "the traces are of processes that ran on one machine at the same time, and on one device if each has but one"
    add("--same-device", action="store_true", help=text)
    add("--jobs", metavar="N", type=parse_jobs, help="processes that read (default: what the machine bears)")
    add_columns(parser)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options on parts of a job; several are combined."""
    add = parser.add_argument
    parser.set_defaults(chosen=None)
    add(
        "--range", metavar="NAME", help="look only at what ran in ranges of this name (deepprof.range, NVTX); * matches"
    )
    text = "look only at kernels FIRST to LAST - 1 of each device, counted from 0 in order of launch"
    add("--grid", metavar="FIRST:LAST", type=parse_numbers, help=text)
    add("--layer", metavar="NAME", help="look only at a layer of the model, by its path, and all below it")


def find_selection(args: argparse.Namespace) -> dict[str, Any]:
    """Return what `args` selects, as options of `select`."""
    given = {"range": args.range, "grid": args.grid, "iterations": args.chosen, "layer": args.layer}
    return {name: value for name, value in given.items() if value is not None}


def analyze_selected(traces: Sequence[Trace], args: argparse.Namespace, peaks: DevicePeaks | None = None) -> Analysis:
    """Analyse the part of a job that `args` selects, with the options in `args`; the whole without a selection."""
    from deepprof.analysis import analyze

    part, options = select_part(traces, args)
    return analyze(part, peaks=peaks, **options)


def select_part(traces: Sequence[Trace], args: argparse.Namespace) -> tuple[Sequence[Trace], dict[str, Any]]:
    """Return the part of a job that `args` selects, the whole without a selection, and the options to analyse it."""
    options = {"counts": args.iterations, "stream": args.stream, "same_device": args.same_device}
    if selected := find_selection(args):
        from deepprof.analysis.selection import select

        traces = select(traces, **selected, **options)
        options |= {"counts": (), "stream": None}  # which are of the whole
    return traces, options


def choose_rank(analysis: Analysis, args: argparse.Namespace) -> int:
    """Return the rank that `--rank` names, the first one without; raises `UsageError` for one that there is not."""
    from deepprof.collectors.errors import UsageError

    numbers = [recording.rank or 0 for recording in analysis.recordings]
    if args.rank is not None and args.rank not in numbers:
        raise UsageError(f"--rank {args.rank}: there is no such rank; there are {min(numbers)} to {max(numbers)}")
    return numbers[0] if args.rank is None else int(args.rank)


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add `--cluster`."""
    text = "have Dask workers look at the ranks: a scheduler's address (tcp://HOST:PORT), or local to start --jobs"
    parser.add_argument("--cluster", metavar="ADDRESS", help=text)


def find_between(args: argparse.Namespace) -> Between | None:
    """Return the range of time that `--from` and `--to` name, None without either."""
    return None if args.start is None and args.end is None else (args.start, args.end)


def analyze_in_cluster(args: argparse.Namespace) -> Analysis:
    """Analyse as `analyze_paths` does, on the workers of the cluster that `args` names; the analysis has no traces."""
    with reading() as watch:
        from deepprof.cluster.connection import check_address, connect
        from deepprof.cluster.mapping import analyze_on
        from deepprof.job import find_files
        from deepprof.libraries import count_cpus

        refuse_selection(args, "traces that are read here; leave it out with --cluster")
        check_address(args.cluster, jobs=args.jobs)
        between = find_between(args)
        files = find_files(args.paths)
        with connect(args.cluster, workers=min(args.jobs or count_cpus(), len(files.paths))) as client:
            asked = {name: getattr(args, name) for name in ("stream", "columns", "shapes", "same_device")}
            asked |= {"counts": args.iterations}
            return analyze_on(client, files, between=between, watch=watch, **asked)


def refuse_selection(args: argparse.Namespace, home: str) -> None:
    """Raise `UsageError` for a part of a job, where its traces are read elsewhere; `home` states what it is for."""
    from deepprof.collectors.errors import UsageError

    for name, value in find_selection(args).items():
        given = f"--{name} {value[0] or ''}:{value[1] or ''}" if name == "iterations" else f"--{name}"
        raise UsageError(f"{given} is for {home}")


def add_stacks(parser: argparse.ArgumentParser) -> None:
    """Add `--stacks` and `--hlo`."""
    text = "read call stacks in formats where that takes longer, too"
    parser.add_argument("--stacks", action="store_true", help=text)
    text = "JAX: the folder of XLA_FLAGS=--xla_dump_to=DIR, for profiles that do not hold the compiled programs"
    parser.add_argument("--hlo", metavar="DIR", help=text)


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Add `--no-shapes`, and `--shapes`, the default."""
    text = "leave out the shapes of operators and launches, with which products are compared with the device's peaks"
    parser.add_argument("--no-shapes", dest="shapes", action="store_false", help=text)
    parser.add_argument("--shapes", action="store_true", default=True, help=argparse.SUPPRESS)


def add_peaks(parser: argparse.ArgumentParser) -> None:
    """Add `--peaks`."""
    text = "peaks of a device, of a file, or cpu or cuda as deepprof peak measured them (default: the device's own)"
    parser.add_argument("--peaks", metavar="NAME|FILE", help=text)


def add_layers(parser: argparse.ArgumentParser) -> None:
    """Add `--layers`."""
    text = "the layers of the model: what `deepprof layers` wrote, or the model as ONNX"
    parser.add_argument("--layers", metavar="FILE", help=text)


def analyze_paths(
    args: argparse.Namespace,
    paths: Sequence[str] | None = None,
    *,
    details: bool | None = False,
    ncu: str | None = None,
) -> Analysis:
    """Read the traces in `paths` (or those that `args` names) with the options in `args`; analyse them as one job.

    `details` is that of `read_job`, `ncu` a file with the stall reasons of kernels.
    """
    with reading() as watch:
        from deepprof.job import read_job

        between = find_between(args)
        named = args.paths if paths is None else paths
        options = {"between": between, "columns": args.columns, "details": details}
        options["shapes"] = getattr(args, "shapes", True)
        stalls = None if ncu is None else _read_stalls(ncu)  # first: a wrong file shall not cost the time of reading
        peaks = _load_peaks(args)
        layers = _read_layers(args.layers) if getattr(args, "layers", None) else None
        traces = read_job(named, jobs=args.jobs, watch=watch, **options)
        if getattr(args, "hlo", None):
            traces = _attach_dump(traces, args.hlo)
        if stalls is not None:
            traces = _give_stalls(traces, stalls)
        if layers is not None:
            traces = _give_layers(traces, layers)
    with progress("analysing"):
        return analyze_selected(traces, args, peaks)


def _load_peaks(args: argparse.Namespace) -> DevicePeaks | None:
    """Return the peaks that `args` names, None for the device's own."""
    if getattr(args, "peaks", None) is None:
        return None
    from deepprof.metrics.cost.peak_files import load_peaks

    return load_peaks(args.peaks)


def _attach_dump(traces: Sequence[Trace], folder: str) -> list[Trace]:
    from pathlib import Path

    from deepprof.collectors.importers.xla.dumps import attach_dump

    return [attach_dump(trace, Path(folder)) for trace in traces]


def _read_stalls(name: str) -> StallExport:
    from pathlib import Path

    from deepprof.collectors.stalls.stall_reasons import read_stalls

    return read_stalls(Path(name))


def _give_stalls(traces: list[Trace], stalls: StallExport) -> list[Trace]:
    from deepprof.collectors.stalls.kernel_stalls import give_stalls

    return give_stalls(traces, stalls)


def _read_layers(name: str) -> ModelLayers:
    from pathlib import Path

    from deepprof.collectors.layers.layers_file import read_layers

    return read_layers(Path(name))


def _give_layers(traces: list[Trace], layers: ModelLayers) -> list[Trace]:
    from deepprof.collectors.layers.given_layers import give_layers

    return give_layers(traces, layers)
