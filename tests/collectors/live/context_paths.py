"""Contexts by their paths, as a job told them and as torch.profiler recorded them: what began, what was launched."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from deepprof.collectors.importers import read
from deepprof.live.agent.device_times import ContextDeviceTimes
from deepprof.metrics.contexts.tree import ContextTree, build_tree
from tests.collectors.live.listener import Heard

ContextPath = tuple[str, ...]
TOP = ": train"
MODULE_CALL = "_wrapped_call_impl"  # which the profiler writes as the module
OPERATOR = 1  # the kind of a context


def list_told_paths(heard: Heard) -> list[ContextPath]:
    """Return the path of every context without lines, by its id; 0 is the root."""
    paths: list[ContextPath] = [()]
    for _, parent, name, _, _ in heard.contexts.tolist():
        text = heard.names[name]
        paths.append(paths[parent] if text.endswith(MODULE_CALL) else (*paths[parent], text))
    return paths


def count_live(heard: Heard) -> Counter[ContextPath]:
    """Return how often each operator began, by its path below `train`."""
    paths, kinds = list_told_paths(heard), [0, *heard.contexts["kind"].tolist()]
    counts = Counter[ContextPath]()
    for row in heard.sums:
        if kinds[int(row["context"])] == OPERATOR:
            counts[paths[int(row["context"])]] += int(row["count"])
    return _below_top(counts)


def count_launched_live(heard: Heard) -> tuple[Counter[ContextPath], int]:
    """Return how many device events each context launched, joined as the agent does, and their time in all."""
    times = ContextDeviceTimes()
    times.add_launches(heard.launches, 0)
    times.add_events(heard.events, 0)
    times.join(0)
    paths, counts = list_told_paths(heard), Counter[ContextPath]()
    for context in np.flatnonzero(times.counts).tolist():
        counts[paths[context]] += int(times.counts[context])
    return _below_top(counts), int(times.times_ns.sum())


def count_recorded(trace: Path) -> Counter[ContextPath]:
    """Return how often each operator began in a trace, by its path below `train`."""
    tree = build_tree(read(trace, details=True))
    paths, kinds = _list_recorded_paths(tree), tree.contexts["kind"].to_list()
    counts = Counter[ContextPath]()
    for context, count in enumerate(np.bincount(tree.of_slices, minlength=len(paths)).tolist()):
        if kinds[context] in {"operator", "range"} and count:
            counts[paths[context]] += count
    return _below_top(counts)


def count_launched_recorded(trace: Path) -> Counter[ContextPath]:
    """Return how many device events of a trace each context launched."""
    recorded = read(trace, details=True)
    tree = build_tree(recorded)
    paths, counts = _list_recorded_paths(tree), Counter[ContextPath]()
    is_work = recorded.device_events["activity"].cast(str).to_numpy() != "sync"
    for context, count in enumerate(np.bincount(tree.of_events[is_work], minlength=len(paths)).tolist()):
        if count:
            counts[paths[context]] += count
    return _below_top(counts)


def _list_recorded_paths(tree: ContextTree) -> list[ContextPath]:
    """Return the path of every context."""
    paths: list[ContextPath] = []
    for row in tree.contexts.iter_rows(named=True):
        around = paths[row["parent"]] if row["parent"] else ()
        paths.append((*around, *_describe(row)))
    return paths


def _describe(row: dict[str, object]) -> ContextPath:
    """Return a context as the live tree has it: built-in functions and modules' names are not among its frames."""
    if row["kind"] == "python" and row["file"] is not None:
        return (f"{row['file']}({row['line']}): {row['name']}",)
    return (str(row["name"]),) if row["kind"] in {"operator", "range"} else ()


def _below_top(counts: Counter[ContextPath]) -> Counter[ContextPath]:
    """Return the paths from the program's own `train` on."""
    found = Counter[ContextPath]()
    for path, count in counts.items():
        places = [place for place, text in enumerate(path) if text.endswith(TOP)]
        if places:
            found[path[places[0] + 1 :]] += count
    return found
