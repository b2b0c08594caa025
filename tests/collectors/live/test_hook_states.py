"""How the hook steps aside and comes back, with a torch and a library that only take notes."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.live.hook import optimizer_steps, process, torch_hook


class Library:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: self.calls.append(name) or 0


class Profiler:
    """torch's rule: one session a thread; a second is refused, an end without one does nothing."""

    def __init__(self) -> None:
        self.session: str | None = None
        self.clashes = 0

    def enable(self, kind: str, _: object = None) -> None:
        if self.session is not None:
            self.clashes += self.session == "ours"
            raise RuntimeError("Profiler is already enabled on this thread")
        self.session = kind

    def disable(self) -> str | None:
        ended, self.session = self.session, None
        return ended


def make(has_device: bool = False) -> tuple[Any, Any, Any, Any]:
    profiler = Profiler()
    space = SimpleNamespace(
        _enable_profiler=profiler.enable,
        _prepare_profiler=lambda *_: None,
        _disable_profiler=profiler.disable,
        _ExperimentalConfig=lambda: None,
        ProfilerConfig=lambda *_: "ours",
        ProfilerState=SimpleNamespace(ITT=0),
    )
    torch: Any = SimpleNamespace(autograd=SimpleNamespace(profiler=space), version=ModuleType("version"))
    library = Library()
    operators = torch_hook.Operators(torch, library, has_device)
    kept = {name: sys.modules.get(name) for name in ("torch.autograd.profiler", "torch.autograd.profiler_legacy")}
    sys.modules["torch.autograd.profiler"] = space
    sys.modules["torch.autograd.profiler_legacy"] = SimpleNamespace()  # type: ignore[assignment]
    try:
        torch_hook.wrap_profilers(torch, operators)
    finally:
        for name, module in kept.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module
    return operators, profiler, space, library


@given(st.lists(st.sampled_from(["prepare", "enable", "disable"]), max_size=12))
def test_the_users_sessions_are_as_without_us(calls: list[str]) -> None:
    operators, profiler, space, library = make()
    alone = Profiler()
    operators.enter()
    for call in calls:
        assert take(space, call) == take_alone(alone, call)
        assert profiler.clashes == 0
        assert profiler.session in ("ours", None) if alone.session is None else profiler.session == "theirs"
    assert library.calls == ["deepprof_pause", "deepprof_resume"] * (len(library.calls) // 2) + (
        ["deepprof_pause"] if operators.is_aside else []
    )
    assert operators.is_entered != operators.is_aside


def take(space: Any, call: str) -> object:
    try:
        return {"enable": lambda: space._enable_profiler("theirs"), "disable": space._disable_profiler}.get(
            call, space._prepare_profiler
        )()
    except RuntimeError as error:
        return str(error)


def take_alone(alone: Profiler, call: str) -> object:
    try:
        return {"enable": lambda: alone.enable("theirs"), "disable": alone.disable}.get(call, lambda: None)()
    except RuntimeError as error:
        return str(error)


def test_other_threads_profile_beside_us() -> None:
    operators, profiler, space, library = make()
    operators.enter()
    thread = threading.Thread(target=space._prepare_profiler)
    thread.start()
    thread.join()
    assert (profiler.session, library.calls) == ("ours", [])


def test_on_a_device_a_profiler_of_any_thread_gets_the_driver() -> None:
    _, profiler, space, library = make(has_device=True)
    thread = threading.Thread(target=space._enable_profiler, args=("theirs",))
    thread.start()
    thread.join()
    assert (profiler.session, library.calls) == ("theirs", ["deepprof_pause"])
    space._disable_profiler()
    assert library.calls == ["deepprof_pause", "deepprof_resume"]


def in_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


class Held:
    """A thread that does what it is told, and lives."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1)

    def do(self, call: Callable[[], object]) -> object:
        return self.pool.submit(call).result()


@pytest.fixture
def other() -> Iterator[Held]:
    held = Held()
    yield held
    held.pool.shutdown()


def test_on_a_device_the_last_of_several_profilers_gives_the_driver_back(other: Held) -> None:
    operators, profiler, space, library = make(has_device=True)
    other.do(lambda: space._enable_profiler("theirs"))
    profiler.session = None  # torch's is one a thread
    space._prepare_profiler()
    space._enable_profiler("ours too")
    space._disable_profiler()
    assert library.calls == ["deepprof_pause"]
    assert operators.is_aside
    other.do(space._disable_profiler)
    assert library.calls == ["deepprof_pause", "deepprof_resume"]


def test_a_profiler_whose_thread_has_ended_is_none(other: Held) -> None:
    _, profiler, space, library = make(has_device=True)
    in_thread(lambda: space._enable_profiler("theirs"))
    profiler.session = None
    other.do(lambda: space._enable_profiler("theirs"))
    other.do(space._disable_profiler)
    assert library.calls == ["deepprof_pause", "deepprof_resume"]


def test_the_users_profiler_starts_on_our_thread_also_while_another_runs(
    other: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPPROF_CONTEXT", "1")
    operators, profiler, space, _ = make(has_device=True)
    operators.enter()
    mine, profiler.session = profiler.session, None
    other.do(lambda: space._enable_profiler("theirs"))
    theirs, profiler.session = profiler.session, mine
    space._enable_profiler("mine")  # refused, if ours were still there
    assert (profiler.session, profiler.clashes) == ("mine", 0)
    space._disable_profiler()
    assert profiler.session == "ours"
    assert operators.is_aside
    mine, profiler.session = profiler.session, theirs
    other.do(space._disable_profiler)
    profiler.session = mine
    assert (operators.is_aside, operators.is_entered) == (False, True)


def test_where_operators_are_not_collected_they_are_not_after_a_profiler_either() -> None:
    def import_and_profile() -> None:
        operators, profiler, space, library = make()
        torch_hook.start_operators(SimpleNamespace(_C=SimpleNamespace(_itt=None)), operators)
        space._enable_profiler("theirs")
        space._disable_profiler()
        found.append((profiler.session, library.calls[-3:]))

    found: list[object] = []
    in_thread(import_and_profile)
    assert found == [(None, ["deepprof_notice", "deepprof_pause", "deepprof_resume"])]


def test_the_end_leaves_once_and_for_all() -> None:
    operators, profiler, space, library = make()
    operators.enter()
    operators.finish()
    operators.finish()
    operators.enter()
    assert (profiler.session, library.calls) == (None, ["deepprof_finish"])
    space._enable_profiler("theirs")
    assert library.calls == ["deepprof_finish"]


def test_an_interrupt_of_the_wait_at_the_end_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    at_exit: list[Callable[[], None]] = []
    monkeypatch.setattr("multiprocessing.util.Finalize", lambda *_, **__: None)  # first: its module asks atexit too
    monkeypatch.setattr("atexit.register", at_exit.append)
    monkeypatch.setattr("os.register_at_fork", lambda **_: None)
    monkeypatch.setattr(process, "AT_END", [])
    operators, *_ = make()
    operators.library = SimpleNamespace(deepprof_finish=interrupt)
    torch_hook.finish_at_exit(operators)
    at_exit[0]()
    assert operators.is_over


def test_the_child_of_a_fork_leaves_and_finishes_nothing() -> None:
    operators, profiler, _, library = make()
    operators.enter()
    operators.forget()
    operators.finish()
    assert (profiler.session, library.calls) == (None, [])


@pytest.mark.parametrize(
    ("version", "hiding", "found"),
    [
        ({"cuda": "13.0"}, {}, True),
        ({"hip": "7.0"}, {}, True),
        ({"cuda": None, "hip": None}, {}, False),
        ({}, {}, False),
        ({"cuda": "13.0"}, {"CUDA_VISIBLE_DEVICES": ""}, False),
        ({"cuda": "13.0"}, {"CUDA_VISIBLE_DEVICES": "-1"}, False),
        ({"cuda": "13.0"}, {"CUDA_VISIBLE_DEVICES": "0,1"}, True),
        ({"hip": "7.0"}, {"HIP_VISIBLE_DEVICES": " "}, False),
    ],
)
def test_a_device_needs_a_build_and_a_file_and_must_not_be_hidden(
    version: dict[str, str], hiding: dict[str, str], found: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in process.HIDING:
        monkeypatch.delenv(name, raising=False)
    for name, value in hiding.items():
        monkeypatch.setenv(name, value)
    torch: Any = SimpleNamespace(version=SimpleNamespace(**version))
    monkeypatch.setattr(process, "DEVICES", (str(tmp_path / "none"),))
    assert not torch_hook.has_device(torch)
    monkeypatch.setattr(process, "DEVICES", (str(tmp_path / "none"), str(tmp_path)))
    assert torch_hook.has_device(torch) is found


def test_a_torch_that_is_not_known_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(torch_hook, "load", lambda _: library)
    monkeypatch.setenv("DEEPPROF_INJECT", "/nowhere")
    strange: Any = SimpleNamespace(__version__="9", version=SimpleNamespace())
    torch_hook.start(strange)
    assert library.calls == ["deepprof_notice"]


class Node(float):
    """A node of autograd whose word behind the head of its object, this number's bits, is the address of nothing."""

    numbers = itertools.count()

    def __init__(self, _: float) -> None:
        self.number = next(self.numbers)

    def _sequence_nr(self) -> int:
        return self.number


class Tensor:
    """What has such nodes."""

    def __init__(self) -> None:
        self.grad_fn = Node(5e-324)

    def __mul__(self, _: object) -> Tensor:
        return Tensor()

    def __neg__(self) -> Tensor:
        return Tensor()

    __add__ = __mul__


def test_objects_of_another_layout_are_told_from_nodes_without_looking_there() -> None:
    space = SimpleNamespace(_set_grad_enabled=lambda _: None)
    torch: Any = SimpleNamespace(_C=space, is_grad_enabled=lambda: True, zeros=lambda *_, **__: Tensor())
    assert torch_hook._quietly_measured(torch) == (-1, -1)


def test_what_a_call_costs_is_measured_on_the_cpu() -> None:
    """A child that is spawned imports the program before the hook begins, which may have made a GPU the default."""
    seen: list[object] = []
    torch: Any = SimpleNamespace(zeros=lambda _, device=None: seen.append(device), neg=lambda value: value)
    operators: Any = SimpleNamespace(enter=lambda: None, leave=lambda: None)
    assert torch_hook._measure_call(torch, operators) >= 0
    assert seen == ["cpu"]


def test_nothing_that_fails_at_a_step_comes_to_the_program() -> None:
    """Another profiler may be there, of which no one has told us."""
    torch = pytest.importorskip("torch")
    from torch.optim import optimizer as hooks

    def fail(_: object) -> None:
        called.append(True)
        raise RuntimeError("Profiler is already enabled on this thread")

    called: list[bool] = []
    spaces = [getattr(hooks, f"_global_optimizer_{each}_hooks") for each in ("pre", "post")]
    kept = [dict(space) for space in spaces]
    optimizer_steps.call_at_steps(fail, fail)
    try:
        torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1).step()
    finally:
        for space, before in zip(spaces, kept, strict=True):
            space.clear()
            space.update(before)
    assert called == [True, True]
