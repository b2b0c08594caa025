"""ONNX Runtime: its optimised model states which nodes run, its profile what each needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from deepprof.backends.backend import RunOptions, draw_inputs, name_cpu, refuse, time_runs
from deepprof.backends.dram_counter import DramCounter
from deepprof.backends.memory_counter import MissCounter
from deepprof.collectors.errors import TraceError, UsageError
from deepprof.collectors.models.backend_profile import BackendLayer, BackendProfile, BackendTensor, LayerRole

MISSING = "ONNX Runtime is not installed; pip install 'deepprof[onnxruntime]'"
PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")  # those that it has, in this order
QUIET = 4  # severity of its log: only what ends the process
ENDING = "_kernel_time"  # of the name of a node's event
PRODUCTS = frozenset(
    {
        *("Conv", "ConvInteger", "ConvTranspose", "FusedConv", "NhwcFusedConv", "NhwcConv", "QLinearConv"),
        *("Gemm", "FusedGemm", "MatMul", "FusedMatMul", "MatMulInteger", "QLinearMatMul", "GemmFloat8"),
        *("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulNBits", "QGemm", "FusedMatMulActivation"),
        *("TransposeMatMul", "ConvTransposeWithDynamicPads", "GemmFastGelu", "Einsum", "LSTM", "GRU", "RNN"),
    }
)
ATTENTIONS = frozenset(
    {
        *("Attention", "MultiHeadAttention", "GroupQueryAttention", "QAttention", "PackedAttention"),
        *("LongformerAttention", "DecoderAttention", "SparseAttention", "PackedMultiHeadAttention"),
    }
)
CONVERSIONS = frozenset({"ReorderInput", "ReorderOutput", "MemcpyToHost", "MemcpyFromHost"})
TYPES = {"float": "float32", "double": "float64"}  # names of its types that differ


class OnnxRuntime:
    """ONNX Runtime with its extended optimisations, on the CPU, or on CUDA where its build has that (not run here)."""

    name = "onnxruntime"

    def find_problem(self) -> str | None:
        """Return why it cannot be used here, None where it can."""
        return None if find_spec("onnxruntime") else MISSING

    def profile(self, path: Path, options: RunOptions) -> BackendProfile:
        """Run a model and return what its nodes took: the median over the runs.

        The time from end to end is of runs after those, without the profiler. Raises as `Backend.profile` states.
        """
        import onnxruntime

        if options.dtype is not None:
            raise UsageError("--dtype: ONNX Runtime computes in the types of the file; export it in another one")
        inputs = draw_inputs(options.inputs)
        with TemporaryDirectory(prefix="deepprof-onnxruntime-") as folder, closing(MissCounter()) as misses:
            session = _build(path, options, Path(folder))
            is_on_cpu = session.get_providers()[0] == PROVIDERS[-1]
            counter = misses if is_on_cpu else DramCounter()
            try:
                for _ in range(options.warmup + options.runs):
                    session.run(None, inputs)
                events = _read_events(Path(session.end_profiling()))
                with counter.count():
                    latency_ns = time_runs(lambda: session.run(None, inputs), options.runs)
            except Exception as error:  # of onnxruntime, whose classes have no common base
                raise refuse(path, self.name, "run", error) from error
            layers = _make_layers(path, _read_nodes(Path(folder) / "model.onnx"), events, options.runs)
        place = (self.name, onnxruntime.__version__, name_cpu() if is_on_cpu else session.get_providers()[0])
        counted = (counter.count_nbytes(options.runs), counter.reason)
        return BackendProfile(*place, options.batch, options.runs, latency_ns, "median", layers, *counted)


def _build(path: Path, options: RunOptions, folder: Path) -> Any:
    """Return a session that profiles into `folder` and has written the model that it runs there."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.enable_profiling, settings.profile_file_prefix = True, str(folder / "profile")
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    settings.optimized_model_filepath = str(folder / "model.onnx")
    settings.log_severity_level = QUIET
    settings.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights.bin")
    settings.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    if options.threads is not None:
        settings.intra_op_num_threads = options.threads
    for symbol, size in _find_symbols(path, options).items():
        settings.add_free_dimension_override_by_name(symbol, size)
    usable = onnxruntime.get_available_providers()
    try:
        return onnxruntime.InferenceSession(
            str(path), settings, providers=[each for each in PROVIDERS if each in usable]
        )
    except Exception as error:
        raise refuse(path, OnnxRuntime.name, "build", error) from error


def _find_symbols(path: Path, options: RunOptions) -> dict[str, int]:
    """Return the sizes of the dimensions that the file leaves open: fixed, more of the model is computed beforehand.

    Raises `UsageError` where the file fixes another shape than is requested.
    """
    from deepprof.collectors.models.onnx_file import load_onnx

    found = {}
    for each in load_onnx(path).graph.input:
        spec = options.inputs.get(each.name)
        for dim, size in zip(each.type.tensor_type.shape.dim, spec.shape if spec else (), strict=False):
            if dim.HasField("dim_value") and dim.dim_value != size:
                shape = "x".join(map(str, spec.shape if spec else ()))
                advice = "export it with open dimensions (dynamic_axes, dynamic_shapes)"
                raise UsageError(f"{path}: fixes the shape of input {each.name}, which is not {shape}; {advice}")
            if dim.dim_param:
                found[dim.dim_param] = size
    return found


def _read_nodes(path: Path) -> Sequence[Any]:
    """Return the nodes of the optimised model, in the order in which they run."""
    import onnx

    nodes: Sequence[Any] = onnx.load(str(path), load_external_data=False).graph.node
    return nodes


def _read_events(path: Path) -> list[Mapping[str, Any]]:
    """Return the events of nodes in a profile, in the order in which they ran."""
    import msgspec

    events = msgspec.json.decode(path.read_bytes())
    return [each for each in events if each.get("cat") == "Node" and str(each.get("name", "")).endswith(ENDING)]


def _make_layers(
    path: Path, nodes: Sequence[Any], events: Sequence[Mapping[str, Any]], runs: int
) -> tuple[BackendLayer, ...]:
    """Return a layer for every node that runs, with its median time over the last `runs`.

    Nodes and events have the same order; those without a name are distinguished by it.
    """
    by_node = defaultdict[tuple[str, str], list[Mapping[str, Any]]](list)
    for event in events:
        by_node[str(event["name"]), str(event["args"].get("node_index"))].append(event)
    groups = [*by_node.values()]
    kinds = [str(group[0]["args"].get("op_name")) for group in groups]
    if kinds != [node.op_type for node in nodes]:
        problem = "onnxruntime ran other nodes than its optimised model has, as with loops and branches"
        raise TraceError(path, problem, "export it without If, Loop and Scan, or try another --backend")
    return tuple(_make_layer(node, group[-runs:]) for node, group in zip(nodes, groups, strict=True))


def _make_layer(node: Any, events: Sequence[Mapping[str, Any]]) -> BackendLayer:
    args = events[-1]["args"]
    outputs = _name_tensors([name for name in node.output if name], args.get("output_type_shape", ()))
    return BackendLayer(
        name=node.name,
        kind=node.op_type,
        role=_find_role(node.op_type),
        time_ns=round(median(event["dur"] for event in events) * 1_000),
        inputs=_name_tensors([name for name in node.input if name], args.get("input_type_shape", ())),
        outputs=outputs,
        dtype=outputs[0].dtype if outputs else None,
    )


def _find_role(kind: str) -> LayerRole:
    if kind in PRODUCTS:
        return LayerRole.PRODUCT
    if kind in ATTENTIONS:
        return LayerRole.ATTENTION
    return LayerRole.CONVERSION if kind in CONVERSIONS else LayerRole.OTHER


def _name_tensors(names: Iterable[str], shapes: Iterable[Mapping[str, Sequence[int]]]) -> tuple[BackendTensor, ...]:
    """Return tensors with their shapes, which a profile states as `{"float": [1, 24, 112, 112]}`."""
    known = [next(iter(each.items()), (None, None)) for each in shapes]
    known += [(None, None)] * len(names := [*names])
    return tuple(
        BackendTensor(name, None if shape is None else tuple(shape), None if kind is None else TYPES.get(kind, kind))
        for name, (kind, shape) in zip(names, known, strict=False)
    )
