"""`deepprof roofline`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.arguments import parse_count, parse_counts, parse_shape
from deepprof.commands.output import check_output

if TYPE_CHECKING:
    import argparse

BACKENDS = ("onnxruntime", "openvino", "tensorrt")
TYPES = ("float32", "float16", "bfloat16")
RUNS, WARMUP = 20, 5


class Roofline:
    """Show how far each layer of a model is from what the device allows (its roofline).

    MODEL.onnx runs on a backend: each of its layers is timed, mapped to the operators of the model that it computes,
    and compared with the device's peaks. Bytes are predicted from the shapes of tensors unless the processor counts
    them. With --profile and --layer-info, files of TensorRT's trtexec are read and nothing is run.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add("source", metavar="MODEL.onnx", help="an ONNX file")
        add("--peaks", metavar="NAME|FILE", help="the device's peaks (default: what `deepprof peak` stored here)")
        add("-o", "--output", metavar="FILE", help="write to FILE.svg, FILE.html, FILE.json or FILE.csv")
        model = parser.add_argument_group("of a model")
        _add_model_options(model)

    def run(self, args: argparse.Namespace) -> int:
        """Run the model and print or write its roofline."""
        from deepprof.collectors.errors import UsageError
        from deepprof.commands.model_roofline import show_model_roofline
        from deepprof.render.roofline.roofline_files import SUFFIXES

        check_output(args)
        if args.output is not None and not args.output.lower().endswith(SUFFIXES):
            raise UsageError(f"-o {args.output}: end its name with one of {', '.join(SUFFIXES)}")
        if not args.source.lower().endswith(".onnx"):
            raise UsageError(f"{args.source}: is no ONNX file by its name; give one that ends with .onnx")
        return show_model_roofline(args)


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
