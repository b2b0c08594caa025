"""The tree that is built in the job equals the one of the same program's trace by torch.profiler, node by node."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.collectors.live.building import build
from tests.collectors.live.context_paths import OPERATOR, count_live, count_recorded
from tests.collectors.live.hooked import Done, finish, hooked_environment, run_plain, start
from tests.collectors.live.listener import Heard, Listener

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (pip install torch==2.13.0)")


@pytest.mark.parametrize("name", ["resnet", "lstm", "transformer", "marked"])
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
    """A reference to every node that was never given back would be 60 MB after this many iterations."""
    done = hooked(
        "contexts.py", "lstm", "300", DEEPPROF_CONTEXTS="python", DEEPPROF_CONTEXTS_BUDGET="100", SHOW_GROWTH="1"
    )
    assert done.process.returncode == 0, done.process.stderr
    assert int(done.process.stdout) < 20 << 20


def run_sampled(tmp_path: Path, kind: str) -> tuple[int, Heard]:
    """Run until iterations have been left out, and what was left out was told; return how many there were."""
    listener = Listener(tmp_path / "s").start()
    more = {"DEEPPROF_CONTEXTS": "python", "DEEPPROF_CONTEXTS_BUDGET": "1", "DEEPPROF_STAND_IN": "0"}
    with start("sampled.py", kind, **hooked_environment(build("plain").library, listener.path) | more) as process:
        listener.wait(lambda _: find_strides(listener.last))
        listener.wait(lambda _: "(iterations left out)" in listener.last.names.values())
        done = finish(process)
    heard = listener.last
    listener.wait(lambda _: heard.gone)
    listener.stop()
    assert (done.returncode, done.stderr) == (0, b"")
    return int(done.stdout), heard


def find_strides(heard: Heard) -> list[int]:
    """Return every how manyth iteration is collected, as was told."""
    told = [re.search(r"every (\d+)\. iteration is collected", notice) for notice in heard.notices]
    return [int(found[1]) for found in told if found and found[1] != "1"]


def count_operators(heard: Heard) -> Counter[str]:
    """Return how often each operator began, wherever."""
    kinds = {int(row["id"]): (int(row["kind"]), heard.names[int(row["name"])]) for row in heard.contexts}
    counts = Counter[str]()
    for row in heard.sums:
        kind, name = kinds[int(row["context"])]
        counts[name] += int(row["count"]) if kind == OPERATOR else 0
    return counts


def test_iterations_are_left_out_whole_and_torch_does_not_call_meanwhile(tmp_path: Path) -> None:
    """Of two optimizers the first marks the iterations, so that both models' steps are in each."""
    iterations, heard = run_sampled(tmp_path, "plain")
    counts = count_operators(heard)
    first, other = counts["Optimizer.step#SGD.step"], counts["Optimizer.step#Adam.step"]
    assert 0 < first < iterations
    assert other in {first - 1, first}  # it comes after the step that ends an iteration
    assert counts["aten::linear"] == counts["aten::addmm"] == 20 * (first + other)
    assert counts["AddmmBackward0"] == 20 * (first + other)
    assert first + counts["(iterations left out)"] in {iterations, iterations + 1}  # what follows the last step is one


@pytest.mark.slow  # as the test above, with another program
def test_an_optimizer_that_stops_does_not_end_collecting(tmp_path: Path) -> None:
    """When the first one has had no step while another one had many, that one's steps mark the iterations."""
    iterations, heard = run_sampled(tmp_path, "late")
    counts = count_operators(heard)
    assert counts["Optimizer.step#Adam.step"] > counts["Optimizer.step#SGD.step"]
    assert counts["Optimizer.step#SGD.step"] < iterations
    assert counts["aten::linear"] == 20 * (counts["Optimizer.step#SGD.step"] + counts["Optimizer.step#Adam.step"])


def test_steps_in_the_backward_pass_are_no_time_to_have_torch_call_or_not(tmp_path: Path) -> None:
    """Torch gives a thread its profilers back after each node: ours would be entered twice, which is refused."""
    iterations, heard = run_sampled(tmp_path, "backward")
    counts = count_operators(heard)
    steps = counts["Optimizer.step#SGD.step"]
    assert 0 < steps < 40 * iterations
    assert steps == counts["torch::autograd::AccumulateGrad"]
    assert abs(steps / 40 + counts["(iterations left out)"] - iterations) <= 1


@pytest.mark.slow  # a minute without a step
def test_seconds_are_not_said_to_be_collected_in_which_torch_does_not_call(tmp_path: Path) -> None:
    """What runs after the last step is part of its iteration, left out as a whole."""
    _, heard = run_sampled(tmp_path, "after")
    counts = count_operators(heard)
    assert "aten::cumsum" in counts or "(seconds left out)" not in counts
    assert "aten::cumsum" in counts or not any("second is collected" in notice for notice in heard.notices)
