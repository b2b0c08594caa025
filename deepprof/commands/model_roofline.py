"""`deepprof roofline MODEL.onnx`: runs the model on a backend, or reads what one recorded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.collectors.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from deepprof.collectors.models.backend_profile import BackendProfile
    from deepprof.collectors.models.graph import ModelGraph
    from deepprof.metrics.cost.model_roofline import ModelRun
    from deepprof.metrics.cost.roofs import DevicePeaks


def show_model_roofline(args: argparse.Namespace) -> int:
    """Run the model with every batch and print or write the roofline."""
    from deepprof.commands.output import capture, deliver
    from deepprof.files import write_file
    from deepprof.render.model_roofline import draw_model_roofline, print_model_roofline
    from deepprof.render.page import TextPage
    from deepprof.render.roofline.roofline_files import render_roofline

    profile = _choose_profiler(args)
    peaks = _find_peaks(args)
    runs = [*_list_runs(args, profile, peaks)]
    title = Path(args.source).name
    if args.output is None:
        args.format = "text"
        deliver(capture(lambda console: print_model_roofline(runs, title, peaks, TextPage(console)), None), args)
    else:
        write_file(args.output, render_roofline(*draw_model_roofline(runs, title, peaks), args.output))
    return 0


def _choose_profiler(args: argparse.Namespace) -> Callable[[ModelGraph], BackendProfile]:
    """Return what profiles the model. Raises `UsageError` where options contradict each other or nothing can run it."""
    from deepprof.backends.backend import RunOptions, load_backend

    if args.backend is None:
        raise UsageError("--backend: say what runs the model: onnxruntime, openvino or tensorrt")
    if (args.profile is None) is not (args.layer_info is None):
        raise UsageError("--profile and --layer-info belong together: give both files that trtexec wrote")
    if args.profile is not None:
        return _choose_recorded(args)
    backend, path = load_backend(args.backend), Path(args.source)

    def profile(graph: ModelGraph) -> BackendProfile:
        inputs = {name: graph.tensors[name] for name in graph.inputs}
        return backend.profile(path, RunOptions(inputs, args.dtype, args.runs, args.warmup, args.threads))

    return profile


def _choose_recorded(args: argparse.Namespace) -> Callable[[ModelGraph], BackendProfile]:
    from deepprof.backends.backend import RunOptions
    from deepprof.backends.tensorrt import read_recorded

    if args.backend != "tensorrt":
        raise UsageError(f"--profile: {args.backend} writes no such file; leave it out, or give --backend tensorrt")
    if args.batch is not None and len(args.batch) > 1:
        raise UsageError("--batch: the files of trtexec are of one batch; give that one")

    def profile(graph: ModelGraph) -> BackendProfile:
        batch = RunOptions({name: graph.tensors[name] for name in graph.inputs}).batch
        return read_recorded(Path(args.profile), Path(args.layer_info), batch)

    return profile


def _list_runs(
    args: argparse.Namespace, profile: Callable[[ModelGraph], BackendProfile], peaks: DevicePeaks | None
) -> Iterator[ModelRun]:
    from deepprof.collectors.models.onnx_model import read_model
    from deepprof.metrics.cost.model_roofline import measure_model_run

    path, shapes = Path(args.source), dict(args.shape)
    if len(shapes) < len(args.shape):
        raise UsageError("--shape: an input has two shapes; give one")
    for batch in args.batch or (None,):
        graph = read_model(path, batch=batch, shapes=shapes, may_run=args.profile is None)
        yield measure_model_run(graph, profile(graph), peaks)


def _find_peaks(args: argparse.Namespace) -> DevicePeaks | None:
    """Return the peaks that the user names, else those that were measured of this machine's CPU; None without any."""
    from deepprof.metrics.cost.peak_files import find_store, load_peaks

    if args.peaks is not None:
        return load_peaks(args.peaks)
    return load_peaks("cpu") if args.backend != "tensorrt" and find_store("cpu").is_file() else None
