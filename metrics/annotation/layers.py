"""The model's layers: which module each event worked for, forward and backward.

They are known from the functions of modules (`nn.Module` frames), from the name scopes of compiled programs, from a
list of the model's operators (`Trace.layers`), or else from what repeats within an iteration: the blocks of a deep
network, forward and backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.names.short import shorten
from deepprof.collectors.trace import Trace
from deepprof.metrics.annotation.event_stages import TraceStages
from deepprof.metrics.annotation.layer_alignment import align_layers
from deepprof.metrics.annotation.stage_names import BACKWARD, FORWARD
from deepprof.metrics.contexts.paths import find_nearest, measure_depths, read_places
from deepprof.metrics.contexts.stacks import expand
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.loop import Loop
from deepprof.metrics.sequence import main_kernels
from deepprof.metrics.template.blocks import place_blocks

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SOURCES = ("operators", "modules", "scopes", "blocks")
SEPARATORS = {"operators": "."}  # as the user writes them; others are separated by a slash
# How JAX writes what it did with a function: jvp(ResNet), transpose(jvp(ResNet)); and scopes that are no layer.
WRAPPED = r"^(?:transpose|jvp|vmap|pmap|remat|checkpoint|custom_jvp|custom_vjp)\((.*)\)$"
NO_LAYER = (
    r"^(?:p?jit|pmap|xmap|shard_map|while|body|cond|branch_\d+_fun|scan|closed_call|core_call|remat|checkpoint|"
    r"rematted_computation|custom_[jv][vj]p_call\w*|xla_call|main|named_computation)?(?:\(.*\))?$"
)
DEEPEST = 64  # layers within each other; what is deeper belongs to the one there
UNWRAPPED = 4  # such functions around each other
LONGEST_NAME = 40  # characters of a kernel's name in that of a block
FEWEST_REPEATS, SMALLEST_BLOCK = 3, 4  # of blocks that count as layers: how often, and of how many kernels


class TraceLayers(Struct, frozen=True, eq=False):
    """The layers of one rank as a tree, and the layer of every device event and of every slice of the host.

    `name`, `parent` (-1: of the first, the model, which contains all) and `source` (of `SOURCES`) are by layer, parents
    first. Layer 0 is that of whatever belongs to none. `of_slices` is empty where layers are unknown by the host.
    """

    name: tuple[str, ...]
    parent: Int64s
    source: str
    of_events: Int64s
    of_slices: Int64s

    @property
    def depth(self) -> Int64s:
        """How many layers are around each one."""
        return measure_depths(self.parent)

    def write_paths(self) -> list[str]:
        """Return the name of every layer with those of the layers around it; the names of attributes with dots."""
        paths: list[str] = []
        between = SEPARATORS.get(self.source, "/")
        for name, parent in zip(self.name, self.parent.tolist(), strict=True):
            paths.append(f"{paths[parent]}{between}{name}" if parent > 0 else name)
        return paths


def find_layers(
    trace: Trace, loops: Sequence[Loop], tree: ContextTree | None, stages: TraceStages
) -> TraceLayers | None:
    """Return the layers of a trace from the best source that it has, None where it has none."""
    if tree is not None:
        given = _read_operators(trace, tree)
        if len(given.name) > 1:
            return given
        for source, kind in (("modules", "module"), ("scopes", "scope")):
            found = _read_contexts(tree, source, kind)
            if len(found.name) > 1:
                return found
    return _read_blocks(trace, loops, stages)


def _read_contexts(tree: ContextTree, source: str, kind: str) -> TraceLayers:
    """Return the layers that contexts of one kind are; backward contexts are below their forward operator."""
    contexts = tree.contexts.with_columns(
        name=_name_layers(tree.contexts["name"]) if kind == "scope" else pl.col("name")
    )
    layer = ((contexts["kind"] == kind) & (contexts["name"] != "")).to_numpy()
    if kind == "scope":
        layer &= _hold_others((contexts["kind"] == kind).to_numpy(), *read_places(contexts))
    return _number_layers(tree, contexts["name"], layer, source)


def _read_operators(trace: Trace, tree: ContextTree) -> TraceLayers:
    """Return the layers of `Trace.layers`, laid on the operators of the trace, and on their backward nodes."""
    rows = align_layers(tree.slices, trace.names, trace.layers)
    of_rows, names, parent = _number_paths(trace.layers)
    around = np.where(tree.forward >= 0, tree.forward, tree.slices.parent)
    nearest = find_nearest(rows >= 0, np.maximum(around, 0), measure_depths(around))
    of_slices = np.append(of_rows, 0)[np.append(rows, -1)[nearest]]
    of_events = np.append(of_slices, 0)[tree.sites.row]
    return TraceLayers(names, parent, "operators", of_events, of_slices)


def _number_paths(layers: pl.DataFrame) -> tuple[Int64s, tuple[str, ...], Int64s]:
    """Return the layer of every row of `LAYERS`, and the names and parents of layers; the model itself is layer 0."""
    own = (layers["layer"] == layers["layer_class"]).fill_null(value=False) & ~layers["layer"].str.contains(r"\.")
    numbers, found = {"": 0}, _LayerNodes()
    for path in layers["layer"].filter(~own).unique(maintain_order=True):
        for name in path.split("."):
            numbers[path] = found.enter(numbers.get(path, 0), name, again=False)
    places = pl.select(pl.when(own).then(pl.lit("")).otherwise(layers["layer"])).to_series()
    of_rows = places.replace_strict(numbers, return_dtype=pl.Int64).to_numpy()
    return of_rows, tuple(found.names), np.array(found.parents)


def _hold_others(found: Bools, parent: Int64s, depth: Int64s) -> Bools:
    """Return which of the nodes that were found hold another one: the innermost scope of an operation is its own."""
    inner = np.flatnonzero(found & (np.arange(len(found)) > 0))
    around = find_nearest(found, parent, depth)[parent[inner]]
    holds = np.zeros(len(found), np.bool_)
    holds[around[around >= 0]] = True
    return holds


def _name_layers(scopes: pl.Series) -> pl.Series:
    """Return the names of layers in name scopes of JAX, empty where a scope is none."""
    name = pl.col("name")
    for _ in range(UNWRAPPED):
        name = name.str.replace(WRAPPED, "${1}")
    plain = pl.when(name.str.contains(NO_LAYER)).then(pl.lit("")).otherwise(name)
    return pl.DataFrame({"name": scopes}).select(plain.fill_null("")).to_series()


def _number_layers(tree: ContextTree, names: pl.Series, layer: Bools, source: str) -> TraceLayers:
    parent, depth = read_places(tree.contexts)
    nearest = find_nearest(layer, parent, depth)
    found = _LayerNodes()
    of_contexts = np.zeros(len(layer), np.int64)
    for row in np.flatnonzero(layer).tolist():  # few, the outer ones first
        above = int(nearest[parent[row]]) if row else -1
        of_contexts[row] = found.enter(
            int(of_contexts[above]) if above >= 0 else 0, names[row], again=source == "modules"
        )
    of_contexts = np.where(nearest >= 0, of_contexts[nearest], 0)
    parents = np.array(found.parents)
    return TraceLayers(tuple(found.names), parents, source, of_contexts[tree.of_events], of_contexts[tree.of_slices])


class _LayerNodes:
    """Layers as they are met, each once for the path to it."""

    def __init__(self) -> None:
        self.names, self.parents, self.depths = [""], [-1], [0]
        self.children: dict[tuple[int, str], int] = {}

    def enter(self, around: int, name: str, *, again: bool) -> int:
        """Return the layer of a name within another one; with `again` that one, or one around it, of the same name.

        Modules have their own names: one that is around itself is run once more, by a checkpoint.
        """
        outer = around
        while again and outer > 0:
            if self.names[outer] == name:
                return outer
            outer = self.parents[outer]
        if self.depths[around] >= DEEPEST:
            return around
        number = self.children.setdefault((around, name), len(self.names))
        if number == len(self.names):
            self.names.append(name)
            self.parents.append(around)
            self.depths.append(self.depths[around] + 1)
        return number


def _read_blocks(trace: Trace, loops: Sequence[Loop], stages: TraceStages) -> TraceLayers | None:
    """Return as layers the blocks that repeat within iterations; a block of the backward pass is the forward one's."""
    nodes, of_events = _LayerNodes(), np.zeros(trace.device_events.height, np.int64)
    for loop in loops:
        first: dict[int, int] = {}  # of every forward block of this many repetitions the first layer
        for block in _find_blocks(trace, loop, stages):
            backward = block.stage == BACKWARD and block.repeats in first
            begin = first[block.repeats] if backward else _enter_block(nodes, block.title, block.repeats)
            if block.stage == FORWARD:
                first.setdefault(block.repeats, begin)
            of_events[block.event] = begin + (block.repeats - 1 - block.repeat if backward else block.repeat)
    nothing = np.empty(0, np.int64)
    found = TraceLayers(tuple(nodes.names), np.array(nodes.parents), "blocks", of_events, nothing)
    return found if len(nodes.names) > 1 else None


class _BlockEvents(Struct, frozen=True, eq=False):
    """A block of a loop: the `event` rows of its kernels, and in which of its `repeats` each is, from 0 on."""

    repeats: int
    stage: int  # that of most of its kernels, -1 for none
    title: str
    event: Int64s
    repeat: Int64s


def _find_blocks(trace: Trace, loop: Loop, stages: TraceStages) -> Iterator[_BlockEvents]:
    """Yield the large blocks of a loop, forward ones first, then as they run."""
    main = main_kernels(trace, loop.device, loop.stream)
    start, rows = main["start_ns"].to_numpy(), main["row"].to_numpy().astype(np.int64)
    placed = place_blocks(loop, trace).filter(pl.col("repeat") > 0)
    found = []
    for number, block in enumerate(loop.blocks):
        spans = placed.filter(pl.col("block") == number)
        if block.events < SMALLEST_BLOCK or block.repeats < FEWEST_REPEATS or spans.is_empty():
            continue
        begin, end = (np.searchsorted(start, spans[name].to_numpy()) for name in ("start_ns", "end_ns"))
        places = expand(begin, end)
        known = stages.stage[rows[places]]
        stage = int(np.bincount(known[known >= 0]).argmax()) if (known >= 0).any() else -1
        repeat = np.repeat(spans["repeat"].to_numpy() - 1, end - begin)
        title = _name_longest(main[places], trace)
        found.append((stage != FORWARD, block.first, _BlockEvents(block.repeats, stage, title, rows[places], repeat)))
    return (block for *_, block in sorted(found, key=lambda each: each[:2]))


def _enter_block(nodes: _LayerNodes, title: str, repeats: int) -> int:
    """Return the first of as many new layers as a block repeats; all blocks of a trace are numbered."""
    begin = len(nodes.names)
    for number in range(begin, begin + repeats):
        nodes.enter(0, f"block {number} ({title})", again=False)
    return begin


def _name_longest(kernels: pl.DataFrame, trace: Trace) -> str:
    """Return the short name of the kernels that use most of the time of some."""
    times = kernels.group_by("name_id", maintain_order=True).agg(
        (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
    )
    if times.is_empty():
        return ""
    return shorten(trace.name(int(times["name_id"][int(times["ns"].arg_max() or 0)])))[:LONGEST_NAME]
