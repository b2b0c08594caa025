"""Dispatched computations of JAX under their lines, and jitted functions that are what they are without the hook."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from deepprof.collectors.importers import read
from deepprof.collectors.live.hook import find_hook
from deepprof.metrics.contexts.tree import build_tree
from tests.collectors.live.hooked import PROGRAMS, Done, plain_environment, run_plain
from tests.collectors.live.listener import Heard

pytestmark = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed (pip install 'jax>=0.8')")

PROGRAM = "jax_contexts.py"
LINES = (PROGRAMS / PROGRAM).read_text().splitlines()
PYTHON, OPERATOR = 0, 1
COUNT = 200
SETTINGS = {"DEEPPROF_CONTEXTS": "python", "DEEPPROF_CONTEXTS_BUDGET": "100"}


class Frame(NamedTuple):
    """A context of a path."""

    kind: int
    text: str
    line: int

    @property
    def name(self) -> str:
        """The function's own name, or the operator's."""
        return self.text.rsplit("): ", maxsplit=1)[-1]

    @property
    def is_ours(self) -> bool:
        return self.text.startswith(PROGRAM)


def read_paths(heard: Heard) -> Iterator[tuple[tuple[Frame, ...], int]]:
    """Yield the path of every context and how often it began."""
    paths: dict[int, tuple[Frame, ...]] = {0: ()}
    for number, parent, name, line, kind in heard.contexts.tolist():
        paths[number] = (*paths[parent], Frame(kind, heard.names[name], line))
    counts = Counter[int]()
    for row in heard.sums:
        counts[int(row["context"])] += int(row["count"])
    yield from ((paths[context], count) for context, count in counts.items() if count)


def count_dispatches(heard: Heard) -> Counter[tuple[str, str]]:
    """Return how often each line of the program called a computation, without what a first call traces within."""
    counts = Counter[tuple[str, str]]()
    for path, count in read_paths(heard):
        if [frame.kind for frame in path].count(OPERATOR) == 1:
            (line,) = [frame.line for frame in path if frame.is_ours][-1:]
            counts[LINES[line - 1].strip(), path[-1].name] += count
    return counts


def run(hooked: Callable[..., Done], scenario: str, count: int = COUNT, code: int = 0, **variables: str) -> Heard:
    """Run a scenario that must end as it does without the hook, with nothing on standard error."""
    done = hooked(PROGRAM, scenario, str(count), **(SETTINGS | variables))
    assert (done.process.returncode, done.process.stderr) == (code, b"")
    assert len(done.heard) == 1
    assert done.heard[0].notices == []
    return done.heard[0]


TRAINED = {
    ("weights = train_step(weights, inputs)", "jit_train_step"): COUNT,
    ("total = total + weights", "jit_add"): COUNT,
    ("jnp.sin(total)", "jit_sin"): COUNT // 2,
}


def test_each_dispatch_counts_on_its_line(hooked: Callable[..., Done]) -> None:
    counts = count_dispatches(run(hooked, "train"))
    made = "return jnp.ones((4, 4)), jnp.ones((8, 4))"
    assert {key: count for key, count in counts.items() if key[0] != made} == TRAINED


def test_what_a_first_call_traces_stands_in_it(hooked: Callable[..., Done]) -> None:
    inner = Counter[str]()
    for path, count in read_paths(run(hooked, "train")):
        computations = [frame.name for frame in path if frame.kind == OPERATOR]
        if computations[0] == "jit_train_step":
            inner[computations[-1]] += count
    assert inner["jit_tanh"] == inner["jit_matmul"] == inner["jit__mean"] == 1


def test_every_kind_of_call_has_its_module_s_name(hooked: Callable[..., Done]) -> None:
    few = 10  # some are compiled each time
    counts = count_dispatches(run(hooked, "kinds", few))
    twice = "jax.grad(lambda values: jnp.sum(scanned(values)))(weights)"  # the backward pass is called the same
    assert counts[twice, "jit_scanned"] == 2 * few
    for line, name in (
        ("inputs = add_one(inputs)", "jit_add_one"),
        ("scanned(weights)", "jit_scanned"),
        ("layer.apply(weights)", "jit_apply"),
        ("compiled(weights, inputs)", "jit_train_step"),
        ("jax.jit(lambda values: values - 1)(weights)", "jit__lambda"),
        ("jax.vmap(train_step, (None, 0))(weights, inputs[:, None])", "jit_train_step"),
    ):
        assert counts[line, name] == few, line


def test_operators_alone_have_no_functions(hooked: Callable[..., Done]) -> None:
    heard = run(hooked, "train", DEEPPROF_CONTEXTS="operators")
    counts = {path[0].name: count for path, count in read_paths(heard) if len(path) == 1}
    assert counts.items() >= {"jit_train_step": COUNT, "jit_add": COUNT, "jit_sin": COUNT // 2}.items()
    assert not [frame for path, _ in read_paths(heard) for frame in path if frame.kind == PYTHON]


Steps = tuple[str, ...]


def count_live(heard: Heard) -> Counter[Steps]:
    """Return how often each computation began, by the names on its path within `train`."""
    counts = Counter[Steps]()
    for path, count in read_paths(heard):
        counts[below_train(tuple(frame.name for frame in path))] += count
    return counts


def count_recorded(folder: Path) -> Counter[Steps]:
    """Return the same of a profile, which has each call of a jitted function twice, one within the other."""
    (profile,) = folder.rglob("*.xplane.pb")
    tree = build_tree(read(profile, details=True))
    counts, paths = Counter[Steps](), list[Steps]()
    began = np.bincount(tree.of_slices, minlength=len(tree.contexts)).tolist()
    for row, count in zip(tree.contexts.iter_rows(named=True), began, strict=True):
        around = paths[row["parent"]] if row["parent"] is not None else ()
        name = row["name"].replace("PjitFunction(", "jit_").rstrip(")")
        is_again = name.startswith("jit_") and around[-1:] == (name,)
        paths.append(around if is_again else (*around, name))
        if name.startswith("jit_") and not is_again:
            counts[below_train(paths[-1])] += count
    return counts


def below_train(names: Steps) -> Steps:
    return names[names.index("train") + 1 :] if "train" in names else ()


def test_the_tree_equals_that_of_a_profile(hooked: Callable[..., Done], tmp_path: Path) -> None:
    recorded = run_plain(PROGRAM, "train", "20", str(tmp_path))
    assert recorded.returncode == 0, recorded.stderr
    expected = count_recorded(tmp_path)
    assert expected["jit_train_step",] == 20
    assert len(expected) > 8
    assert count_live(run(hooked, "train", 20)) == expected


STEP = ("weights = train_step(weights, inputs)", "jit_train_step")


def test_threads_and_exceptions_lose_nothing(hooked: Callable[..., Done]) -> None:
    assert count_dispatches(run(hooked, "threads"))[STEP] == COUNT + 2
    counts = count_dispatches(run(hooked, "exceptions"))
    assert counts["fails(jnp.ones(3))", "jit_fails"] == COUNT
    assert counts.items() >= TRAINED.items()


def test_jitted_functions_are_what_they_are_without_the_hook(hooked: Callable[..., Done]) -> None:
    plain = run_plain(PROGRAM, "same", "20")
    assert (plain.returncode, plain.stderr) == (0, b"")
    counts = count_dispatches(run(hooked, "same", 20))
    copied = "assert (copy.copy(train_step)(weights, inputs) == train_step(weights, inputs)).all()"
    assert (counts[STEP], counts[copied, "jit_train_step"]) == (20, 1)  # the copy is JAX's alone


@pytest.mark.parametrize(("scenario", "code"), [("forks", 0), ("leaves", 3), ("dies", -9), ("at_exit", 0)])
def test_a_job_ends_as_it_does_without_the_hook(hooked: Callable[..., Done], scenario: str, code: int) -> None:
    assert run_plain(PROGRAM, scenario, "20").returncode == code
    done = hooked(PROGRAM, scenario, "20", **SETTINGS)
    assert (done.process.returncode, done.process.stderr) == (code, b"")
    assert {heard.ended for heard in done.heard} <= {code == 0}
    if code == 0:  # what is not told when a process is killed is lost
        assert [count_dispatches(heard)[STEP] for heard in done.heard] == [20]


def test_children_that_are_spawned_are_heard_unless_they_are_daemons(hooked: Callable[..., Done]) -> None:
    done = hooked(PROGRAM, "spawns", "20", **SETTINGS)
    assert (done.process.returncode, done.process.stderr) == (0, b"")
    assert [count_dispatches(heard)[STEP] for heard in done.heard] == [20, 20]
    assert [heard.ended for heard in done.heard] == [True, True]


@pytest.mark.slow  # the made-up ones show it, too
def test_functions_that_are_dropped_take_nothing(hooked: Callable[..., Done]) -> None:
    """Of each, 200 bytes at least would be kept, and with what JAX has of it several kB."""
    plain = run_plain(PROGRAM, "dropped", "4000")
    done = hooked(PROGRAM, "dropped", "4000", **SETTINGS)
    assert (done.process.returncode, plain.returncode) == (0, 0), done.process.stderr
    assert int(done.process.stdout) - int(plain.stdout) < 4 << 20
    counts = Counter[str]()
    for (_, name), count in count_dispatches(done.heard[0]).items():
        counts[name] += count
    expected = Counter(f"jit_made_{number % 7}" for number in range(0, 4000, 20))
    assert {name: count for name, count in counts.items() if "made" in name} == {
        name: 2 * count for name, count in expected.items()
    }


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (pip install torch==2.13.0)")
@pytest.mark.parametrize("first", [{}, {"TORCH_FIRST": "1"}])
def test_a_program_of_both_has_both_in_one_tree(hooked: Callable[..., Done], first: dict[str, str]) -> None:
    done = hooked(PROGRAM, "with_torch", str(COUNT), **SETTINGS, **first)
    assert (done.process.returncode, done.process.stderr) == (0, b"")
    (heard,) = done.heard
    assert heard.notices == []
    counts = count_dispatches(heard)
    assert counts[STEP] == COUNT
    assert counts["model(torch.ones(2, 4)).sum().backward()", "aten::linear"] == COUNT
    assert done.counts()["aten::linear"] == COUNT  # operators are sent one by one as well, as on any CPU


def test_without_contexts_jax_is_not_touched() -> None:
    """Not even searched for: nothing waits for its import, and the function that makes functions is JAX's own."""
    code = (
        "import sys; print(sys.meta_path[0].hooks); from jax._src.lib import xla_client as x; print(type(x._xla.pjit))"
    )
    library = {"DEEPPROF_INJECT": "/nowhere/inject.so", "DEEPPROF_SOCKET": "/nowhere/s"}
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=plain_environment() | {"PYTHONPATH": str(find_hook())} | library | contexts,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for contexts in ({}, {"DEEPPROF_CONTEXTS": "off"}, {"DEEPPROF_CONTEXTS": "python"})
    ]
    assert "jax" not in found[0]
    assert found[1] == found[0]
    assert "jax" in found[2]
