"""`deepprof roofline`, of a trace or of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.arguments import parse_count, parse_counts, parse_shape
from deepprof.commands.inputs import add_inputs, add_layers, add_peaks
from deepprof.commands.output import check_output
from deepprof.commands.roofline_trace import add_trace_options, run_trace

if TYPE_CHECKING:
    import argparse

BACKENDS = ("onnxruntime", "openvino", "tensorrt")
TYPES = ("float32", "float16", "bfloat16")
RUNS, WARMUP = 20, 5
MODEL = ".onnx"  # how the name of a model ends; anything else is a trace
OF_TRACES = {  # what only traces have, by where it is kept
    **{name: f"--{name}" for name in ("by", "rank", "top", "format", "layers", "iterations", "stream")},
    **{name: f"--{name}" for name in ("range", "grid", "layer", "jobs", "columns")},
    **{"chosen": "--iterations", "start": "--from", "end": "--to", "same_device": "--same-device"},
}


class Roofline:
    """Compare what ran with the device's peaks: what is far from them, and what that is worth.

    PATH is a trace, a directory or a glob of one job's ranks, with the shapes of operators: torch.profiler records them
    with record_shapes=True. Of each operator, layer or kernel it is stated what it needs of an iteration, whether
    arithmetic, memory or starting kernels limits it, how near it is to the shortest time that the peaks allow, and what
    an iteration would save at them.

    MODEL.onnx runs on a backend: each of its layers is timed, mapped to the operators of the model that it computes,
    and compared with the device's peaks. Bytes are predicted from the shapes of tensors unless the processor counts
    them. With --profile and --layer-info, files of TensorRT's trtexec are read and nothing is run.

    -o writes what the name of FILE ends with: a picture (.svg, .html), .json or .csv; of a trace else text.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add(
            "paths",
            metavar="PATH|MODEL.onnx",
            nargs="+",
            help="a trace, a directory or a glob of ranks; or a model",
        )
        add_peaks(parser)
        add("-o", "--output", metavar="FILE", help="write to FILE.svg, FILE.html, FILE.json or FILE.csv")
        _add_model_options(parser.add_argument_group("of a model"))
        add_trace_options(parser.add_argument_group("of a trace"))
        add_layers(parser)
        add_inputs(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Read a trace, or run a model, and print or write its roofline."""
        check_output(args)
        if not any(path.lower().endswith(MODEL) for path in args.paths):
            _refuse_model_options(args)
            return run_trace(args)
        return _run_model(args)


def _run_model(args: argparse.Namespace) -> int:
    """Show the roofline of the model that is named.

    Raises `UsageError` for several, for another kind of output, and for an option that only a trace has.
    """
    from deepprof.collectors.errors import UsageError
    from deepprof.commands.model_roofline import show_model_roofline
    from deepprof.render.roofline.roofline_files import SUFFIXES

    if len(args.paths) > 1:
        raise UsageError(f"{args.paths[1]}: one model at a time; leave out all but one path")
    if args.output is not None and not args.output.lower().endswith(SUFFIXES):
        raise UsageError(f"-o {args.output}: end its name with one of {', '.join(SUFFIXES)}")
    given = next((option for name, option in OF_TRACES.items() if _is_given(getattr(args, name))), None)
    if given is not None:
        kinds = ", ".join(SUFFIXES)
        raise UsageError(f"{given}: is of traces; leave it out, or write all layers with -o FILE ({kinds})")
    (args.source,) = args.paths
    return show_model_roofline(args)


def _is_given(value: object) -> bool:
    return value is not None and value is not False and value != ()


def _refuse_model_options(args: argparse.Namespace) -> None:
    """Raise `UsageError` for an option that only a model has."""
    from deepprof.collectors.errors import UsageError

    names = ("backend", "batch", "shape", "dtype", "threads", "profile", "layer_info")
    given = next((name.replace("_", "-") for name in names if getattr(args, name)), None)
    if given is not None:
        raise UsageError(f"--{given}: {args.paths[0]} is no ONNX file by its name; give one that ends with {MODEL}")


def _add_model_options(group: argparse._ArgumentGroup) -> None:
    """Add what only a model needs."""
    add = group.add_argument
    add("--backend", choices=BACKENDS, help="what runs the model")
    add("--batch", metavar="N,…", type=parse_counts, help="first dimension of the inputs; several are compared")
    text = "shape of an input, such as tokens=8x128; once for each input"
    add("--shape", metavar="NAME=SHAPE", type=parse_shape, action="append", default=[], help=text)
    add("--dtype", choices=TYPES, help="type to compute in (default: the backend's choice)")
    add("--runs", metavar="N", type=parse_count, default=RUNS, help=f"runs that are timed (default {RUNS})")
    add("--warmup", metavar="N", type=parse_count, default=WARMUP, help=f"runs before those (default {WARMUP})")
    add("--threads", metavar="N", type=parse_count, help="threads of the CPU (default: the backend's choice)")
    add("--profile", metavar="FILE", help="with --backend tensorrt: what trtexec --exportProfile wrote")
    add("--layer-info", metavar="FILE", help="with --backend tensorrt: what trtexec --exportLayerInfo wrote")
