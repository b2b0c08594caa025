"""The content of an ONNX file, and which module each of its nodes belongs to.

Weights are not needed to know a model's operators and shapes: those that are in their own files are not read, and
may be absent. `torch.onnx.export` names a node `/layer1/layer1.0/conv1/Conv`, or keeps the paths and classes of its
modules in the node's metadata.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from deepprof.collectors.errors import TraceError
from deepprof.collectors.live.model_forward import NAME_CHARS

LIMIT_NBYTES = 2 * 1024**3  # as protobuf has it; weights may be in files next to it, which are not read
SCOPES, CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
LIST_CHARS = 20_000
CALLED_AGAIN = re.compile(r"^(.+)_\d+$")
MISSING = "pip install 'deepprof[model]'"
EXPORT = "export it with torch.onnx.export"
OUTSIDE = "save it with its weights outside (save_as_external_data=True of onnx.save)"


def load_onnx(path: Path) -> Any:
    """Return the `ModelProto` of a file without weights that are in other files.

    Raises `TraceError` when the file cannot be read, is no ONNX model or has no nodes, or onnx is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise TraceError(path, "needs the onnx library to be read", MISSING) from error
    try:
        if path.stat().st_size > LIMIT_NBYTES:
            raise TraceError(path, "is larger than the 2 GiB that an ONNX file can have", OUTSIDE)
        model = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}", "check the path") from error
    except TraceError:
        raise
    except Exception as error:  # protobuf's own, which has several implementations
        raise TraceError(path, "is no ONNX model, or only a part of one", EXPORT) from error
    if not model.graph.node:
        raise TraceError(path, "is no ONNX model: it has no nodes", EXPORT)
    if not all(isinstance(text, str) for text in _list_texts(model.graph)):
        raise TraceError(path, "is a damaged ONNX model: its names are not UTF-8", EXPORT)
    return model


def _list_texts(graph: Any) -> Iterator[object]:
    """Yield what is read of a graph as text; protobuf gives bytes where it is none."""
    yield graph.name
    for values in (graph.input, graph.output, graph.value_info, graph.initializer):
        yield from (each.name for each in values)
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (each.name for each in node.attribute)
        yield from (text for each in node.metadata_props for text in (each.key, each.value))


def find_modules(nodes: Iterable[Any], weights: Iterable[str]) -> list[tuple[str, str | None]]:
    """Return the path of every node's module, empty for the model itself, and its class where available.

    The names of weights show modules that have some: `relu_1` is `relu` called again, but a module `conv_1` of its own
    has `conv_1.weight`.
    """
    modules = {name.rpartition(".")[0] for name in weights}
    found = [_find_module(node) for node in nodes]
    paths = {path for path, _ in found}
    return [(_find_called(path, paths, modules), kind) for path, kind in found]


def _find_called(path: str, paths: Collection[str], modules: Collection[str]) -> str:
    again = CALLED_AGAIN.match(path)
    return again[1] if again and again[1] in paths and path not in modules else path


def _find_module(node: Any) -> tuple[str, str | None]:
    """Return the path of a node's module, empty for the model itself, and its class where available."""
    said = {each.key: each.value for each in node.metadata_props}
    scopes, classes = _read_list(said.get(SCOPES)), _read_list(said.get(CLASSES))
    if len(scopes) > 1:  # the last is the node itself
        kind = classes[len(scopes) - 2].rpartition(".")[2] if len(classes) >= len(scopes) - 1 else ""
        return scopes[-2][:NAME_CHARS], kind[:NAME_CHARS] or None
    return join_scopes(node.name)[:NAME_CHARS], None


def _read_list(text: str | None) -> list[str]:
    """Return a list of texts that is written as in Python; empty for anything else."""
    if not text or len(text) > LIST_CHARS:
        return []
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    texts = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    return [each.encode("utf-8", "replace").decode() for each in texts]


def join_scopes(name: str) -> str:
    """Return the path of a module from the name of a node: `/layer1/layer1.0/conv1/Conv` is of `layer1.0.conv1`."""
    parts: list[str] = []
    for scope in name.split("/")[1:-1]:
        if parts and scope.startswith(f"{parts[-1]}."):
            parts.pop()
        parts.append(scope)
    return ".".join(parts)
