"""The tree that is built in the job equals the one of the same program's trace by torch.profiler, node by node."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.collectors.live.context_paths import count_live, count_recorded
from tests.collectors.live.hooked import Done, run_plain

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (pip install torch==2.13.0)")


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
