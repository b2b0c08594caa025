"""`deepprof peak`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.arguments import parse_interval
from deepprof.commands.output import check_output, deliver

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rich.console import Console

    from deepprof.metrics.cost.achieved_peaks import PeakKernels, PeakTrial
    from deepprof.metrics.cost.roofs import DevicePeaks, RateType

TYPES = ("float32", "float64", "tf32", "float16", "bfloat16")
SECONDS = 10.0


class Peak:
    """Measure what this machine achieves at most, for the roofs of `deepprof roofline`.

    Products of matrices of several sizes give its FLOP/s by type, a triad over arrays that no cache contains the bytes
    per second of its memory: on the CPU through numpy, on a GPU through torch. The result is stored for this machine
    and is next to the vendor's figures where available. Let nothing else run meanwhile."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add(
            "--device", choices=("cpu", "cuda"), default="cpu", help="what to measure (default cpu; cuda is also AMD's)"
        )
        add(
            "--dtype",
            choices=TYPES,
            action="append",
            help="a type of products, more than once for several (default all)",
        )
        add("--seconds", metavar="N", type=parse_interval, default=SECONDS, help="about how long (default 10)")
        add("-o", "--output", metavar="FILE", help="also write the peaks to FILE, which --peaks FILE takes")

    def run(self, args: argparse.Namespace) -> int:
        """Measure, store and print."""
        import time

        from deepprof.commands.output import capture
        from deepprof.files import write_file
        from deepprof.metrics.cost.achieved_peaks import run_trials, summarise_trials
        from deepprof.metrics.cost.peak_files import encode_peaks, find_store

        check_output(args)
        kernels = _choose_kernels(args.device)
        trials = list(run_trials(kernels, _choose_types(args.dtype, kernels, args.device), args.seconds))
        peaks = summarise_trials(trials, kernels, time.strftime("%Y-%m-%d"))
        store = find_store(args.device)
        store.parent.mkdir(parents=True, exist_ok=True)
        for path in (store, args.output):
            if path is not None:
                write_file(path, encode_peaks(peaks))
        args.output, args.format = None, "text"
        deliver(capture(lambda console: _show(console, trials, peaks, str(store)), None), args)
        return 0


def _choose_kernels(device: str) -> PeakKernels:
    """Return what is timed on `device`."""
    from deepprof.metrics.cost.achieved_peaks import NumpyKernels, TorchKernels

    return NumpyKernels() if device == "cpu" else TorchKernels()


def _choose_types(wanted: list[RateType] | None, kernels: PeakKernels, device: str) -> Sequence[RateType]:
    """Return the types to multiply; raises `UsageError` for one that the device's library has no kernel for."""
    from deepprof.collectors.errors import UsageError

    for dtype in wanted or ():
        if dtype not in kernels.types:
            raise UsageError(f"--dtype {dtype}: not measured on {device}; choose from {', '.join(kernels.types)}")
    return tuple(dict.fromkeys(wanted or kernels.types))


def _show(console: Console, trials: Sequence[PeakTrial], peaks: DevicePeaks, store: str) -> None:
    """Print the trials, then the peaks next to the vendor's."""
    from deepprof.metrics.cost.roofs import find_peaks
    from deepprof.render.page import TextPage
    from deepprof.render.roofline.peaks_table import draw_peaks, draw_trials

    page = TextPage(console)
    draw_trials(page, trials)
    page.skip()
    draw_peaks(page, peaks, find_peaks(peaks.name))
    page.skip()
    page.line(f"Stored in {store}.")
