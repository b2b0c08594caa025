"""What each kernel needs of memory at once: the operand footprint, and the working set, which is the largest of them.

PASTA counts the memory that the instructions of a kernel touch (its Table V). A trace has no addresses that kernels
used, but the shapes of the operands of their operators: the operand footprint is what these hold, and what the operator
writes next to them as its cost rule states. A kernel may touch less of it (a gather of a table) or more (a workspace),
and a tensor that is given twice counts twice. Without a device the operators that do the work represent kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.collectors.table_schema import TableSchema
from deepprof.collectors.trace import OPERANDS, Trace
from deepprof.metrics.contexts.slices import read_slices
from deepprof.metrics.cost.call_links import find_nearest, read_operands
from deepprof.metrics.cost.framework.fused_kernels import is_fused
from deepprof.metrics.cost.framework.operator_call import Operand, OperatorCall, read_call
from deepprof.metrics.cost.framework.operator_rules import arranges, cost_of_call, is_free
from deepprof.metrics.cost.signatures import SIGNATURE, find_element_type, number_signatures
from deepprof.metrics.cost.trace_costs import TraceCosts, find_costs
from deepprof.metrics.memory.floors import HOST_MEMORY
from deepprof.metrics.memory.use import read_use
from deepprof.metrics.operators import is_stand_in

Int64s = npt.NDArray[np.int64]

I64, TEXT, RATIO = pl.Int64(), pl.String(), pl.Float64()
FOOTPRINTS = TableSchema.of(
    "Kernels of one name that worked for the same operator on operands of the same shapes.",
    {
        "device": (pl.UInt16(), "the number of the device; 0 where operators of the CPU stand for kernels"),
        "kernel": (TEXT, "the name of the kernel; null: the operator itself"),
        "operator": (TEXT, "the operator that launched it; null: not known"),
        "dims": (TEXT, OPERANDS.meanings["dims"]),
        "dtypes": (TEXT, OPERANDS.meanings["dtypes"]),
        "kernels": (I64, "how many there are"),
        "operand_nbytes": (I64, "what the operands hold; null: not recorded, or of unknown type"),
        "result_nbytes": (I64, "what the operator writes beside them; null: it has no rule that says so"),
        "footprint_nbytes": (I64, "the operand footprint: both together, operands alone where there is no rule"),
    },
)
WORKING_SETS = TableSchema.of(
    "The operand footprints of one device's kernels, and its working set: the largest of them.",
    {
        "device": (pl.UInt16(), "the number of the device; 0 where operators of the CPU stand for kernels"),
        "kernels": (I64, "kernels whose operand footprint is known"),
        "unknown_kernels": (I64, "kernels whose operand footprint is not known"),
        "working_set_nbytes": (I64, "the largest operand footprint of one kernel"),
        "mean_nbytes": (RATIO, "the mean over kernels"),
        "median_nbytes": (I64, "the median over kernels"),
        "p90_nbytes": (I64, "what nine of ten kernels do not exceed"),
        "footprint_nbytes": (I64, "the footprint of the program: the most memory in use; null: not recorded"),
        "footprint_ratio": (RATIO, "that over the working set"),
        "kernel": (TEXT, "the kernel with the largest one; null: its operator itself"),
        "operator": (TEXT, "the operator of that kernel"),
        "dims": (TEXT, "the shapes of its operands, as JSON"),
    },
)
IN_PLACE = re.compile(r"_(?:\.\w+)?$")  # aten::add_, aten::add_.Tensor: what they write is an operand
ANY_TYPE = re.compile(r"\w")  # in the types as JSON: some recorders write none
MAX_NBYTES = 2**62


def measure_footprints(trace: Trace, recorded: Trace | None = None) -> pl.DataFrame:
    """Return the operand footprints of a trace read with `details`, the largest first, with the schema `FOOTPRINTS`.

    `recorded` is the trace as it was read, if operators were made its kernels since (CPU fallback). A kernel without a
    recognized operator, or an operator whose operands were not recorded, has a row without a footprint."""
    if is_stand_in(trace) or not trace.device_events.height:
        calls = _list_operators(recorded if recorded is not None else trace)
    else:
        calls = _list_kernels(trace, find_costs(trace, recorded))
    numbers, distinct = number_signatures(calls.select(*SIGNATURE, "element"))
    sizes = [_measure_call(signature) for signature in distinct.iter_rows(named=True)]
    known = pl.DataFrame(sizes, schema={"operand_nbytes": I64, "result_nbytes": I64}, orient="row")
    rows = calls.hstack(known[numbers] if calls.height else known)
    same = ("device", "kernel", "operator", "dims", "dtypes", "operand_nbytes", "result_nbytes")
    groups = rows.group_by(*same, maintain_order=True)
    counted = groups.agg(pl.col("kernels").sum())
    whole = counted.with_columns(footprint_nbytes=pl.col("operand_nbytes") + pl.col("result_nbytes").fill_null(0))
    order = ["footprint_nbytes", "kernels", "operator", "kernel"]
    ordered = whole.sort(order, descending=[True, True, False, False], nulls_last=True, maintain_order=True)
    return ordered.select(list(FOOTPRINTS)).cast(dict(FOOTPRINTS))  # type: ignore[arg-type]


def _list_kernels(trace: Trace, costs: TraceCosts) -> pl.DataFrame:
    """Return `device`, `kernel`, `kernels`, `SIGNATURE`, the `element` of lists, for kernels of one name and call."""
    events = trace.device_events.select("device", "name_id", "activity").with_columns(
        call=pl.Series(costs.of_events, dtype=I64)
    )
    groups = events.filter(pl.col("activity") == "kernel").group_by("device", "call", "name_id", maintain_order=True)
    counts = groups.agg(kernels=pl.len().cast(I64))
    names = trace.names.gather(counts["name_id"]).cast(TEXT).alias("kernel")
    elements = {name: find_element_type(name) for name in names.unique()}
    element = names.replace_strict(elements, return_dtype=TEXT).alias("element")
    calls = costs.calls.select(SIGNATURE).with_row_index("call").cast({"call": I64})
    return counts.with_columns(names, element).join(calls, on="call", how="left", maintain_order="left")


def _list_operators(trace: Trace) -> pl.DataFrame:
    """Return the same of the operators that do the work: the outermost of those that do not only call others."""
    slices = read_slices(trace)
    operands = read_operands(trace, slices)
    names = operands["operator"].unique().drop_nulls()
    working = names.filter(pl.Series([not _is_empty(name) for name in names], dtype=pl.Boolean))
    works = (operands["operator"].is_in(working.implode()) & operands["dims"].is_not_null()).fill_null(value=False)
    around = np.append(find_nearest(slices, works.to_numpy()), -1)[slices.parent]
    chosen = operands.filter(works & pl.Series(around < 0, dtype=pl.Boolean))
    fixed = {
        "device": pl.lit(0),
        "kernel": pl.lit(None, TEXT),
        "element": pl.lit(None, TEXT),
        "kernels": pl.lit(1, I64),
    }
    return chosen.with_columns(**fixed)


def _is_empty(name: str) -> bool:
    """Return whether an operator does no work itself."""
    return arranges(name) or is_free(name) or _is_wrapper(name)


def _is_wrapper(name: str) -> bool:
    """Return whether a name is that of a function around operators: of autograd in Python, or of compiled code.

    Operators have a namespace, and compiled kernels their own names.
    """
    return "::" not in name and not is_fused(name)


def _measure_call(signature: Mapping[str, str | None]) -> tuple[int | None, int | None]:
    """Return what the operands of a call hold and what it writes next to them, None for what is unknown."""
    name, columns = signature["operator"], [signature[column] for column in SIGNATURE[1:]]
    if name is None or _is_wrapper(name) or not ANY_TYPE.search(signature["dtypes"] or ""):
        return None, None
    read = read_call(name, columns, signature["element"])
    if read is None:
        return None, None
    call = OperatorCall(name, tuple(_as_recorded_today(operand) for operand in read.operands))
    if not call.has_sizes or call.nbytes >= MAX_NBYTES:
        return None, None
    cost = cost_of_call(call)
    return call.nbytes, 0 if IN_PLACE.search(name) else None if cost is None else cost.written_nbytes


def _as_recorded_today(operand: Operand) -> Operand:
    """Return the operand; older recorders give numbers an empty shape and a type that no tensor has."""
    return Operand(value=operand.value) if operand.dtype is None and operand.shapes == ((),) else operand


def measure_working_sets(footprints: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Return the working set of every device of `footprints` (`FOOTPRINTS`), with the schema `WORKING_SETS`."""
    parts = footprints.partition_by("device", as_dict=True, maintain_order=True)
    rows = [_summarize(device, rows, trace) for (device, *_), rows in sorted(parts.items())]
    return pl.DataFrame(rows, schema=WORKING_SETS)


def _summarize(device: int, rows: pl.DataFrame, trace: Trace) -> dict[str, object]:
    """Return a row of `WORKING_SETS`; `rows` are those of one device, the largest first."""
    known = rows.drop_nulls("footprint_nbytes").sort("footprint_nbytes", descending=True, maintain_order=True)
    kernels = int(known["kernels"].sum())
    counts: dict[str, object] = {
        "device": device,
        "kernels": kernels,
        "unknown_kernels": int(rows["kernels"].sum()) - kernels,
    }
    if not kernels:
        return counts
    sizes, weights = known["footprint_nbytes"].to_numpy(), known["kernels"].to_numpy()
    largest, peak = int(sizes[0]), _find_peak(trace, device)
    return {
        **counts,
        **known.select("kernel", "operator", "dims").row(0, named=True),
        "working_set_nbytes": largest,
        "mean_nbytes": float(np.average(sizes.astype(np.float64), weights=weights)),
        "median_nbytes": _find_quantile(sizes, weights, 0.5),
        "p90_nbytes": _find_quantile(sizes, weights, 0.9),
        "footprint_nbytes": peak,
        "footprint_ratio": None if peak is None or not largest else peak / largest,
    }


def _find_quantile(sizes: Int64s, weights: Int64s, share: float) -> int:
    """Return the smallest of the descending `sizes` that at least `share` of all, by their weights, do not exceed."""
    reached = np.cumsum(weights[::-1]) >= share * weights.sum()
    return int(sizes[::-1][np.argmax(reached)])


def _find_peak(trace: Trace, device: int) -> int | None:
    """Return the most memory in use on a device, None where the recording has no totals."""
    place = HOST_MEMORY if is_stand_in(trace) or not trace.device_events.height else device
    use = read_use(trace.memory_events, place)
    return None if use is None or not use.absolute else int(use.allocated_nbytes.max())
