"""`deepprof layers`."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from deepprof.commands.arguments import quote
from deepprof.commands.streams import say
from deepprof.plurals import counted

if TYPE_CHECKING:
    import argparse
    from typing import Any

    from deepprof.collectors.layers.user_model import ModelInput

DEVICES = ("cpu", "meta")


class Layers:
    """Write which layer of a model runs which operators, for the traces of its training.

    MODEL is file.py:NAME or package.module:NAME, where NAME is a torch.nn.Module or a function that returns one, or a
    file that ends with .onnx. One forward pass is run, as in training, with inputs of the shapes that --input gives:
    8x3x224x224, 8x128:int64 or, for an argument by name, tokens=8x128:int64. Numbers are drawn from 0 to 1, integers
    are 0. `deepprof diagnose --layers FILE` lays the layers on a trace.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add = parser.add_argument
        add("model", metavar="MODEL", help="file.py:NAME, package.module:NAME or model.onnx")
        text = "shape of an input, and its type if it is not float32; once for each input"
        add("--input", metavar="SHAPE", type=_parse_input, action="append", default=[], help=text)
        text = "where the pass runs: meta computes nothing and takes no memory, but not every model can run so"
        add("--device", choices=DEVICES, default="cpu", help=f"{text} (default cpu)")
        add("-o", "--output", metavar="FILE", required=True, help="file to write")

    def run(self, args: argparse.Namespace) -> int:
        """Record a forward pass, or read the ONNX file, and write the layers; state on stderr what they are."""
        from deepprof.collectors.layers.layers_file import write_layers
        from deepprof.files import check_target, write_file

        check_target(args.output)
        content = _find_layers(args)
        write_file(args.output, write_layers(content))
        operators, modules = len(content["operators"]), len({module for _, module, _ in content["operators"]})
        say(f"{args.output}: {counted(operators, 'operator')} in {counted(modules, 'layer')}")
        return 0


def _find_layers(args: argparse.Namespace) -> dict[str, Any]:
    from pathlib import Path

    if not args.model.endswith(".onnx"):
        from deepprof.collectors.layers.user_model import record_user_model

        return record_user_model(args.model, args.input, args.device)
    from deepprof.collectors.errors import UsageError
    from deepprof.collectors.layers.onnx_layers import read_onnx

    if args.input:
        raise UsageError("--input: an ONNX file is read, not run; leave it out")
    return read_onnx(Path(args.model))


def _parse_input(text: str) -> ModelInput:
    from deepprof.collectors.layers.user_model import read_input

    found = read_input(text)
    if found is None:
        raise ArgumentTypeError(f"{quote(text)} is not a shape such as 8x3x224x224, 8x128:int64 or tokens=8x128:int64")
    return found
