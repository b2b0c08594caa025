"""Which stage each calling context and slice is part of: by its name, what it lies in, and autograd's passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import polars as pl

from deepprof.metrics.annotation.stage_names import STAGES, name_stages
from deepprof.metrics.contexts.paths import list_levels, measure_depths, read_places, spread
from deepprof.metrics.contexts.tree import ContextTree

Int8s = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

NONE = -1
STATES = (*STAGES, "loss module", "none")  # of a context: a stage, loss whatever lies in it, or nothing
_NUMBERS = {state: number for number, state in enumerate(STATES)}


@dataclass(frozen=True, slots=True, eq=False)
class JudgedStages:
    """For each context, or slice, the number of its stage in `STAGES`, -1 where nothing speaks, and how sure it is.

    What a function, a range, a module or autograd says is `certain`; what an operator's name says is not.
    """

    stage: Int8s
    certain: Bools


def judge_contexts(contexts: pl.DataFrame) -> JudgedStages:
    """Return the stage of each context of one rank; `contexts` has the columns of `CONTEXTS` and all rows."""
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
    return JudgedStages(np.where(stage == _NUMBERS["none"], NONE, stage).astype(np.int8), certain)


def judge_slices(tree: ContextTree, contexts: JudgedStages) -> JudgedStages:
    """Return the stage of each slice of the host: of its context, or forward in operators that went backward later.

    Equal operators of one context may be of several passes; which of them went backward is known of each.
    """
    stage, certain = contexts.stage[tree.of_slices], contexts.certain[tree.of_slices]
    if not (tree.forward >= 0).any():
        return JudgedStages(stage, certain)
    differentiated = np.zeros(len(stage), np.bool_)
    differentiated[tree.forward[tree.forward >= 0]] = True
    differentiated &= (tree.slices.rows["kind"] == "operator").to_numpy()
    inside = spread(differentiated, np.maximum(tree.slices.parent, 0), measure_depths(tree.slices.parent))
    new = inside & (stage == NONE)
    return JudgedStages(np.where(new, _NUMBERS["forward"], stage).astype(np.int8), certain | new)


def _combine(around: str, own: str, *, certain: bool) -> str:
    """Return what a context is part of that lies in one that is part of `around`, and whose name says `own`.

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
