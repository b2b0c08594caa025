"""The hook in real training programs on a CPU: what arrives is what ran, and the program notices nothing."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest

from deepprof.collectors.live.hook.torch_hook import NO_MEMORY_TEXT
from deepprof.collectors.live.packets import ANNOTATION, BY_NAME
from tests.collectors.live.building import build
from tests.collectors.live.hooked import Done, hooked_environment, run_plain

pytestmark = pytest.mark.skipif(  # programs import it, which takes seconds; the tests do not
    find_spec("torch") is None, reason="torch is not installed (pip install torch==2.13.0)"
)

OPERATOR = 0


# Workers are processes next to the one that is heard: all that shows without them shows with them.
WORKERS = [pytest.param(0, id="no worker", marks=pytest.mark.slow), pytest.param(2, id="two workers")]


@pytest.fixture(scope="module", params=WORKERS)
def trained(request: pytest.FixtureRequest, hooked: Callable[..., Done]) -> Done:
    return hooked("train.py", "30", str(request.param))


@pytest.fixture(scope="module")
def marked(hooked: Callable[..., Done]) -> Done:
    return hooked("marked.py", DEEPPROF_MEMORY="1")


def test_one_process_is_heard_with_all_its_records(trained: Done) -> None:
    (heard,) = trained.heard
    assert heard.hello["collector"] == "operators"
    assert heard.hello["stand_in"] == "1"
    assert heard.ended
    assert heard.notices == []
    assert [first for _, first, *_ in heard.heads] == [
        sum(head[2] for head in heard.heads[:i]) for i in range(len(heard.heads))
    ]
    assert heard.heads[-1][1] == len(heard.ranges)


def test_each_iteration_has_its_operators(trained: Done) -> None:
    counts = trained.counts(OPERATOR)
    backward = "autograd::engine::evaluate_function: "
    assert counts["aten::linear"] == 2 * 30 + 2  # and the evaluation's
    assert counts["aten::relu"] == 30 + 1
    assert counts["aten::mean"] == 30
    assert counts[backward + "AddmmBackward0"] == 2 * 30
    assert counts[backward + "SquareBackward"] == 30
    assert counts[backward + "torch::autograd::AccumulateGrad"] == 4 * 30
    assert counts["aten::softmax"] == counts["aten::argmax"] == 1  # the other thread's is not ours
    assert "aten::addmm" not in counts  # inside of linear
    assert trained.counts(BY_NAME)["Optimizer.step#SGD.step"] == 30


def test_iterations_repeat_exactly(trained: Done) -> None:
    heard = trained.heard[0]
    ranges = heard.ranges[heard.ranges["start_ns"].argsort(kind="stable")]
    loading = ranges[[text.startswith("enumerate(DataLoader)") for text in heard.texts(ranges)]]
    last = loading["end_ns"][loading["start_ns"].searchsorted(ranges["start_ns"], "right") - 1]
    names = heard.texts(ranges[ranges["start_ns"] > last])  # how much is loaded ahead differs at the end
    starts = [i for i, name in enumerate(names) if name == "Optimizer.zero_grad#SGD.zero_grad"]
    assert len(starts) == 30
    iterations = {tuple(names[begin:end]) for begin, end in pairwise(starts)}
    assert len(iterations) == 2  # with the evaluation, and without


def test_ranges_are_of_one_thread_and_do_not_cross(trained: Done) -> None:
    ranges = trained.heard[0].ranges
    operators = ranges[ranges["category"] == OPERATOR]
    operators = operators[operators["start_ns"].argsort(kind="stable")]
    assert set(ranges["thread"].tolist()) == {int(trained.heard[0].hello["pid"])}
    assert (ranges["end_ns"] >= ranges["start_ns"]).all()
    assert (operators["start_ns"][1:] >= operators["end_ns"][:-1]).all()


def test_promises_hold(trained: Done) -> None:
    ticks = trained.heard[0].ticks
    until = [int(tick["ranges_until_ns"]) for tick in ticks]
    assert until == sorted(until)
    assert trained.heard[0].ranges["end_ns"].max() <= until[-1]
    assert int(ticks[-1]["open_since_ns"]) == 2**63 - 1


def test_the_program_notices_nothing(trained: Done) -> None:
    plain = run_plain("train.py", "30", "0")
    seen = trained.process
    assert (seen.returncode, seen.stdout, seen.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert plain.returncode == 7


@pytest.mark.slow  # `test_nvtx_itt_headers` asks PyTorch's own library for depths
def test_operators_inside_operators_are_kept_to_the_depth_asked_for(hooked: Callable[..., Done]) -> None:
    done = hooked("train.py", "5", "0", DEEPPROF_DEPTH="1")
    assert done.counts(OPERATOR)["aten::addmm"] == 2 * 5 + 2


def test_optimizers_are_marked_where_operators_are_not_collected(marked: Done) -> None:
    assert marked.process.returncode == 0, marked.process.stderr
    marks = marked.counts(ANNOTATION)
    assert marks == {"Optimizer.step#SGD.step": 3, "Optimizer.step#AdamW.step": 3}


def test_a_table_that_is_not_itts_is_told_and_left_alone(marked: Done) -> None:
    (heard,) = marked.heard
    assert [notice for notice in heard.notices if "ITT" in notice] == [
        "a library in this process speaks an ITT that is not known: its ranges are not collected"
    ]


def test_without_a_gpu_it_is_told_that_memory_is_not_looked_at(marked: Done) -> None:
    (heard,) = marked.heard
    assert [notice for notice in heard.notices if "--memory" in notice] == [NO_MEMORY_TEXT]
    assert len(heard.changes) == 0


@pytest.mark.slow  # `test_early` has no agent for the library, and `test_hook_start` none for the hook
def test_nothing_is_done_without_an_agent(tmp_path: Path) -> None:
    done = run_plain("train.py", "5", "0", **hooked_environment(build("plain").library, tmp_path / "none"))
    assert done.returncode == 7
