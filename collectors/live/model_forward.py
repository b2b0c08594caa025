"""Which operators each module of a PyTorch model runs in a forward pass, in order, named as torch.profiler names them.

Torch's execution trace observer sees the operators that its profiler sees, with their nesting, whether a profiler runs
or not. Hooks on the modules write into the same record which module is open from then on. They do so on their own
thread: a profiler that the job runs meanwhile records its own threads, and its trace stays as it would be. Tried with
torch 2.13; needs no other library."""

from __future__ import annotations

import gc
import importlib
import random
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SCHEMA = "deepprof.layers/1"
MARK = "deepprof.open "  # and the numbers of the module that is open from now on, and of its call
HEAD = re.compile(rb'^\s*"id": (\d+), "name": "(.*)", "ctrl_deps": (\d+),')
SCOPE = re.compile(rb'"name": "scope", "type": "uint64", "value": (\d+)')
THREAD = re.compile(rb'"name": "tid", "type": "uint64", "value": (\d+)')
FUNCTION, BACKWARD, RANGE = 0, 1, 7  # of at::RecordScope
PARALLEL, COMPILED = "DistributedDataParallel", "OptimizedModule"  # around a model whose user has its paths without
WRAPPED = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})  # in paths
LIMIT_NBYTES = 2 * 1024**3  # of torch's record
MODULES, OPERATORS, NAME_CHARS = 100_000, 1_000_000, 1_000  # that a file of layers may have
EMBEDDED_NBYTES = 16 * 1024**2  # in the header of a trace
UNSAFE = re.compile(r"[^ !#-\[\]-~]")  # Kineto writes a backslash as a slash


class ForwardError(Exception):
    """A forward pass that could not be recorded, and why."""


@dataclass(frozen=True, slots=True)
class RecordedForward:
    """A forward pass: its `modules`, the model first, as path and class, and its `operators` in their order.

    Each operator has its name, the number of its module, and of the call of that module, from 0 on.
    """

    modules: tuple[tuple[str, str], ...]
    operators: tuple[tuple[str, int, int], ...]

    def to_json(self) -> dict[str, object]:
        """Return the content of a file of layers."""
        modules = [{"path": path, "class": kind} for path, kind in self.modules]
        return {"schema": SCHEMA, "modules": modules, "operators": [list(each) for each in self.operators]}


class ForwardRecorder:
    """Records the next forward pass of `model`: `done` gets it, or `failed` the reason why there is none.

    What goes wrong here never reaches the caller of the model. A pass that raises is not recorded, the next one is.
    Raises `ForwardError` for a model that cannot have hooks.
    """

    def __init__(
        self, model: Any, done: Callable[[RecordedForward], None], failed: Callable[[Exception], None]
    ) -> None:
        self.done, self.failed = done, failed
        self.modules = list_modules(model)
        self.over = False
        self.pass_: _Pass | None = None
        self.hooks: list[Any] = []
        self.is_compiling = _find_compiling()
        try:
            for number, (module, _, _) in enumerate(self.modules):
                self._hook(number, module)
        except Exception as error:
            self.remove()
            raise ForwardError(f"its modules take no hooks ({error})") from error

    def _hook(self, number: int, module: Any) -> None:
        """Put hooks on a module: before all others, and behind them."""

        enter, leave = (_ForwardHook(self._try, step, number) for step in (self._enter, self._leave))
        self.hooks.append(module.register_forward_pre_hook(enter, prepend=True))
        self.hooks.append(module.register_forward_hook(leave, always_call=True))

    def _try(self, step: Callable[[int], None], number: int) -> None:
        """Take a step, unless torch compiles the hook; an error ends the recording."""
        if self.over or self.is_compiling():
            return
        try:
            step(number)
        except Exception as error:
            self.over = True
            self._stop()
            self.failed(error)

    def _enter(self, number: int) -> None:
        """Note that a module is called: the model itself begins the recording."""
        if self.pass_ is None and number == 0:
            self.pass_ = _Pass()
        if self.pass_ is not None and self.pass_.is_here():
            self.pass_.enter(number)

    def _leave(self, number: int) -> None:
        """Note that a module has returned: the model itself ends the recording."""
        if self.pass_ is None or not self.pass_.is_here():
            return
        self.pass_.leave()
        if number or self.pass_.open:
            return
        whole = sys.exc_info()[1] is self.pass_.raised
        nodes = self._stop()
        if whole:  # else torch iterates over the hooks, which must stay
            self.remove()
            self.done(RecordedForward(tuple((path, kind) for _, path, kind in self.modules), _assign(nodes)))

    def _stop(self) -> list[_ExecutionNode]:
        ended, self.pass_ = self.pass_, None
        return [] if ended is None else ended.end()

    def remove(self) -> None:
        """Take the hooks off; nothing is recorded any more."""
        self.over = True
        if self.pass_ is not None:
            self._stop()
        for hook in self.hooks:
            hook.remove()
        self.hooks = []


class _ForwardHook:
    """A hook on a module; in a copy of the module, and in its pickle, it is one that does nothing and needs no library.

    A job may save its model, or copy it for an average, while a forward pass is waited for.
    """

    def __init__(
        self, attempt: Callable[[Callable[[int], None], int], None], step: Callable[[int], None], number: int
    ) -> None:
        self.attempt, self.step, self.number = attempt, step, number

    def __call__(self, *_: object) -> None:
        """Take the step."""
        self.attempt(self.step, self.number)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a method of the standard library that takes all arguments and does nothing."""
        return getattr, (nullcontext(), "__exit__")


@dataclass(frozen=True, slots=True)
class _ExecutionNode:
    """A row of torch's record: an operator or a range, within the `parent` with that number."""

    number: int
    name: str
    parent: int
    scope: int
    thread: int


class _Pass:
    """One forward pass while it is recorded: the modules that are `open`, with their calls."""

    def __init__(self) -> None:
        from torch.profiler import ExecutionTraceObserver

        self.thread, self.open, self.calls = threading.get_ident(), list[tuple[int, int]](), Counter[int]()
        self.raised = sys.exc_info()[1]  # what the caller handles, maybe by calling the model again
        if _is_observed():
            raise ForwardError("another execution trace of torch is being recorded")
        self.folder = tempfile.TemporaryDirectory(prefix="deepprof-", ignore_cleanup_errors=True)
        self.path = Path(self.folder.name) / "forward.json"
        self.observer = ExecutionTraceObserver().register_callback(str(self.path))
        if not self.observer.is_registered:
            self.folder.cleanup()
            raise ForwardError("torch records no execution trace here")
        self.marking = ThreadPoolExecutor(1, "deepprof-layers")
        self.observer.start()

    def is_here(self) -> bool:
        """Return whether this is the thread that called the model."""
        return threading.get_ident() == self.thread

    def enter(self, number: int) -> None:
        """Open a module."""
        self.open.append((number, self.calls[number]))
        self.calls[number] += 1
        self._mark()

    def leave(self) -> None:
        """Close the innermost module."""
        self.open.pop()
        self._mark()

    def _mark(self) -> None:
        """Write which module is open, -1 for none, and wait until that is done."""
        number, call = self.open[-1] if self.open else (-1, 0)
        self.marking.submit(_write_mark, f"{MARK}{number} {call}").result()

    def end(self) -> list[_ExecutionNode]:
        """Stop, and return what was recorded."""
        try:
            self.observer.stop()
            self.observer.unregister_callback()
            return list(_read_nodes(self.path))
        finally:
            self.marking.shutdown()
            self.folder.cleanup()


def _is_observed() -> bool:
    """Return whether someone else has such an observer: torch has but one, and does not state whose."""
    from torch.profiler import ExecutionTraceObserver

    return any(type(each) is ExecutionTraceObserver and each.is_registered for each in gc.get_objects())


def _write_mark(text: str) -> None:
    """Write a range without an extent."""
    import torch

    with torch.profiler.record_function(text):
        pass


def _read_nodes(path: Path) -> Iterator[_ExecutionNode]:
    """Yield the nodes of an execution trace; torch does not escape names in it, so that it may be no JSON."""
    if path.stat().st_size > LIMIT_NBYTES:
        raise ForwardError(f"the forward pass has too many operators: torch's record takes {path.stat().st_size} bytes")
    head = None
    with path.open("rb") as lines:
        for line in lines:
            if found := HEAD.match(line):
                head = found
            elif head and (scope := SCOPE.search(line)) and (thread := THREAD.search(line)):
                name = head[2].decode("utf-8", "replace")[:NAME_CHARS]
                yield _ExecutionNode(int(head[1]), name, int(head[3]), int(scope[1]), int(thread[1]))
                head = None


def _assign(nodes: Iterable[_ExecutionNode]) -> tuple[tuple[str, int, int], ...]:
    """Return the outermost operators of a forward pass, each with the numbers of its module and of its call.

    A function of the user's own (`torch.autograd.Function`) that runs operators is not one itself; they are. Raises
    `ForwardError` where there is none.
    """
    rows = sorted(nodes, key=lambda node: node.number)
    outermost = _find_outermost(rows)
    threads = Counter(node.thread for node in rows if node.number in outermost)
    if not threads:
        raise ForwardError("no operator was recorded in the forward pass")
    thread, module, call = threads.most_common(1)[0][0], -1, 0
    found: list[tuple[str, int, int]] = []
    for node in rows:
        if node.name.startswith(MARK):
            module, call = map(int, node.name.removeprefix(MARK).split())
        elif module >= 0 and node.thread == thread and node.number in outermost:
            found.append((node.name, module, call))
    if len(found) > OPERATORS:
        raise ForwardError(f"the forward pass has {len(found):,} operators, more than {OPERATORS:,}")
    return tuple(found)


def _find_outermost(rows: Sequence[_ExecutionNode]) -> set[int]:
    """Return the numbers of the operators that are in no other one; backward ones are none of a forward pass."""
    inner = _find_parents(rows)
    closed = set[int]()  # what is in these is no outermost operator
    found = set[int]()
    for node in rows:
        within = node.parent in closed
        is_around = node.scope == FUNCTION and "::" not in node.name and node.number in inner
        operator = node.scope == FUNCTION and not is_around
        if operator and not within:
            found.add(node.number)
        if within or operator or node.scope == BACKWARD:
            closed.add(node.number)
    return found


def _find_parents(rows: Sequence[_ExecutionNode]) -> set[int]:
    parent = {node.number: node.parent for node in rows}
    found = set[int]()
    for node in rows:
        at = node.parent if node.scope == FUNCTION else node.number
        while at in parent and at not in found and node.scope == FUNCTION and at != parent[at]:
            found.add(at)
            at = parent[at]
    return found


def unwrap(model: Any) -> Any:
    """Return the user's own model in DistributedDataParallel or what torch.compile returned."""
    while type(model).__name__ in (PARALLEL, COMPILED):
        model = getattr(model, "_orig_mod", None) or model.module
    return model


def list_modules(model: Any) -> list[tuple[Any, str, str]]:
    """Return each module once, with its path, of the model itself its class, and its class.

    A DistributedDataParallel around the model is none of them. Raises `ForwardError` for what is no module, is compiled
    or has too many modules.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise ForwardError(f"a {type(model).__name__} is no torch.nn.Module")
    while type(model).__name__ == PARALLEL:
        model = model.module
    found = []
    for name, module in model.named_modules():
        path = ".".join(part for part in name.split(".") if part not in WRAPPED) or type(model).__name__
        found.append((module, path[:NAME_CHARS], type(module).__name__[:NAME_CHARS]))
        if getattr(module, "_compiled_call_impl", None) is not None or type(module).__name__ == COMPILED:
            raise ForwardError(f"{path} is compiled, so that its operators are not run one by one")
    if len(found) > MODULES:
        raise ForwardError(f"the model has {len(found):,} modules, more than {MODULES:,}")
    return found


def _find_compiling() -> Callable[[], bool]:
    """Return torch's function that states, in code that is being compiled, that it is."""
    import torch

    found: Callable[[], bool] = torch.compiler.is_compiling
    return found


def record_forward(
    model: Any, inputs: Sequence[object] = (), named: Mapping[str, object] | None = None
) -> RecordedForward:
    """Run a forward pass of a model, uncompiled, and return its operators, layer by layer.

    What creates its parameters only when it runs (`torch.nn.LazyLinear`) is run once before. Whether it trains, its
    parameters, buffers and the states of random generators are as before afterwards; what else it keeps (a count in an
    attribute) is as the pass leaves it. Takes the memory of the parameters again, and what the forward pass needs with
    gradients. Raises `ForwardError`, and what the model itself raises.
    """
    ended: list[RecordedForward] = []
    failures: list[Exception] = []
    model = unwrap(model)
    _create_parameters(model, inputs, named or {})
    recorder = ForwardRecorder(model, ended.append, failures.append)
    try:
        with _restored(model):
            model(*inputs, **(named or {}))
    finally:
        recorder.remove()
    if failures:
        raise ForwardError(str(failures[0])) from failures[0]
    if not ended:
        raise ForwardError("its forward pass was not recorded; is it called on another thread, or compiled?")
    return ended[0]


def _create_parameters(model: Any, inputs: Sequence[object], named: Mapping[str, object]) -> None:
    from torch.nn.parameter import is_lazy

    if any(is_lazy(each) for module, _, _ in list_modules(model) for each in module.parameters(recurse=False)):
        with _restored(model):
            model(*inputs, **named)


@contextmanager
def _restored(model: Any) -> Iterator[None]:
    """Restore parameters, buffers and the states of random generators."""
    torch: Any = importlib.import_module("torch")
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    tensors = [*_list_tensors(model)]
    try:
        yield
    finally:
        with torch.no_grad():
            for owner, name, tensor, copy in tensors:
                owner[name] = tensor
                if copy is not None and not tensor.is_meta:
                    _restore(tensor, copy)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if devices:
            torch.cuda.set_rng_state_all(devices)


def _restore(tensor: Any, copy: Any) -> None:
    """Give a tensor the values of its copy; one that cannot take them in place gets the memory of the copy."""
    if tensor.shape == copy.shape and tensor.dtype == copy.dtype:
        with suppress(RuntimeError):  # it repeats itself in memory
            tensor.data.copy_(copy)
            return
    tensor.data = copy


def _list_tensors(model: Any) -> Iterator[tuple[dict[str, Any], str, Any, Any]]:
    """Yield the parameters and buffers of a model: what holds each, its name there, itself, and a copy if it has any.

    There is none of parameters that have not been created.
    """
    from torch.nn.parameter import is_lazy

    copies: dict[int, Any] = {}
    for module in model.modules():
        for owner in (module._parameters, module._buffers):
            for name, tensor in owner.items():
                if tensor is not None and not is_lazy(tensor) and id(tensor) not in copies:
                    copies[id(tensor)] = tensor.detach().clone()
                yield owner, name, tensor, copies.get(id(tensor))


def write_embedded(forward: RecordedForward) -> str:
    """Return the layers as JSON for the header of a trace, in which Kineto keeps neither quotes nor backslashes."""
    import json

    modules = tuple((_write_safely(path), _write_safely(kind)) for path, kind in forward.modules)
    operators = tuple((_write_safely(name), module, call) for name, module, call in forward.operators)
    text = json.dumps(RecordedForward(modules, operators).to_json(), separators=(",", ":"))
    if len(text) > EMBEDDED_NBYTES:
        raise ForwardError(f"the layers take {len(text):,} bytes, more than a trace may hold ({EMBEDDED_NBYTES:,})")
    return text


def _write_safely(text: str) -> str:
    """Return a text without what Kineto changes."""
    return UNSAFE.sub("?", text)
