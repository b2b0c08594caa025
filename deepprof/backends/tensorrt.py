"""TensorRT, through its program trtexec: layers from the engine inspector's JSON, times from its profile. Not run here.

The files are those of `trtexec --exportLayerInfo --exportProfile --profilingVerbosity=detailed`; recorded elsewhere,
they are read without TensorRT.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import msgspec

from deepprof.backends.backend import RunOptions, refuse
from deepprof.collectors.errors import TraceError, UsageError
from deepprof.collectors.models.backend_profile import BackendLayer, BackendProfile, BackendTensor, LayerRole
from deepprof.collectors.models.graph import TensorSpec

PROGRAM = "trtexec"
MISSING = "trtexec of TensorRT is not on PATH; install TensorRT, or read its files with --profile and --layer-info"
ADVICE = "write it with trtexec --profilingVerbosity=detailed --exportProfile=FILE --exportLayerInfo=FILE"
Layer = TypeVar("Layer")
UNCOUNTED = "trtexec runs in its own process, and writes no counters"
LIMIT_NBYTES, MAX_LAYERS = 256 * 1024**2, 200_000
LONGEST_S = 3600
DETAILS = ("--profilingVerbosity=detailed", "--separateProfileRun")
FLAGS = {"float32": ["--noTF32"], "float16": ["--fp16"], "bfloat16": ["--bf16"]}
ORIGINAL = re.compile(r"\[ONNX Layer: ([^\x1e\x1f]*?)\](?=[\x1e\x1f\[]|\s|$)")
FOREIGN = re.compile(r"\{ForeignNode\[(.*?)\]\}")
POINTWISE = re.compile(r"PWN\(|\)")
REFORMAT = re.compile(r"^Reformatting CopyNode for ")
PRODUCTS = re.compile(r"convolution|deconvolution|^conv|gemm|matrixmultiply|matmul|fullyconnected", re.IGNORECASE)
ATTENTIONS = re.compile(r"mha|attention", re.IGNORECASE)
CONVERSIONS = frozenset({"Reformat", "reformat", "ShapeHostToDeviceCopy", "DeviceToShapeHostCopy", "cast"})
FUSED = frozenset({"Myelin", "ForeignNode", "kgen", "fusion", "Fusion", "PluginV2", "PluginV3"})
TYPES = {  # by what the description of a format has, in this order
    **{"bf16": "bfloat16", "bfloat16": "bfloat16", "fp16": "float16", "half": "float16", "fp8": "float8_e4m3fn"},
    **{"fp32": "float32", "float": "float32", "int8": "int8", "int32": "int32", "int64": "int64", "bool": "bool"},
}


class _TimedLayer(msgspec.Struct):
    """A row of a profile; the first row has only how many runs there were."""

    name: str | None = None
    count: int | None = None
    average_ms: float | None = msgspec.field(name="averageMs", default=None)
    median_ms: float | None = msgspec.field(name="medianMs", default=None)


class _EngineTensor(msgspec.Struct):
    """A tensor of a layer; a dimension that is open is -1."""

    name: str = msgspec.field(name="Name", default="")
    dimensions: list[int] = msgspec.field(name="Dimensions", default_factory=list)
    format: str = msgspec.field(name="Format/Datatype", default="")


class _EngineLayer(msgspec.Struct):
    """A layer of an engine as its inspector describes it."""

    name: str = msgspec.field(name="Name")
    kind: str = msgspec.field(name="LayerType", default="")
    inputs: list[_EngineTensor] = msgspec.field(name="Inputs", default_factory=list)
    outputs: list[_EngineTensor] = msgspec.field(name="Outputs", default_factory=list)
    metadata: str = msgspec.field(name="Metadata", default="")


class _EngineFile(msgspec.Struct):
    """A file of layers; those of an engine that was built without details are names only."""

    layers: list[_EngineLayer | str] = msgspec.field(name="Layers")


class _TimedRun(msgspec.Struct):
    """One run in a file of times."""

    latency_ms: float | None = msgspec.field(name="latencyMs", default=None)


class TensorRt:
    """TensorRT on an NVIDIA GPU."""

    name = "tensorrt"

    def find_problem(self) -> str | None:
        """Return why it cannot be used here, None where it can."""
        return None if shutil.which(PROGRAM) else MISSING

    def profile(self, path: Path, options: RunOptions) -> BackendProfile:
        """Build an engine and run it by trtexec, and return what its layers needed: the median over the runs.

        Raises as `Backend.profile` states.
        """
        if options.dtype is not None and options.dtype not in FLAGS:
            raise UsageError(f"--dtype {options.dtype}: TensorRT computes in {', '.join(FLAGS)}")
        with TemporaryDirectory(prefix="deepprof-tensorrt-") as folder:
            profile, info, times = (Path(folder) / name for name in ("profile.json", "layers.json", "times.json"))
            exports = [f"--exportProfile={profile}", f"--exportLayerInfo={info}", f"--exportTimes={times}"]
            _run_trtexec(path, [*_list_options(path, options), *exports])
            return read_recorded(profile, info, options.batch, times)


def _list_options(path: Path, options: RunOptions) -> list[str]:
    shapes = {name: spec for name, spec in options.inputs.items() if name in _find_open(path)}
    given = [f"--shapes={','.join(map(_write_shape, shapes, shapes.values()))}"] if shapes else []
    counts = [f"--iterations={options.runs}", "--duration=0", "--warmUp=500"]
    return [f"--onnx={path.resolve()}", *DETAILS, *given, *counts, *FLAGS.get(options.dtype or "", [])]


def _find_open(path: Path) -> set[str]:
    """Return the inputs with dimensions that the file leaves open: trtexec takes shapes for these only."""
    from deepprof.collectors.models.onnx_file import load_onnx

    dims = {each.name: each.type.tensor_type.shape.dim for each in load_onnx(path).graph.input}
    return {name for name, each in dims.items() if any(not dim.HasField("dim_value") for dim in each)}


def _write_shape(name: str, spec: TensorSpec) -> str:
    return f"'{name}':{'x'.join(map(str, spec.shape))}"


def _run_trtexec(path: Path, arguments: Sequence[str]) -> None:
    """Run trtexec. Raises `TraceError` with the last error that it printed."""
    try:
        command = [PROGRAM, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=LONGEST_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise refuse(path, TensorRt.name, "build", error) from error
    if done.returncode != 0:
        said = [line.partition("[E]")[2] for line in (done.stdout + done.stderr).splitlines() if "[E]" in line]
        reason = said[0] if said else f"{PROGRAM} ended with status {done.returncode}"
        raise refuse(path, TensorRt.name, "build or run", RuntimeError(reason))


def read_recorded(profile: Path, layer_info: Path, batch: int, times: Path | None = None) -> BackendProfile:
    """Return what files that trtexec wrote state of the layers of an engine.

    Raises `TraceError` for a file that is not such a one.
    """
    rows = _check_number(profile, _decode(profile, list[_TimedLayer]))
    described = _check_number(layer_info, _decode(layer_info, _EngineFile).layers)
    layers = [_EngineLayer(each) if isinstance(each, str) else each for each in described]
    runs = next((row.count for row in rows if row.count is not None), 0)
    spent = defaultdict[str, deque[int]](deque)
    for row in rows:
        milliseconds = row.median_ms if row.median_ms is not None else row.average_ms
        if row.name is not None and milliseconds is not None:
            spent[row.name].append(round(max(0.0, min(milliseconds, 1e9)) * 1e6))
    if not any(layer.name in spent for layer in layers):
        raise TraceError(profile, f"has no layer of {layer_info}", "give two files of the same engine")
    found = tuple(_make_layer(layer, spent[layer.name].popleft() if spent[layer.name] else None) for layer in layers)
    how = "median" if any(row.median_ms is not None for row in rows) else "mean"
    latency_ns = _read_latency(times) if times is not None else None
    place = (TensorRt.name, "unknown version", "unknown device")
    return BackendProfile(*place, batch, runs, latency_ns, how, found, uncounted_reason=UNCOUNTED)


def _check_number(path: Path, layers: list[Layer]) -> list[Layer]:
    if len(layers) > MAX_LAYERS:
        raise TraceError(path, f"has more than {MAX_LAYERS:,} layers", "profile a part of the model")
    return layers


def _decode(path: Path, kind: Any) -> Any:
    try:
        if path.stat().st_size > LIMIT_NBYTES:
            raise TraceError(path, "is larger than such a file can be", ADVICE)
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}", "check the path") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(path, "is no such file of trtexec", ADVICE) from error


def _read_latency(path: Path) -> int | None:
    runs = [run.latency_ms for run in _decode(path, list[_TimedRun]) if run.latency_ms is not None]
    return round(median(runs) * 1e6) if runs else None


def _make_layer(layer: _EngineLayer, time_ns: int | None) -> BackendLayer:
    outputs = _make_tensors(layer.outputs)
    return BackendLayer(
        name=layer.name,
        kind=layer.kind or "unknown",
        role=_find_role(layer),
        time_ns=time_ns,
        inputs=_make_tensors(layer.inputs),
        outputs=outputs,
        originals=_list_originals(layer),
        dtype=outputs[0].dtype if outputs else None,
    )


def _make_tensors(tensors: Iterable[_EngineTensor]) -> tuple[BackendTensor, ...]:
    return tuple(
        BackendTensor(
            each.name,
            tuple(each.dimensions) if all(0 <= size < 2**40 for size in each.dimensions) and each.format else None,
            next((name for word, name in TYPES.items() if word in each.format.lower()), None),
        )
        for each in tensors
    )


def _find_role(layer: _EngineLayer) -> LayerRole:
    if layer.kind in CONVERSIONS or REFORMAT.match(layer.name):
        return LayerRole.CONVERSION
    if layer.kind in FUSED or FOREIGN.search(layer.name):
        return LayerRole.FUSED
    if ATTENTIONS.search(layer.kind):
        return LayerRole.ATTENTION
    return LayerRole.PRODUCT if PRODUCTS.search(layer.kind) else LayerRole.OTHER


def _list_originals(layer: _EngineLayer) -> tuple[str, ...]:
    """Return the model's operators that a layer was made of: its metadata names them, or else its own name."""
    named = ORIGINAL.findall(layer.metadata)
    if not named and not REFORMAT.match(layer.name):
        name = FOREIGN.sub(lambda found: " + ".join(found[1].split("...")), layer.name)
        named = [each.strip() for part in name.split(" + ") for each in POINTWISE.sub("", part).split(",")]
    return tuple(dict.fromkeys(each for each in named if each))
