"""`deepprof model`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.commands.arguments import parse_count, parse_shape
from deepprof.commands.output import capture, check_output, deliver

if TYPE_CHECKING:
    import argparse

    from deepprof.collectors.models.graph import ModelGraph
    from deepprof.render.model_report import ModelReport

DTYPES = ("float64", "float32", "float16", "bfloat16")
GROUPINGS = ("layer", "operator", "kind")  # of deepprof.metrics.cost.model_costs
FORMATS = ("text", "json", "csv")


class Model:
    """Reckon what a model costs: parameters, floating-point operations and bytes, layer by layer.

    MODEL is an ONNX file. Its operators are not run: costs follow from the shapes of their tensors. A multiplication
    and its addition count as two operations; bytes are those of every operator's operands and results, once each, as if
    nothing stayed in a cache, and next to them what moves when functions of every element are computed together with
    the product before them. Types of operators that have no rule are named, and their cost is unknown."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add("model", metavar="MODEL", help="an ONNX file; weights beside it are not read")
        add(
            "--batch",
            metavar="N",
            type=parse_count,
            help="first dimension of the inputs (default as in the file, or 1)",
        )
        text = "shape of an input, such as tokens=8x128; once for each input"
        add("--shape", metavar="NAME=SHAPE", type=parse_shape, action="append", default=[], help=text)
        add("--dtype", choices=DTYPES, help="take all floating-point tensors to be of this type")
        add("--by", choices=GROUPINGS, default="layer", help="what a row is (default layer)")
        text = "where a shape cannot be inferred, run the model once in onnxruntime and take its shapes from there"
        add("--run", action="store_true", dest="may_run", help=text)
        add("--format", choices=FORMATS, default="text", help="what to write (default text)")
        add("-o", "--output", metavar="FILE", help="write to FILE instead of stdout (- is stdout)")

    def run(self, args: argparse.Namespace) -> int:
        """Read the model, reckon and write."""
        from deepprof.metrics.cost.fusion import measure_fused
        from deepprof.metrics.cost.model_costs import measure_model, total_costs
        from deepprof.render.model_report import ModelReport

        check_output(args)
        graph = _read(args)
        costs = measure_model(graph)
        totals = total_costs(graph, costs)
        deliver(_write(ModelReport(args.model, graph, costs, totals, measure_fused(graph)), args), args)
        return 0


def _read(args: argparse.Namespace) -> ModelGraph:
    from pathlib import Path

    from deepprof.collectors.errors import UsageError
    from deepprof.collectors.models.onnx_model import read_model

    shapes = dict(args.shape)
    if len(shapes) < len(args.shape):
        raise UsageError("--shape: an input has two shapes; give one")
    return read_model(Path(args.model), batch=args.batch, shapes=shapes, dtype=args.dtype, may_run=args.may_run)


def _write(report: ModelReport, args: argparse.Namespace) -> str:
    if args.format == "text":
        from deepprof.render.model_text import print_model
        from deepprof.render.page import TextPage

        return capture(lambda console: print_model(report, args.by, TextPage(console)), args.output)
    from deepprof.render.model_report import write_model_csv, write_model_json

    return (write_model_json if args.format == "json" else write_model_csv)(report, args.by)
