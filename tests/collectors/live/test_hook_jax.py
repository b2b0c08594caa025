"""The hook of JAX on made-up modules: names of computations by version, and a JAX that is unknown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from deepprof.collectors.live.hook import jax_hook, watch
from tests.collectors.live.hooked import PROGRAMS, plain_environment

OLD, NEW = (0, 6), (0, 10)


class Library:
    """Keeps what it is called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *values: self.calls.append((name, *values))


def make_functions(extension: Any, version: tuple[int, ...]) -> list[tuple[Any, bytes]]:
    """Watch a module and return where what it makes is handed over."""
    taken: list[tuple[Any, bytes]] = []
    jax_hook.watch_functions(extension, version, lambda made, name: taken.append((made, name)))
    return taken


@pytest.mark.parametrize(
    ("version", "name", "expected"),
    [
        (NEW, "train_step", b"jit_train_step"),
        (NEW, "<lambda>", b"jit__lambda"),
        (NEW, "a b#1", b"jit_a_b_1"),
        (NEW, "f_", b"jit_f"),
        (NEW, "ümlaut", "jit_ümlaut".encode()),
        (NEW, "\ud800", b"jit"),
        (OLD, "train_step", b"jit_train_step"),
        (OLD, "<lambda>", b"jit__lambda_"),
    ],
)
def test_a_computation_is_called_as_its_module(version: tuple[int, ...], name: str, expected: bytes) -> None:
    assert jax_hook.name_call("jit", name, version) == expected


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed (pip install 'jax>=0.8')")
def test_computations_are_called_as_the_jax_that_is_here_calls_them() -> None:
    """In its own process: JAX warns of every fork from then on."""
    names = ["train_step", "<lambda>", "a b#1", "f_", "__call__", "x.y-z", "(f)"]
    command = [sys.executable, str(PROGRAMS / "jax_names.py"), *names]
    done = subprocess.run(command, env=plain_environment(), check=True, capture_output=True, text=True)
    release, *modules = done.stdout.splitlines()
    version = tuple(int(word) for word in release.split(".")[:2])
    assert [jax_hook.name_call("jit", name, version).decode() for name in names] == modules
    assert [jax_hook.name_compiled(f"jit({name})", version).decode() for name in names] == modules


def test_what_is_made_is_handed_over_as_it_is() -> None:
    extension = SimpleNamespace(pjit=lambda *_, **__: object())
    taken = make_functions(extension, NEW)
    made = [
        extension.pjit("f", max, None),
        extension.pjit("jit(f)", None, None),
        extension.pjit("jit_f", None, None),
        extension.pjit(function_name="f", fun=max),
    ]
    assert [each for each, _ in taken] == made
    assert [name for _, name in taken] == [b"jit_f"] * 4


def test_older_versions_map_with_a_type_of_its_own() -> None:
    extension = SimpleNamespace(pjit=lambda *_: "jitted", pmap_lib=SimpleNamespace(pmap=lambda *_: "mapped"))
    taken = make_functions(extension, OLD)
    assert (extension.pmap_lib.pmap(max), extension.pjit("jit(f)", None)) == ("mapped", "jitted")
    assert taken == [("mapped", b"pmap_max"), ("jitted", b"jit_f")]


def test_an_error_of_ours_or_theirs_stays_whose_it_is() -> None:
    def fail(*_: Any) -> None:
        raise ValueError("theirs")

    extension = SimpleNamespace(pjit=lambda *_: "made")
    jax_hook.watch_functions(extension, NEW, fail)
    assert extension.pjit("f", max) == "made"
    assert extension.pjit() == "made"
    extension = SimpleNamespace(pjit=fail)
    make_functions(extension, NEW)
    with pytest.raises(ValueError, match="theirs"):
        extension.pjit("f", max)


@pytest.mark.parametrize("problem", ["", "unknown"])
def test_what_is_not_known_is_told_and_nothing_begins(monkeypatch: pytest.MonkeyPatch, problem: str) -> None:
    monkeypatch.setattr(jax_hook, "finish_at_exit", lambda _: None)
    monkeypatch.setenv("DEEPPROF_CONTEXTS", "python")
    library = Library()
    jax_hook.start(SimpleNamespace(__file__="/packages/jaxlib/_jax.so"), library, problem)  # type: ignore[arg-type]
    calls = [call[0] for call in library.calls]
    assert calls == ["deepprof_notice" if problem else "deepprof_jax", "deepprof_operators"]
    assert problem or b"/packages/" in library.calls[0][2].splitlines()


@pytest.mark.parametrize("extension", [SimpleNamespace(), SimpleNamespace(pjit=max)])
def test_a_jax_that_is_not_known_is_told(monkeypatch: pytest.MonkeyPatch, extension: Any) -> None:
    """Without the function that makes functions, and without a version."""
    started: list[str] = []
    monkeypatch.setenv("DEEPPROF_INJECT", "/nowhere")
    monkeypatch.setattr(jax_hook, "load", lambda _: Library())
    monkeypatch.setattr(jax_hook, "load_taker", lambda _: max)
    monkeypatch.setattr(jax_hook, "begin_in_process", lambda begin: begin())
    monkeypatch.setattr(jax_hook, "start", lambda _, __, problem: started.append(problem))
    monkeypatch.delitem(sys.modules, "jaxlib.version", raising=False)
    if not hasattr(extension, "pjit"):
        monkeypatch.setitem(sys.modules, "jaxlib.version", SimpleNamespace(__version__="0.10.2.dev1"))
    jax_hook.attach(extension)
    assert "does not know this JAX" in started[0]


def test_the_child_of_a_fork_finishes_nothing() -> None:
    library = Library()
    computations = jax_hook.JaxComputations(library)
    computations.forget()
    computations.finish()
    assert library.calls == []
    ending = jax_hook.JaxComputations(library)
    ending.finish()
    ending.finish()
    assert library.calls == [("deepprof_finish",)]


def test_each_hook_runs_once_under_whichever_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, tuple[str, ...]]] = []
    monkeypatch.setattr(watch, "attach", lambda module, parts: ran.append((module.__name__, parts)))
    finder = watch.HookImportFinder({**watch.TORCH, **watch.JAX})
    monkeypatch.setattr(sys, "meta_path", [finder])
    for name in ("jaxlib._jax", "jaxlib.xla_extension", "torch", "torch"):
        finder.run(SimpleNamespace(__name__=name))  # type: ignore[arg-type]
    assert ran == [("jaxlib._jax", watch.JAX["jaxlib._jax"]), ("torch", watch.TORCH["torch"])]
    assert sys.meta_path == []
