"""The state graph of one loop's iteration (Gu et al., Figs. 5 and 9), with Table III next to it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import msgspec

from deepprof.metrics.iteration import LoopMetrics
from deepprof.metrics.states import STATE_PARTS, measure_state_changes, measure_states
from deepprof.render.units import format_duration, format_ratio
from deepprof.render.wording import Wording, wording_of
from deepprof.web.documents.figures import write_table_iii
from deepprof.web.documents.schema import Figure

if TYPE_CHECKING:
    import polars as pl

    from deepprof.analysis import Analysis

# The paper's words, as numbers. An interval is far longer than the operation where the device pauses longer between
# iterations than one takes; one that is a tenth of it is what changing it can save, and worth a look. Copies fill a
# large part of it from a tenth on: in the paper's own case of slow copies they fill 12 %.
MUCH_LONGER = 1.0  # times the operation
LARGE_INTERVAL = 0.1  # of the operation
LARGE_OVERLAP = 0.1  # of the interval

Kind = Literal["copy", "compute", "communication", "host", "idle"]
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "copy-from-host": "copy",
        "copy-to-host": "copy",
        "copy": "copy",
        "compute": "compute",
        "communication": "communication",
        "other-stream": "idle",
        "start-up": "idle",
        "other-process": "idle",
        "unknown": "idle",
    }
)
SEVERAL: Mapping[str, str] = MappingProxyType({"copy": "exposed_copy_ns", "host": "idle_host_ns"})  # part that names it


class StateNode(msgspec.Struct, frozen=True, kw_only=True):
    """A state of the device or the host in the mean iteration; `count` is how often it is entered.

    What the device waits for is of the kind `host` where the host has to act, else `idle`.
    """

    name: str
    title: str
    kind: Kind
    time_ns: int
    share_ratio: float
    count: float


class StateEdge(msgspec.Struct, frozen=True, kw_only=True):
    """One state follows another: `source` and `target` are rows of `nodes`, `probability` is after `source`.

    `starts` of `count` begin a new iteration.
    """

    source: int
    target: int
    count: float
    starts: float
    probability: float


class StatesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The states of one loop, and the transitions between them; times are of the mean iteration and add up to it."""

    schema: Literal["deepprof.view.states/1"] = "deepprof.view.states/1"
    loop: int
    nodes: list[StateNode]
    edges: list[StateEdge]
    figures: list[Figure]
    reading: str  # what the figures state, in a sentence


def write_states(analysis: Analysis, number: int) -> StatesDocument:
    """Return the state graph of the loop `number`; without nodes where no usual iteration of it is available."""
    loop, words = analysis.loops[number], wording_of(analysis)
    states, changes = measure_states(loop), measure_state_changes(loop)
    return StatesDocument(
        loop=number,
        nodes=_list_nodes(states, words),
        edges=_list_edges(changes, states["state"].to_list()),
        figures=write_table_iii(loop, words),
        reading=read_metrics(loop.metrics, words),
    )


def _list_nodes(states: pl.DataFrame, words: Wording) -> list[StateNode]:
    """Return the nodes of a table `STATES`."""
    return [
        StateNode(
            name=row["state"],
            title=_name_state(row["state"], words),
            kind=KINDS.get(row["state"], "host"),
            time_ns=row["time_ns"],
            share_ratio=row["share_ratio"],
            count=row["entries"],
        )
        for row in states.to_dicts()
    ]


def _name_state(state: str, words: Wording) -> str:
    """Return what the report calls the part that a state is, or that represents the several that it is."""
    return words.parts[SEVERAL.get(state, STATE_PARTS[state][0])]


def _list_edges(changes: pl.DataFrame, states: list[str]) -> list[StateEdge]:
    """Return the edges of a table `STATE_CHANGES` between nodes that represent `states`."""
    rows = {state: row for row, state in enumerate(states)}
    return [
        StateEdge(source=rows[source], target=rows[target], count=count, starts=starts, probability=probability)
        for source, target, count, starts, probability in changes.rows()
    ]


def read_metrics(metrics: LoopMetrics, words: Wording) -> str:
    """Return what the paper reads from Table III: whether the host or copies keep the device waiting, or neither."""
    interval, operation = metrics.avg_interval_ns, metrics.avg_operation_ns
    if interval is None or operation is None:
        return "No iteration follows another one directly, so that there is no interval between iterations to read."
    waits = "nothing runs" if words.on_cpu else "the device waits"
    times = (
        f"Between iterations {waits} for {format_duration(interval)} on average, beside {format_duration(operation)}"
    )
    begin = f"{times} from the first {words.unit} of one to its last"
    overlap = metrics.avg_overlap_ratio or 0.0
    filled = "" if words.on_cpu else f", and copies from the host fill {format_ratio(overlap)} of that"
    if interval < LARGE_INTERVAL * operation:
        return f"{begin}: too little to blame the host or copies for; where the time within them goes, the graph shows."
    if overlap >= LARGE_OVERLAP:
        return f"{begin}{filled}: the copies hold iterations up."
    if interval >= MUCH_LONGER * operation:
        return f"{begin}{filled}: the host holds iterations up."
    return f"{begin}{filled}: neither enough to blame the host alone, nor the copies."
