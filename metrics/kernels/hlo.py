"""What kernels compute by the instructions of XLA's compiled programs that they ran (`Trace.instructions`).

A kernel that XLA generated has the name of its instruction, which is that of the fusion's root only. Its category is
that of the most expensive group of the opcodes fused in it (`opcodes.toml`). The name of a library's kernel counts more
than the instruction, which only adds what is missing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.cost.roofs import DevicePeaks, find_peaks
from deepprof.metrics.kernels.kinds import KERNEL_KINDS, PRODUCTS, RATE_TYPES, Category, Precision, Unit

Int64s = npt.NDArray[np.int64]
XLA = "XLA"
KINDS = tuple(KERNEL_KINDS)
ASYNCHRONOUS = re.compile(r"-(?:start|done|update)$")
THREEFRY = ({"xor", "shift-left"}, {"xor", "shift-right-logical"})  # the generator of JAX, written out
SOFTMAX = re.compile(r"(?i)softmax")
NORM = re.compile(r"(?i)(?:layer|batch|group|rms|instance)_?norm|(?<!global)(?<!grad)(?<!weight)_norm(?:_\d+)?\b")
SCAN = re.compile(r"\bcum(?:sum|prod|max|min|logsumexp)\b")
COMPILED_PRODUCT = re.compile(r"^__(?:triton|cublas|cudnn|custom_fusion|cutlass)")
SLIM = 8  # rows or columns of a product: a library multiplies a matrix by fewer on ordinary units, too
SEPARATOR = r"[^A-Za-z0-9]+"


class _OpcodeGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Opcodes of one category."""

    category: Category
    opcodes: tuple[str, ...]
    weight: Literal["heavy", "light"] = "heavy"


class _CallTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A regular expression, searched in what a custom call calls, and what it computes."""

    match: str
    category: Category
    library: str
    source: str
    algorithm: str | None = None


class _OpcodeTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file `opcodes.toml`."""

    schema: Literal["deepprof.opcodes/1"]
    source: str
    groups: tuple[_OpcodeGroup, ...]
    targets: tuple[_CallTarget, ...]
    precisions: dict[str, Precision]
    algorithms: dict[str, Precision]


@cache
def load_opcodes() -> _OpcodeTable:
    """Return what opcodes and custom calls compute."""
    text = files(__package__).joinpath("opcodes.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _OpcodeTable)


class InstructionDevice(Struct, frozen=True):
    """On what programs ran, as far as it decides how products are computed; `peaks` is None for an unknown device."""

    peaks: DevicePeaks | None = None
    is_amd: bool = False


def refine_kinds(trace: Trace, table: pl.DataFrame, of_events: Int64s) -> tuple[pl.DataFrame, Int64s]:
    """Return a table of kernels' kinds, and the row of device events in it, with what instructions add to both.

    `table` has `name`, `operator` and `KERNEL_KINDS`. Kernels of one name have several rows where their instructions
    differ.
    """
    links = trace.event_instructions.filter(
        (pl.col("event") < len(of_events)) & (pl.col("instruction") < trace.instructions.height)
    )
    links = links.with_columns(row=pl.Series(of_events[links["event"].to_numpy()], dtype=pl.Int64))
    links = links.filter(pl.col("row") >= 0).unique("event", keep="last", maintain_order=True)
    if links.is_empty():
        return table, of_events
    pairs = links.select("row", "instruction").unique(maintain_order=True).with_row_index("pair")
    kinds = classify_instructions(trace.instructions, find_device(trace))
    names = trace.instructions["name"].gather(pairs["instruction"])
    merged = _merge(table[pairs["row"].to_numpy()], kinds[pairs["instruction"].to_numpy()], names)
    numbers = links.join(pairs, on=["row", "instruction"], how="left", maintain_order="left")["pair"]
    found = of_events.copy()
    found[links["event"].to_numpy()] = numbers.to_numpy().astype(np.int64) + table.height
    return _without_repeats(pl.concat([table, merged]), found)


def _merge(by_name: pl.DataFrame, by_instruction: pl.DataFrame, instructions: pl.Series) -> pl.DataFrame:
    """Return kinds by name with those of the instructions in place of them for XLA's kernels, in gaps for others."""
    own = _plain(by_name["name"]) == _plain(instructions)
    other = by_instruction.rename({name: f"its_{name}" for name in KINDS})
    rows = by_name.hstack(other).with_columns(own=own)
    known = pl.col("its_category") != "unknown"
    lacks = ~pl.col("own") & (pl.col("category") == "unknown")
    both = pl.col("category").is_in(PRODUCTS) & pl.col("its_category").is_in(PRODUCTS) & ~pl.col("own")
    taken = known & (pl.col("own") | lacks)
    filled = {
        name: pl.when(both).then(pl.coalesce(name, f"its_{name}")).otherwise(name) for name in ("precision", "unit")
    }
    added = pl.any_horizontal(pl.col(name).is_null() & pl.col(f"its_{name}").is_not_null() for name in filled)
    chosen = {name: pl.when(taken).then(f"its_{name}").otherwise(filled.get(name, pl.col(name))) for name in KINDS}
    chosen["library"] = pl.coalesce(pl.when(~pl.col("own")).then("library"), chosen["library"])
    chosen["sure"] = (
        pl.when(taken)
        .then(pl.col("its_sure") & pl.col("own"))
        .otherwise(pl.col("sure") & (pl.col("its_sure") | ~(both & added)))
    )
    return rows.select("name", "operator", **chosen)


def _plain(names: pl.Series) -> pl.Series:
    """Return names as XLA writes them for kernels, to compare: `fusion.12` runs as `fusion_12`."""
    return names.cast(pl.String).str.strip_suffix(".kd").str.replace_all(SEPARATOR, "_")


def _without_repeats(table: pl.DataFrame, of_events: Int64s) -> tuple[pl.DataFrame, Int64s]:
    """Return the rows that events have, without repetitions, and the row of every event."""
    used, rows = np.unique(of_events[of_events >= 0], return_inverse=True)
    kept = table[used]
    distinct = kept.unique(maintain_order=True).with_row_index("number")
    number = kept.join(distinct, on=table.columns, how="left", nulls_equal=True, maintain_order="left")["number"]
    found = of_events.copy()
    found[of_events >= 0] = number.to_numpy().astype(np.int64)[rows]
    return distinct.drop("number"), found


def find_device(trace: Trace) -> InstructionDevice:
    """Return the kind of device that a trace is of; its devices are of one kind."""
    for name, memory, cores in trace.devices.select("name", "memory_nbytes", "multiprocessors").iter_rows():
        peaks = find_peaks(name or "", multiprocessors=cores, memory_nbytes=memory)
        is_amd = peaks.name.startswith("AMD") if peaks else bool(re.match(r"(?i)amd|radeon|instinct|gfx", name or ""))
        return InstructionDevice(peaks, is_amd)
    return InstructionDevice()


def classify_instructions(instructions: pl.DataFrame, device: InstructionDevice) -> pl.DataFrame:
    """Return what instructions compute, row by row, with the schema `KERNEL_KINDS`."""
    columns = ("opcode", "target", "parts", "shape", "factors", "precision", "op_name")
    rows = instructions.select(pl.col(columns).fill_null("")).iter_rows(named=True)
    return pl.DataFrame([_classify(row, device) for row in rows], schema=dict(KERNEL_KINDS))


def _classify(row: Mapping[str, str], device: InstructionDevice) -> dict[str, Any]:
    library, algorithm = XLA, None
    if row["opcode"] == "custom-call":
        target = next((one for one in load_opcodes().targets if re.search(one.match, row["target"])), None)
        category: Category = target.category if target else "unknown"
        library, algorithm = (target.library, target.algorithm) if target else (XLA, None)
        sure = target is not None
    else:
        parts = row["parts"].split() or [ASYNCHRONOUS.sub("", row["opcode"])]
        category, sure = _choose_category(parts, row["op_name"])
    precision, unit, exact = _choose_precision(row, device) if category in PRODUCTS else (None, None, True)
    named = {"category": category, "precision": precision, "unit": unit, "library": library}
    # Convolutions of few channels, of depth … run on ordinary units whatever their type.
    return named | {"algorithm": algorithm, "sure": sure and exact and category != "convolution"}


def _choose_category(parts: Sequence[str], op_name: str) -> tuple[Category, bool]:
    """Return the category of what has these opcodes, and whether nothing else could be meant."""
    held = set(parts)
    groups = [group for group in load_opcodes().groups if held & set(group.opcodes)]
    listed = held <= {opcode for group in groups for opcode in group.opcodes}
    heavy = [group.category for group in groups if group.weight == "heavy"]
    if not groups or not (listed or heavy):
        return "unknown", False
    if any(marks <= held for marks in THREEFRY) and heavy[0] in {"elementwise", "layout"}:
        return "random", False
    if heavy[:1] == ["reduction"]:
        return _choose_reduction(held, op_name, alone=heavy == ["reduction"])
    if heavy[:1] == ["pooling"]:
        return ("sort_scan_topk", False) if SCAN.search(op_name) else ("pooling", "select-and-scatter" in held)
    category = (heavy or [groups[0].category])[0]
    return category, listed and _is_clear(category, heavy, [group.category for group in groups])


def _is_clear(category: Category, heavy: Sequence[Category], all_groups: Sequence[Category]) -> bool:
    """Return whether a category is without doubt that of the whole."""
    if category in PRODUCTS or category == "communication":
        return True
    if category == "embedding_index":
        return set(heavy) <= {"embedding_index"}
    if category == "elementwise":
        return "layout" not in all_groups
    beside = {category, "cast"} if heavy else {category}
    return set(all_groups) <= beside and category != "memory_set_copy"


def _choose_reduction(held: set[str], op_name: str, *, alone: bool) -> tuple[Category, bool]:
    """Return what a fusion with a reduction in it is part of; `alone`: nothing is computed but the reduction."""
    exponential = {"exponential", "subtract"} <= held and not held & {"logistic", "tanh"}
    if SOFTMAX.search(op_name) or exponential:
        return "softmax", False
    if NORM.search(op_name) or "rsqrt" in held:
        return "normalization", False
    return "reduction", alone


def _choose_precision(row: Mapping[str, str], device: InstructionDevice) -> tuple[Precision | None, Unit | None, bool]:
    table = load_opcodes()
    algorithm = next((found for start, found in table.algorithms.items() if row["precision"].startswith(start)), None)
    types = row["factors"].split()
    found = {next((p for start, p in table.precisions.items() if one.startswith(start)), None) for one in types}
    precision = algorithm or (found.pop() if len(found) == 1 else None)
    if precision is None:
        return None, None, False
    if precision == "fp32" and not algorithm:
        return _choose_float32(row["precision"], device)
    compiled = row["opcode"] == "custom-call" or COMPILED_PRODUCT.match(row["target"])
    if precision in {"fp32", "fp64"} or not compiled or _is_slim(row["shape"]):
        return precision, None, False
    has_units = device.peaks is None or RATE_TYPES.get(precision) in device.peaks.matrix_flops_per_s
    return precision, "tensor_core" if has_units else "simt", precision != "tf32" and "_X" not in row["precision"]


def _choose_float32(wanted: str, device: InstructionDevice) -> tuple[Precision, Unit | None, bool]:
    """Return how products of float32 are computed: XLA allows TF32 below the highest precision."""
    if device.is_amd:
        return "fp32", None, False
    has_tf32 = device.peaks is None or "tf32" in device.peaks.matrix_flops_per_s
    return ("tf32", "tensor_core", False) if has_tf32 and wanted != "HIGHEST" else ("fp32", "simt", False)


def _is_slim(shape: str) -> bool:
    """Return whether a product has so few rows or columns that libraries may treat it as one by a vector."""
    sizes = [int(size) for size in shape.partition("[")[2].rstrip("]").split(",") if size.lstrip("-").isdigit()]
    return min(sizes[-2:], default=0) < SLIM or len(sizes) < 2
