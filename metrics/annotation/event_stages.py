"""Which stage each device event is part of: as its launch was, or as the order of kernels has it.

A kernel is part of the stage that launched it, however much later it runs; a collective is communication wherever it
was launched. What is unknown so is decided within iterations, from what is available around and from kernels' names.

The stage of a calling context follows from its name, its parents and the passes of autograd.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import polars as pl
from msgspec import Struct

from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.metrics.annotation.device_segments import find_windows
from deepprof.metrics.annotation.filling import KEPT, fill
from deepprof.metrics.annotation.stage_names import (
    BACKWARD,
    COMMUNICATION,
    EVALUATION,
    FORWARD,
    LOADING,
    LOSS,
    OPTIMIZER,
    STAGES,
    name_stages,
)
from deepprof.metrics.contexts.paths import list_levels, measure_depths, read_places, spread
from deepprof.metrics.contexts.tree import ContextTree
from deepprof.metrics.host import OPTIMIZER as OPTIMIZER_KERNEL
from deepprof.metrics.loop import Loop
from deepprof.metrics.names import are_named
from deepprof.metrics.streams import COLLECTIVE
from deepprof.metrics.template.blocks import place_blocks

Int8s = npt.NDArray[np.int8]
Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

# How a stage is known: from what the host recorded around the launch, from the name of an operator, from its place
# between events that are known so, from kernels alone.
EVIDENCE = ("recorded", "named", "between", "kernels", "nothing")
CONFIDENCES = (1.0, 0.95, 0.9, 0.8, 0.0)  # the shares that are right, about: docs/generated/accuracy.md
RECORDED, NAMED, BETWEEN, KERNELS, NOTHING = range(len(EVIDENCE))
PASS = 0.5  # of the kernels of a forward pass: with as many behind the optimizer there is another one
FEW_KNOWN = 0.1  # of a loop's events: with fewer their order rests on the names of kernels
BESIDE_KNOWN = 0.1  # what names of kernels weigh where autograd's operators are known
UNDIFFERENTIATED = 0.1  # what it costs then to be anything but an update: autograd does not know the operator
LOOP, COPY_IN = "loop over parameters", "copy in"
DOUBTED = 3.0  # what it costs to leave what only the name of an operator states
SMALL_BODY, MANY_REPEATS = 16, 8  # kernels of a loop over parameters, and how often it runs at least
MOSTLY_SEEN = 0.6  # of the kernels of a loop that are known from forward passes of others

NONE = -1
STATES = (*STAGES, "loss module", "none")  # of a context: a stage, loss whatever is in it, or nothing
_NUMBERS = {state: number for number, state in enumerate(STATES)}

# The first family whose pattern fits is a kernel's own.
FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "optimizer": OPTIMIZER_KERNEL,
        "backward": r"(?i)back_?ward|bwd|updateGradInput|dgrad|wgrad|bgrad|bprop|wrw|cutlassB\b|fmha_bwd"
        r"|grad_?(?:input|weight|bias|gamma|beta)|gradinput"
        r"|_bw_|bn_bw|unrolled_backward|sum_and_scatter|dx_kernel|dwdb|_dkdv|_dq\b",
        "loss": r"(?i)Criterion_updateOutput|nll_?loss|cross_?entropy|mse_loss|bce_|binary_cross_entropy"
        r"|softmax_xent|ctc_loss|l1_loss",
        "plain convolution": r"(?i)winograd|fprop",  # also run for the gradients of inputs
        "forward": r"(?i)forward|[_:]fwd|fwd_|_fw_|bn_fw|collect_statistics|RowwiseMoments|vectorized_layer_norm"
        r"|cutlassF\b|flash_fwd|fused_dropout|embedding_kernel|indexSelect(?:Large|Small)Index",
        "plain product": r"(?i)gemm\w*_tn[_\W]|_tn_(?:align|\d)|_tn$|Cijk_Alik_Bljk",
        "weight product": r"(?i)gemm\w*_nt[_\W]|_nt_(?:align|\d)|_nt$|Cijk_Ailk_Bjlk",
        "product": r"(?i)gemm|gemv|cutlass|xmma|cijk_|matmul|conv|winograd|attention|fmha|splitk",
        "update": r"(?i)addcdiv|addcmul|lerp|foreach",
        "norm": r"(?i)norm|softmax|pool|dropout|gelu|silu|relu|rope|rotary",
    }
)
NO_FAMILY = "other"
FAMILY_NAMES = (*FAMILIES, NO_FAMILY, "copy in", "copy", "loop over parameters")
_IMPOSSIBLE = 4.0  # of stages that kernels alone never show: entered only next to such ones
_ORDER = ("data loading", "forward", "loss", "backward", "optimizer")
# How much speaks against each of `_ORDER`, in units of one step from a stage to the one that usually follows.
_AGAINST: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "optimizer": (5, 5, 5, 5, 0),
        "backward": (4, 4, 3, 0, 4),
        "loss": (4, 2, 0, 2.5, 5),
        "forward": (3, 0, 1, 2, 4),
        "plain convolution": (3, 0, 2, 0.5, 4),
        "plain product": (3, 0, 2, 0.7, 4),
        "weight product": (3, 0.7, 2, 0, 4),
        "product": (3, 0, 2, 0, 4),
        "update": (3, 2, 2, 2, 0),
        "norm": (2, 0, 0.7, 0.1, 3),
        NO_FAMILY: (1, 0, 0.5, 0, 0.5),
        "copy in": (0, 1.2, 2, 2, 2),
        "copy": (0.6, 0, 0, 0, 0.2),
        "loop over parameters": (1, 0.3, 0.5, 0.1, 0),
    }
)


class TraceStages(Struct, frozen=True, eq=False):
    """For each device event the number of its stage in `STAGES`, -1 for unknown, and how it is available (`EVIDENCE`).

    `of_slices` are the stages of what the host did, None where it recorded no more than calls.
    """

    stage: Int8s
    evidence: Int8s
    of_slices: _JudgedStages | None


def find_stages(trace: Trace, loops: Sequence[Loop], tree: ContextTree | None) -> TraceStages:
    """Return the stage of every row of `Trace.device_events`; `tree` are its contexts, None where there is no code."""
    found = _label_by_launch(trace, tree)
    for loop in sorted(loops, key=lambda each: -each.period):  # a shorter one on the same stream may be a part of it
        _label_in_iterations(found, trace, loop, tree)
        _label_between(found, trace, loop)
    return found


def _label_between(found: TraceStages, trace: Trace, loop: Loop) -> None:
    """Decide on kernels between iterations: where most are known from forward passes they are evaluations."""
    events = trace.device_events.with_row_index("event")
    on_main = (pl.col("device") == loop.device) & (pl.col("stream") == loop.stream)
    main = events.filter(on_main & pl.col("activity").is_in(WORK_ACTIVITIES))
    start, rows = main["start_ns"].to_numpy(), main["event"].to_numpy()
    inside = np.flatnonzero(_in_iterations(loop, start))
    if not len(inside):
        return
    between = np.setdiff1d(np.arange(inside[0], inside[-1]), inside)
    new = rows[between][found.evidence[rows[between]] == NOTHING]
    names = trace.device_events["name_id"].to_numpy()
    if len(new) and np.isin(names[new], np.unique(names[found.stage == FORWARD])).mean() > MOSTLY_SEEN:
        found.stage[new], found.evidence[new] = EVALUATION, KERNELS


def _label_by_launch(trace: Trace, tree: ContextTree | None) -> TraceStages:
    many = trace.device_events.height
    stage, evidence, slices = np.full(many, NONE, np.int8), np.full(many, NOTHING, np.int8), None
    if tree is not None:
        contexts = judge_contexts(tree.contexts)
        slices = judge_slices(tree, contexts)
        stage, certain = _of_launches(tree, contexts, slices)
        evidence = np.where(stage == NONE, NOTHING, np.where(certain, RECORDED, NAMED)).astype(np.int8)
    kernel = (trace.device_events["activity"] == "kernel").to_numpy()
    collective = kernel & are_named(trace.names, trace.device_events["name_id"], COLLECTIVE)
    stage[collective], evidence[collective] = COMMUNICATION, RECORDED
    return TraceStages(stage, evidence, slices)


def _of_launches(tree: ContextTree, contexts: _JudgedStages, slices: _JudgedStages) -> tuple[Int8s, Bools]:
    """Return the stage of the context of each device event, else of the slice that launched it; and what is certain."""
    stage, certain = contexts.stage[tree.of_events], contexts.certain[tree.of_events]
    missing = np.flatnonzero((stage == NONE) & (tree.sites.row >= 0))
    row = tree.sites.row[missing]
    stage[missing], certain[missing] = slices.stage[row], slices.certain[row]
    return stage, certain


def _label_in_iterations(found: TraceStages, trace: Trace, loop: Loop, tree: ContextTree | None) -> None:
    """Decide what is unknown of the events of a loop's device within its iterations."""
    events = trace.device_events.with_row_index("event")
    work = events.filter((pl.col("device") == loop.device) & pl.col("activity").is_in(WORK_ACTIVITIES))
    inside = _in_iterations(loop, work["start_ns"].to_numpy())
    work = work.filter(pl.Series(inside, dtype=pl.Boolean))
    if found.stage[work["event"].to_numpy()].min(initial=0) >= 0:
        return
    main = work.filter(pl.col("stream") == loop.stream)
    main = main.filter(pl.Series(found.stage[main["event"].to_numpy()] != COMMUNICATION, dtype=pl.Boolean))
    rows, start = main["event"].to_numpy(), main["start_ns"].to_numpy()
    families = _families_of(trace, main, loop)
    known = found.evidence[rows] != NOTHING
    if not _turns(found.stage[rows], families):
        _label_inference(found, rows, trace, tree)
        return
    between = known.mean() > FEW_KNOWN
    differentiated = tree is not None and bool(tree.contexts["backward"].any())
    kinds = _number_kinds(found.stage[rows], found.evidence[rows], families)
    weights = _weigh_kinds(BESIDE_KNOWN if between and differentiated else 1.0)
    stage = fill(kinds, *_find_rows(loop, start), weights)
    new = (stage >= 0) & ~known
    if not between:
        new &= (main["activity"] != "graph").to_numpy()  # which may be of several stages
    found.stage[rows[new]] = stage[new]
    found.evidence[rows[new]] = BETWEEN if between and differentiated else KERNELS
    _find_evaluation(found, rows, *_find_rows(loop, start))
    _label_beside(found, work, rows, start)


def _find_evaluation(found: TraceStages, rows: Int64s, first: Int64s, end: Int64s) -> None:
    """Give forward passes at the end of some iterations, behind the optimizer, their stage: nothing goes backward.

    Where most iterations end so, they begin at another place than people state.
    """
    stage = found.stage[rows]
    places = np.where(np.isin(stage, [BACKWARD, OPTIMIZER]), np.arange(len(rows)), -1)
    last = np.append(np.maximum.accumulate(places), -1)[end - 1]  # the very last: of no event
    until = np.maximum(last + 1, first)
    passed = np.append(0, np.cumsum(stage == FORWARD))
    forward = passed[until] - passed[first]
    long = (last >= first) & (forward > 0) & (passed[end] - passed[until] >= PASS * forward)
    if not 0 < long.sum() <= len(long) / 2:
        return
    behind = _mark(until[long], end[long], len(rows)) & np.isin(stage, [FORWARD, LOSS, LOADING, NONE])
    found.stage[rows[behind]] = EVALUATION
    found.evidence[rows[behind]] = np.maximum(found.evidence[rows[behind]], BETWEEN)


def _in_iterations(loop: Loop, start: Int64s) -> Bools:
    """Return which of the sorted times `start` are in an iteration."""
    return _mark(*_find_rows(loop, start), len(start))


def _mark(first: Int64s, end: Int64s, many: int) -> Bools:
    """Return which of `many` rows are in one of the sections [`first`, `end`)."""
    inside = np.zeros(many + 1, np.int64)
    np.add.at(inside, first, 1)
    np.add.at(inside, end, -1)
    return np.cumsum(inside)[:-1] > 0


def _turns(stage: Int8s, families: Int8s) -> bool:
    """Return whether anything shows that iterations have more than a forward pass."""
    turning = [FAMILY_NAMES.index(name) for name in ("backward", "optimizer")]
    return bool(np.isin(stage, [BACKWARD, OPTIMIZER]).any() or np.isin(families, turning).any())


def _label_inference(found: TraceStages, rows: Int64s, trace: Trace, tree: ContextTree | None) -> None:
    """Decide on events of a loop in which nothing goes backward or is updated.

    Operators are the forward pass of a model; kernels are if most of them are known from forward passes. Such passes
    among the iterations of a training are its evaluation.
    """
    new = rows[found.evidence[rows] == NOTHING]
    names = trace.device_events["name_id"].to_numpy()
    if tree is None:
        seen = np.isin(names[new], np.unique(names[found.stage == FORWARD]))
        new = new if len(new) and seen.mean() > MOSTLY_SEEN else new[:0]
    else:
        new = new[_are_operators(tree, new)]
    trained = np.flatnonzero(np.isin(found.stage, [BACKWARD, OPTIMIZER]))
    among = len(trained) > 0 and len(rows) > 0 and trained[0] < np.median(rows) < trained[-1]  # in the order of time
    found.stage[new] = EVALUATION if among else FORWARD
    found.evidence[new] = KERNELS if tree is None else BETWEEN


def _are_operators(tree: ContextTree, events: Int64s) -> Bools:
    row = tree.sites.row[events]
    operator = np.append((tree.slices.rows["kind"] == "operator").to_numpy(), False)  # the last: not linked
    around = np.append(tree.slices.parent, -1)[row]
    found: Bools = operator[row] | operator[around]
    return found


def _families_of(trace: Trace, main: pl.DataFrame, loop: Loop) -> Int8s:
    """Return the family of every event of a main stream; loops over parameters are one of their own."""
    ids, place = np.unique(main["name_id"].to_numpy(), return_inverse=True)
    families: Int8s = _find_families(trace.names.gather(ids))[place]
    copy = (main["activity"] == "memcpy").to_numpy()
    families[copy | (main["activity"] == "memset").to_numpy()] = FAMILY_NAMES.index("copy")
    families[copy & (main["copy_kind"] == "HtoD").fill_null(value=False).to_numpy()] = FAMILY_NAMES.index(COPY_IN)
    light = np.isin(families, [FAMILY_NAMES.index(name) for name in (NO_FAMILY, "update")])
    looped = light & _repeat(main["name_id"].to_numpy(), MANY_REPEATS)
    start = main["start_ns"].to_numpy()
    small = [k for k, block in enumerate(loop.blocks) if block.events <= SMALL_BODY and block.repeats >= MANY_REPEATS]
    placed = place_blocks(loop, trace).filter(pl.col("block").is_in(small), pl.col("repeat") == 0)
    first, end = (np.searchsorted(start, placed[name].to_numpy()) for name in ("start_ns", "end_ns"))
    heavy = np.append(0, np.cumsum(~light))
    whole = heavy[end] == heavy[first]  # nothing in them is heavy
    looped |= _mark(first[whole], end[whole], len(start))
    families[looped] = FAMILY_NAMES.index(LOOP)
    return families


def _repeat(names: npt.NDArray[np.uint32], times: int) -> Bools:
    """Return which of a row of names are in a run of at least this many equal ones."""
    if not len(names):
        return np.zeros(0, np.bool_)
    begins = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    lengths = np.diff(np.append(begins, len(names)))
    return np.repeat(lengths >= times, lengths)


def _find_rows(loop: Loop, start: Int64s) -> tuple[Int64s, Int64s]:
    """Return the first row of every iteration in sorted `start`, and the row after its last."""
    begin, until = find_windows(loop)
    first = np.searchsorted(start, begin)
    end = np.searchsorted(start, np.maximum(until, loop.table["end_ns"].to_numpy()))
    return first, np.maximum(np.minimum(end, np.append(first[1:], len(start))), first)


def _number_kinds(stage: Int8s, evidence: Int8s, families: Int8s) -> Int64s:
    """Return for every event its row in `_weigh_kinds`."""
    doubted = (evidence == NAMED).astype(np.int64)
    kinds: Int64s = ((stage.astype(np.int64) + 1) * 2 + doubted) * len(FAMILY_NAMES) + families
    return kinds


def _weigh_kinds(weight: float) -> Floats:
    """Return what speaks against each stage, by the data on an event and by the family of its name.

    `weight` is that of the families.
    """
    families, many = _weigh_families() * weight, len(STAGES)
    if weight < 1:
        families[[FAMILY_NAMES.index(name) for name in (NO_FAMILY, LOOP)]] += UNDIFFERENTIATED
        families[FAMILY_NAMES.index(LOOP)] += UNDIFFERENTIATED
        families[FAMILY_NAMES.index(COPY_IN)] /= weight
        families[[FAMILY_NAMES.index(name) for name in (NO_FAMILY, LOOP)], OPTIMIZER] = 0
    costs = np.zeros((many + 1, 2, len(FAMILY_NAMES), many), np.float32)
    costs[0] = families
    for stage in range(many):
        others = np.arange(many) != stage
        costs[stage + 1, 0] = KEPT * others
        costs[stage + 1, 1] = DOUBTED * others
    return costs.reshape(-1, many)


def _label_beside(found: TraceStages, work: pl.DataFrame, rows: Int64s, start: Int64s) -> None:
    """Give events of other streams the stage of what began last on the main stream."""
    missing = work.filter(pl.Series(found.stage[work["event"].to_numpy()] == NONE))
    if not len(rows) or missing.is_empty():
        return
    at = np.searchsorted(start, missing["start_ns"].to_numpy(), side="right") - 1
    events = missing["event"].to_numpy()[at >= 0]
    stage = found.stage[rows[at[at >= 0]]]
    found.stage[events] = stage
    found.evidence[events] = np.where(stage == NONE, NOTHING, BETWEEN)


class _JudgedStages(Struct, frozen=True):
    """For each context, or slice, the number of its stage in `STAGES`, -1 where nothing speaks, and how sure it is.

    What a function, a range, a module or autograd states is `certain`; what an operator's name states is not.
    """

    stage: Int8s
    certain: Bools


def judge_contexts(contexts: pl.DataFrame) -> _JudgedStages:
    """Return the stage of every context of one rank; `contexts` has the columns of `CONTEXTS` and all rows."""
    parent, depth = read_places(contexts)
    named = name_stages(contexts)
    own = named["stage"].fill_null("none").replace_strict(_NUMBERS, return_dtype=pl.Int8).to_numpy().copy()
    certain = named["certain"].to_numpy().copy()
    backward = contexts["backward"].to_numpy()
    begins = backward & ~backward[parent]
    own[begins & (own != _NUMBERS["communication"])], certain[begins] = _NUMBERS["backward"], True
    state = own.copy()
    for rows in list_levels(depth)[1:]:
        around = parent[rows]
        taken = np.where(certain[rows], STRONG[state[around], own[rows]], WEAK[state[around], own[rows]])
        inherited = taken != own[rows]
        same = certain[around] & (state[around] == taken)  # what is part of a stage is no less so by its own name
        certain[rows] = np.where(inherited, certain[around], certain[rows] | same)
        state[rows] = taken
    stage = np.where(state == _NUMBERS["loss module"], _NUMBERS["loss"], state)
    return _JudgedStages(np.where(stage == _NUMBERS["none"], NONE, stage).astype(np.int8), certain)


def judge_slices(tree: ContextTree, contexts: _JudgedStages) -> _JudgedStages:
    """Return the stage of every slice of the host: of its context, or forward in operators that went backward later.

    Equal operators of one context may be of several passes; which of them went backward is known of each.
    """
    stage, certain = contexts.stage[tree.of_slices], contexts.certain[tree.of_slices]
    if not (tree.forward >= 0).any():
        return _JudgedStages(stage, certain)
    differentiated = np.zeros(len(stage), np.bool_)
    differentiated[tree.forward[tree.forward >= 0]] = True
    differentiated &= (tree.slices.rows["kind"] == "operator").to_numpy()
    inside = spread(differentiated, np.maximum(tree.slices.parent, 0), measure_depths(tree.slices.parent))
    new = inside & (stage == NONE)
    return _JudgedStages(np.where(new, _NUMBERS["forward"], stage).astype(np.int8), certain | new)


def _combine(around: str, own: str, *, certain: bool) -> str:
    """Return what a context is part of that is in one that is part of `around`, and whose name states `own`.

    Evaluation, saving, loading data and backward passes are whole: what they call is part of them. An optimizer may
    call the other stages, as its closure.
    """
    if own == "none":
        return around
    if own == "communication" or around in _OPEN:
        return own
    if around in _WHOLE:
        return own if own in _WHOLE[around] else around
    return own if certain or (around, own) == ("forward", "loss") else around


def _tabulate(*, certain: bool) -> Int8s:
    """Return `_combine` for all pairs of states, by their numbers."""
    table = [[_NUMBERS[_combine(around, own, certain=certain)] for own in STATES] for around in STATES]
    return np.array(table, np.int8)


_OPEN = ("none", "other", "communication", "unknown")
# What stays itself whatever it calls, but for these.
_WHOLE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "evaluation": (),
        "checkpoint": (),
        "data loading": (),
        "backward": ("optimizer",),
        "loss module": ("backward",),
    }
)
STRONG, WEAK = _tabulate(certain=True), _tabulate(certain=False)


def _find_families(names: pl.Series) -> Int8s:
    """Return for every name of a kernel the number of its family in `FAMILY_NAMES`."""
    name = pl.col("name").fill_null("")
    chosen = pl.coalesce(
        *(pl.when(name.str.contains(pattern)).then(pl.lit(family)) for family, pattern in FAMILIES.items()),
        pl.lit(NO_FAMILY),
    )
    numbers = {family: number for number, family in enumerate(FAMILY_NAMES)}
    found = pl.DataFrame({"name": names.rename("name")}).select(chosen.replace_strict(numbers, return_dtype=pl.Int8()))
    return found.to_series().to_numpy()


def _weigh_families() -> Floats:
    """Return how much speaks against each stage, an array of `FAMILY_NAMES` × `STAGES`."""
    costs = np.full((len(FAMILY_NAMES), len(STAGES)), _IMPOSSIBLE, np.float32)
    places = [STAGES.index(stage) for stage in _ORDER]
    for number, family in enumerate(FAMILY_NAMES):
        costs[number, places] = _AGAINST[family]
    for stage in ("evaluation", "checkpoint", "other"):  # goes on where it was
        costs[:, STAGES.index(stage)] = 0.5
    return costs
