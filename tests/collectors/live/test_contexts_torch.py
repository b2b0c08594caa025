"""The tree that is built in the job equals the one of the same program's trace by torch.profiler, node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from deepprof.collectors.importers import read
from deepprof.metrics.contexts.tree import build_tree
from tests.collectors.live.hooked import Done, run_plain
from tests.collectors.live.listener import Heard

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (pip install torch==2.13.0)")

Path_ = tuple[str, ...]
TOP = ": train"
MODULE_CALL = "_wrapped_call_impl"  # which the profiler writes as the module


def count_live(heard: Heard) -> Counter[Path_]:
    """Return how often each operator began, by its path without lines."""
    paths: dict[int, Path_] = {0: ()}
    kinds: dict[int, int] = {}
    for row in heard.contexts.tolist():
        number, parent, name, _, kind = row
        text = heard.names[name]
        paths[number] = paths[parent] if text.endswith(MODULE_CALL) else (*paths[parent], text)
        kinds[number] = kind
    counts = Counter[Path_]()
    for row in heard.sums:
        if kinds[int(row["context"])] == 1:
            counts[paths[int(row["context"])]] += int(row["count"])
    return below_top(counts)


def count_recorded(trace: Path) -> Counter[Path_]:
    """Return the same of a trace."""
    tree = build_tree(read(trace, details=True))
    paths: list[Path_] = []
    for row in tree.contexts.iter_rows(named=True):
        around = paths[row["parent"]] if row["parent"] else ()
        paths.append((*around, *describe(row)))
    kinds = tree.contexts["kind"].to_list()
    counts = Counter[Path_]()
    for context, count in enumerate(np.bincount(tree.of_slices, minlength=len(paths)).tolist()):
        if kinds[context] in {"operator", "range"} and count:
            counts[paths[context]] += count
    return below_top(counts)


def describe(row: dict[str, object]) -> Path_:
    """Return a context as the live tree has it: built-in functions and modules' names are not among its frames."""
    if row["kind"] == "python" and row["file"] is not None:
        return (f"{row['file']}({row['line']}): {row['name']}",)
    return (str(row["name"]),) if row["kind"] in {"operator", "range"} else ()


def below_top(counts: Counter[Path_]) -> Counter[Path_]:
    """Return the paths from the program's own `train` on."""
    found = Counter[Path_]()
    for path, count in counts.items():
        places = [place for place, text in enumerate(path) if text.endswith(TOP)]
        if places:
            found[path[places[0] + 1 :]] += count
    return found


@pytest.mark.parametrize("name", ["resnet", "lstm", "transformer"])
def test_live_tree_equals_the_recorded_one(hooked: Callable[..., Done], tmp_path: Path, name: str) -> None:
    live = hooked("contexts.py", name, "5", DEEPPROF_CONTEXTS="python", DEEPPROF_CONTEXTS_BUDGET="100")
    assert live.process.returncode == 0, live.process.stderr
    assert live.heard[0].notices == []
    recorded = run_plain("contexts.py", name, "5", str(tmp_path / "trace.json"))
    assert recorded.returncode == 0, recorded.stderr
    there, expected = count_live(live.heard[0]), count_recorded(tmp_path / "trace.json")
    assert sum(expected.values()) > 1000
    assert there == expected


def test_nodes_of_autograd_are_given_back(hooked: Callable[..., Done]) -> None:
    """A reference to each node that was never given back would be 60 MB after so many iterations."""
    done = hooked(
        "contexts.py", "lstm", "300", DEEPPROF_CONTEXTS="python", DEEPPROF_CONTEXTS_BUDGET="100", SHOW_GROWTH="1"
    )
    assert done.process.returncode == 0, done.process.stderr
    assert int(done.process.stdout) < 20 << 20
