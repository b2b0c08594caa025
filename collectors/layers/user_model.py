"""The model in a file or package of the user's, and one forward pass of it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

from deepprof.collectors.errors import UsageError, escaped

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
INPUT = re.compile(r"(?:([A-Za-z_]\w{0,99})=)?(\d{1,9}(?:x\d{1,9}){0,7})(?::(\w{1,20}))?", re.ASCII)
PLACE = re.compile(r"(.+):([A-Za-z_]\w*)")
INSTALL = "install PyTorch (pip install torch), or give the model as ONNX"
SHOWN_CHARS = 200


class ModelInput(Struct, frozen=True):
    """One tensor that a model takes, by position or by `name`."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    name: str | None = None


def read_input(text: str) -> ModelInput | None:
    """Return an input written as `8x3x224x224`, `8x128:int64` or `name=8x128:int64`, None for anything else."""
    found = INPUT.fullmatch(text)
    if found is None or (found[3] or DTYPES[0]) not in DTYPES:
        return None
    return ModelInput(tuple(map(int, found[2].split("x"))), found[3] or DTYPES[0], found[1])


def record_user_model(place: str, inputs: Sequence[ModelInput], device: str) -> dict[str, Any]:
    """Return the content of a file of layers for the model at `place`.

    Its code runs in this process. Raises `UsageError` with one line for all that it raises.
    """
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # before torch is loaded: it speaks of every record
    found = PLACE.fullmatch(place)
    twice = [name for name, count in Counter(each.name for each in inputs).items() if name and count > 1]
    if twice:
        raise UsageError(f"--input: {twice[0]} is given more than once; give each argument one shape")
    if found is None:
        raise UsageError(f"{place!r} names no model; give file.py:NAME, package.module:NAME or a file that ends .onnx")
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a library that it loads itself
        raise UsageError(f"{place}: torch is not installed here; {INSTALL}") from error
    from deepprof.collectors.live.model_forward import record_forward

    with torch.device(device):
        model = _make_model(place, _load(place, found[1]), found[2])
        try:
            model = model.to(device)
            tensors = [(each.name, _make_tensor(each)) for each in inputs]
            named = {name: tensor for name, tensor in tensors if name is not None}
            forward = record_forward(model, [tensor for name, tensor in tensors if name is None], named)
        except (Exception, SystemExit) as error:
            raise UsageError(f"{place}: its forward pass failed ({_tell(error)}); see --input") from error
    return forward.to_json()


def _load(place: str, module: str) -> ModuleType:
    """Return the module in a file, or of a package that can be imported from here."""
    try:
        if not module.endswith(".py"):
            sys.path.insert(0, os.getcwd())
            return importlib.import_module(module)
        path = Path(module).resolve()
        if not path.is_file():
            raise UsageError(f"{place}: there is no file {path}; check the path")
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None  # noqa: S101, PT018
        loaded = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    except (Exception, SystemExit) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{place}: cannot be imported ({_tell(error)}); run it with python to see why") from error
    return loaded


def _make_model(place: str, module: ModuleType, name: str) -> Any:
    import torch

    if not hasattr(module, name):
        raise UsageError(f"{place}: {module.__name__} has no {name}; name a torch.nn.Module or a function")
    found = getattr(module, name)
    if callable(found) and not isinstance(found, torch.nn.Module):
        try:
            found = found()
        except (Exception, SystemExit) as error:
            raise UsageError(f"{place}: {name}() failed ({_tell(error)}); it is called without arguments") from error
    if not isinstance(found, torch.nn.Module):
        raise UsageError(f"{place}: a {type(found).__name__} is no torch.nn.Module; name one or a function")
    return found


def _make_tensor(each: ModelInput) -> Any:
    """Return an input: numbers from 0 to 1, or zeros, which are valid where integers are indexes."""
    import torch

    dtype = getattr(torch, each.dtype)
    return torch.rand(each.shape, dtype=dtype) if dtype.is_floating_point else torch.zeros(each.shape, dtype=dtype)


def _tell(error: BaseException) -> str:
    """Return an error of a user's code in a few words."""
    try:
        text = str(error).strip().partition("\n")[0][:SHOWN_CHARS]
    except Exception:
        text = ""
    return escaped(f"{type(error).__name__}: {text}" if text else type(error).__name__)
