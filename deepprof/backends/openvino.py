"""OpenVINO: its runtime model states which layers run and what they were made of, its counters what each needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import Any

from deepprof.backends.backend import RunOptions, draw_inputs, name_cpu, refuse, time_runs
from deepprof.backends.memory_counter import MissCounter
from deepprof.collectors.errors import UsageError
from deepprof.collectors.models.backend_profile import BackendLayer, BackendProfile, BackendTensor, LayerRole
from deepprof.collectors.models.graph import TYPE_BITS

MISSING = "OpenVINO is not installed; pip install 'deepprof[openvino]'"
PRODUCTS = frozenset({"Convolution", "GroupConvolution", "Deconvolution", "FullyConnected", "MatMul", "Gemm", "RNNSeq"})
ATTENTIONS = frozenset({"ScaledDotProductAttention", "ScaledDotProductAttentionWithKVCache", "MHA", "PagedAttention"})
CONVERSIONS = frozenset({"Reorder", "Convert"})
FUSED = "Subgraph"
FIXED = frozenset({"Const", "Constant"})  # kinds of what is not computed
BORDERS = frozenset({"Input", "Parameter", "Output", "Result"})
PRECISIONS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
TYPES = {
    **{short: name for name, short in PRECISIONS.items()},
    **{"f64": "float64", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8"},
    **{"u64": "uint64", "u32": "uint32", "u16": "uint16", "boolean": "bool", "i4": "int4", "u4": "uint4"},
}
Info = Mapping[str, str]


class OpenVino:
    """OpenVINO on the CPU, with one stream."""

    name = "openvino"

    def find_problem(self) -> str | None:
        """Return why it cannot be used here, None where it can."""
        return None if find_spec("openvino") else MISSING

    def profile(self, path: Path, options: RunOptions) -> BackendProfile:
        """Run a model and return what its layers needed: the mean over the runs, as OpenVINO counts it in microseconds.

        What it computes once, such as weights in another type, is no layer of a run. The counters stay on while the
        time from end to end is measured. Raises as `Backend.profile` states.
        """
        import openvino

        if options.dtype is not None and options.dtype not in PRECISIONS:
            raise UsageError(f"--dtype {options.dtype}: OpenVINO computes in {', '.join(PRECISIONS)}")
        inputs, counter = draw_inputs(options.inputs), MissCounter()
        compiled = _build(path, options)
        try:
            request = compiled.create_infer_request()
            for _ in range(options.warmup):
                request.infer(inputs)
            before = _read_counters(request) if options.warmup else {}
            with counter.count():
                latency_ns = time_runs(lambda: request.infer(inputs), options.runs, mean)
            times = _find_times(before, _read_counters(request), options)
            layers = tuple(_list_layers(compiled.get_runtime_model().get_ordered_ops(), times))
        except Exception as error:  # of OpenVINO, whose classes have no common base
            raise refuse(path, self.name, "run", error) from error
        finally:
            counter.close()
        counted = (counter.count_nbytes(options.runs), counter.reason)
        place = (self.name, openvino.__version__, name_cpu())
        return BackendProfile(*place, options.batch, options.runs, latency_ns, "mean", layers, *counted)


def _build(path: Path, options: RunOptions) -> Any:
    import openvino

    settings: dict[str, Any] = {"PERF_COUNT": True, "NUM_STREAMS": 1}
    if options.dtype is not None:
        settings["INFERENCE_PRECISION_HINT"] = PRECISIONS[options.dtype]
    if options.threads is not None:
        settings["INFERENCE_NUM_THREADS"] = options.threads
    try:
        core = openvino.Core()
        model = core.read_model(path)
        model.reshape({name: list(spec.shape) for name, spec in options.inputs.items()})
        return core.compile_model(model, "CPU", settings)
    except Exception as error:
        raise refuse(path, OpenVino.name, "build", error) from error


def _read_counters(request: Any) -> dict[str, int]:
    """Return the mean time of every layer over all runs so far, in microseconds; those that never ran are left out."""
    counters = request.get_profiling_info()
    return {each.node_name: each.real_time.microseconds + each.real_time.seconds * 10**6 for each in counters}


def _find_times(before: Mapping[str, int], after: Mapping[str, int], options: RunOptions) -> dict[str, int]:
    """Return the mean time of every layer over the runs after the warm-up, in nanoseconds.

    Counters have whole microseconds of the mean over all runs, so a difference can come out below 0.
    """
    every, warmup = options.runs + options.warmup, options.warmup
    sums_us = {name: every * mean - warmup * before.get(name, 0) for name, mean in after.items()}
    return {name: max(0, round(total * 1_000 / options.runs)) for name, total in sums_us.items()}


def _list_layers(nodes: Sequence[Any], times: Mapping[str, int]) -> Iterator[BackendLayer]:
    """Yield the layers that run each time, in their order; what only constants go into ran once."""
    fixed, outputs = set[str](), dict[str, tuple[BackendTensor, ...]]()
    for node in nodes:
        info = {key: str(getattr(value, "value", value)) for key, value in node.get_rt_info().items()}
        kind, name = info.get("layerType", ""), node.get_friendly_name()
        sources = [each.get_source_output() for each in node.inputs()]
        makers = [each.get_node().get_friendly_name() for each in sources]
        outputs[name] = tuple(_list_outputs(node, info, name))
        if kind in FIXED or (makers and fixed.issuperset(makers)):
            fixed.add(name)
        elif kind not in BORDERS:
            inputs = [outputs[maker][each.get_index()] for maker, each in zip(makers, sources, strict=True)]
            yield _make_layer(name, info, inputs, outputs[name], times.get(name))


def _list_outputs(node: Any, info: Info, name: str) -> Iterator[BackendTensor]:
    """Yield the outputs of a layer; a model's input has the name that the model gives it."""
    precisions = info.get("outputPrecisions", "").split(",")
    is_input = info.get("layerType") in BORDERS
    for number, output in enumerate(node.outputs()):
        shape = output.get_partial_shape()
        known = tuple(each.get_length() for each in shape) if shape.is_static else None
        precision = precisions[number] if number < len(precisions) else precisions[0]
        yield BackendTensor(name if is_input else f"{name}:{number}", known, TYPES.get(precision))


def _make_layer(
    name: str, info: Info, inputs: Sequence[BackendTensor], outputs: tuple[BackendTensor, ...], time_ns: int | None
) -> BackendLayer:
    kind, dtype = info["layerType"], TYPES.get(info.get("runtimePrecision", ""))
    return BackendLayer(
        name=name,
        kind=kind,
        role=_find_role(kind),
        time_ns=time_ns,
        inputs=tuple(inputs),
        outputs=outputs,
        originals=tuple(each for each in info.get("originalLayersNames", "").split(",") if each),
        dtype=dtype if dtype in TYPE_BITS else None,
    )


def _find_role(kind: str) -> LayerRole:
    if kind in PRODUCTS:
        return LayerRole.PRODUCT
    if kind in ATTENTIONS or kind == FUSED:
        return LayerRole.FUSED if kind == FUSED else LayerRole.ATTENTION
    return LayerRole.CONVERSION if kind in CONVERSIONS else LayerRole.OTHER
