"""A file of layers: the modules of a model and the operators of one forward pass, as `deepprof layers` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import polars as pl
from msgspec import Meta, Struct, field

from deepprof.collectors.errors import TraceError
from deepprof.collectors.importers.files import read_bytes
from deepprof.collectors.live.model_forward import EMBEDDED_NBYTES, MODULES, NAME_CHARS, OPERATORS
from deepprof.collectors.trace import LAYERS

LIMIT_NBYTES = 128 * 1024**2
PARTS = 1_000_000  # of the paths of all modules: each may become a layer
UNDECODABLE = (msgspec.DecodeError, ValueError, RecursionError)
WRITE_AGAIN = "write it with `deepprof layers`"

_Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS)]
_Number = Annotated[int, Meta(ge=0, lt=2**32)]


class _LayersModule(Struct, forbid_unknown_fields=True, gc=False):
    """A module of a model; `class` is null where only its name is available."""

    path: _Name
    kind: _Name | None = field(default=None, name="class")


class _LayersDocument(Struct, forbid_unknown_fields=True, gc=False):
    """The content of a file of layers: an operator is its name, the number of its module, and of that module's call."""

    schema: Literal["deepprof.layers/1"]
    modules: Annotated[list[_LayersModule], Meta(min_length=1, max_length=MODULES)]
    operators: Annotated[list[tuple[_Name, _Number, _Number]], Meta(min_length=1, max_length=OPERATORS)]


class ModelLayers(Struct, frozen=True, eq=False):
    """The layers of the model in the file at `path`: `table`, with the schema `LAYERS`."""

    path: Path
    table: pl.DataFrame


def read_layers(path: Path) -> ModelLayers:
    """Return the layers in a file that `deepprof layers` wrote, or in an ONNX model.

    Raises `TraceError` when the file cannot be read or is neither.
    """
    if path.suffix == ".onnx":
        from deepprof.collectors.layers.onnx_layers import read_onnx

        return ModelLayers(path, decode_layers(write_layers(read_onnx(path)), path))
    return ModelLayers(path, decode_layers(bytes(read_bytes(path, LIMIT_NBYTES)), path))


def decode_layers(content: bytes | msgspec.Raw, path: Path) -> pl.DataFrame:
    """Return the table `LAYERS` of the JSON in `content`; raises `TraceError` when it is no such content."""
    try:
        document = msgspec.json.decode(content, type=_LayersDocument)
    except UNDECODABLE as error:
        raise TraceError(path, f"is no file of layers ({error})", WRITE_AGAIN) from error
    last = max(module for _, module, _ in document.operators)
    if last >= len(document.modules):
        problem = f"is no file of layers (an operator of module {last}, of {len(document.modules):,})"
        raise TraceError(path, problem, WRITE_AGAIN)
    if sum(1 + each.path.count(".") for each in document.modules) > PARTS:
        raise TraceError(path, f"is no file of layers (paths of more than {PARTS:,} parts in all)", WRITE_AGAIN)
    return _tabulate(document)


def _tabulate(document: _LayersDocument) -> pl.DataFrame:
    names, modules, calls = zip(*document.operators, strict=True)
    rows = pl.DataFrame({"operator": names, "module": modules, "call": calls}).with_row_index("position")
    known = pl.DataFrame(
        {"layer": [each.path for each in document.modules], "layer_class": [each.kind for each in document.modules]},
        schema={"layer": pl.String, "layer_class": pl.String},
    )
    return rows.hstack(known[rows["module"]]).select(list(LAYERS)).cast(dict(LAYERS))  # type: ignore[arg-type]


def decode_embedded(raw: msgspec.Raw, path: Path) -> pl.DataFrame | None:
    """Return the layers that `deepprof.attach` wrote into the header of a trace; None where they cannot be read."""
    if len(memoryview(raw)) > EMBEDDED_NBYTES:
        return None
    try:
        return decode_layers(raw, path)
    except TraceError:
        return None


def write_layers(content: dict[str, Any]) -> bytes:
    """Return the content of a file of layers, a line for every module and each operator."""
    encode = msgspec.json.encode
    lines = {key: b",\n".join(map(encode, content[key])) for key in ("modules", "operators")}
    return b'{"schema":%b,\n"modules":[\n%b],\n"operators":[\n%b]}\n' % (encode(content["schema"]), *lines.values())
