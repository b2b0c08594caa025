"""A forward pass recorded by a real torch: what it runs, in which module, and what stays as it was."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepprof
from deepprof.collectors.live.model_forward import (
    ForwardError,
    ForwardRecorder,
    RecordedForward,
    list_modules,
    record_forward,
    unwrap,
)
from deepprof.collectors.live.torch_profiler import UNSEEN

torch: Any = pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")

pytestmark = pytest.mark.filterwarnings("ignore:.*Profiler (clears|won't):UserWarning")


class Twice(torch.autograd.Function):
    """A function of the user's own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2


class Net(torch.nn.Module):
    """Two names of one module, its own operators, random numbers, buffers that change."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)
        self.fc = torch.nn.Linear(4, 4)
        self.same, self.drop = self.fc, torch.nn.Dropout(0.5)
        self.fails = False

    def forward(self, x: Any) -> Any:
        x = torch.relu_(self.norm(self.conv(x))).mean((2, 3))
        if self.fails:
            raise RuntimeError("out of luck")
        random.random()
        np.random.random()
        with torch.profiler.record_function("the user's"):
            x = self.drop(self.same(self.fc(x)))
        x += 1
        return Twice.apply(x)


OPERATORS = [
    ("aten::conv2d", "conv", "Conv2d", 0),
    ("aten::add_", "norm", "BatchNorm2d", 0),
    ("aten::batch_norm", "norm", "BatchNorm2d", 0),
    ("aten::relu_", "Net", "Net", 0),
    ("aten::mean", "Net", "Net", 0),
    ("aten::linear", "fc", "Linear", 0),
    ("aten::linear", "fc", "Linear", 1),
    ("aten::dropout", "drop", "Dropout", 0),
    ("aten::add_", "Net", "Net", 0),
    ("aten::mul", "Net", "Net", 0),
]


def describe(forward: RecordedForward) -> list[tuple[str, str, str, int]]:
    return [(name, *forward.modules[module], call) for name, module, call in forward.operators]


def draw() -> Any:
    return torch.rand(2, 3, 8, 8)


def count_hooks(model: Any) -> int:
    return sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in model.modules())


def test_operators_are_those_of_the_profiler_in_their_modules() -> None:
    model, x = Net(), draw()
    assert describe(record_forward(model, [x])) == OPERATORS
    with torch.profiler.profile() as profiler:
        model(x)
    events = [event for event in profiler.profiler.kineto_results.events() if event.name().startswith("aten::")]
    events.sort(key=lambda event: (event.start_ns(), -event.duration_ns()))
    end, outermost = 0, list[str]()
    for event in events:
        if event.start_ns() >= end:
            outermost.append(event.name())
            end = event.start_ns() + event.duration_ns()
    assert outermost == [name for name, *_ in OPERATORS]


def test_the_model_and_all_random_numbers_are_as_before() -> None:
    model = Net()
    model.conv.weight.requires_grad_(requires_grad=False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    buffers = dict(model.named_buffers())
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    record_forward(model, [torch.full((2, 3, 8, 8), 0.5)])
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(buffers[name] is buffer for name, buffer in model.named_buffers())
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])
    assert model.training
    assert not model.conv.weight.requires_grad
    assert model.fc.weight.grad is None
    assert count_hooks(model) == 0


def test_a_model_without_memory_is_recorded() -> None:
    with torch.device("meta"):
        assert describe(record_forward(Net(), [draw()])) == OPERATORS


def test_what_the_model_raises_is_raised_and_leaves_no_hooks() -> None:
    model = Net()
    model.fails = True
    with pytest.raises(RuntimeError, match="out of luck"):
        record_forward(model, [draw()])
    assert count_hooks(model) == 0
    model.fails = False
    assert describe(record_forward(model, [draw()])) == OPERATORS


def test_a_pass_that_fails_is_not_recorded_but_the_next_one() -> None:
    model, ended = Net(), list[RecordedForward]()
    ForwardRecorder(model, ended.append, pytest.fail)
    model.fails = True
    with pytest.raises(RuntimeError, match="out of luck"):
        model(draw())
    model.fails = False
    for _ in range(3):
        model(draw())
    assert [describe(each) for each in ended] == [OPERATORS]
    assert count_hooks(model) == 0


def test_modules_called_by_other_threads_meanwhile_are_not_part_of_it() -> None:
    model, ended = Net(), list[RecordedForward]()
    ForwardRecorder(model, ended.append, pytest.fail)

    def call_too(*_: object) -> None:
        other = threading.Thread(target=lambda: model.fc(torch.ones(1, 4)))
        other.start()
        other.join()

    model.norm.register_forward_hook(call_too)
    model(draw())
    assert [describe(each) for each in ended] == [OPERATORS]


def test_an_error_of_ours_does_not_reach_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, failures = Net(), list[Exception]()
    ForwardRecorder(model, pytest.fail, failures.append)
    monkeypatch.setattr("deepprof.collectors.live.model_forward._write_mark", lambda _: 1 / 0)
    model(draw())
    model(draw())
    assert [type(each) for each in failures] == [ZeroDivisionError]


def test_another_record_of_torch_is_left_alone(tmp_path: Path) -> None:
    other = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "theirs.json"))
    with pytest.raises(ForwardError, match="another execution trace"):
        record_forward(Net(), [draw()])
    other.start()
    torch.ones(2) + 1
    other.stop()
    other.unregister_callback()
    assert "aten::add" in (tmp_path / "theirs.json").read_text()


def test_names_of_ranges_may_break_the_record() -> None:
    def run(self: Any, x: Any) -> Any:
        with torch.profiler.record_function('a "quoted", "ctrl_deps": 7, name'):
            return x + 1

    model = type("Odd", (torch.nn.Module,), {"forward": run})()
    assert describe(record_forward(model, [torch.ones(2)])) == [("aten::add", "Odd", "Odd", 0)]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (3, "a int is no torch.nn.Module"),
        (torch.nn.Identity(), "no operator"),
    ],
)
def test_what_cannot_be_recorded_is_told(model: Any, said: str) -> None:
    with pytest.raises(ForwardError, match=said):
        record_forward(model, [torch.ones(2)])


def test_wrappers_are_not_part_of_paths() -> None:
    class DistributedDataParallel(torch.nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

    model = torch.nn.Sequential(torch.nn.ReLU())
    model.add_module("_fsdp_wrapped_module", torch.nn.Sequential(torch.nn.Tanh()))
    found = [path for _, path, _ in list_modules(unwrap(DistributedDataParallel(model)))]
    assert found == ["Sequential", "0", "Sequential", "0"]
    compiled = torch.nn.Sequential(torch.nn.ReLU())
    compiled._compiled_call_impl = lambda x: x
    with pytest.raises(ForwardError, match="is compiled"):
        list_modules(compiled)


def test_a_model_that_waits_can_be_copied_and_saved() -> None:
    model, ended = Net(), list[RecordedForward]()
    ForwardRecorder(model, ended.append, pytest.fail)
    average = copy.deepcopy(model)
    average(draw())
    assert not ended
    content = pickle.dumps((model, average))
    assert b"deepprof" not in content.replace(__name__.encode(), b"")
    for each in pickle.loads(content):  # noqa: S301  our own
        each(draw())
    model(draw())
    assert [describe(each) for each in ended] == [OPERATORS]
    assert count_hooks(model) == 0


def test_a_pass_in_the_handler_of_an_error_is_recorded() -> None:
    model, ended = Net(), list[RecordedForward]()
    ForwardRecorder(model, ended.append, pytest.fail)
    try:
        raise MemoryError
    except MemoryError:
        model(draw())
    assert [describe(each) for each in ended] == [OPERATORS]


def test_parameters_that_the_first_pass_creates_are_no_part_of_it() -> None:
    model = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.ReLU())
    state = torch.get_rng_state()
    found = describe(record_forward(model, [torch.ones(2, 4)]))
    assert found == [("aten::linear", "0", "Linear", 0), ("aten::relu", "1", "ReLU", 0)]
    assert torch.equal(torch.get_rng_state(), state)


def test_buffers_that_repeat_themselves_or_change_their_shape_are_as_before() -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("repeated", torch.ones(1).expand(4))
            self.register_buffer("grown", torch.ones(1))

        def forward(self, x: Any) -> Any:
            self.grown.resize_(8).zero_()
            return x + self.repeated

    model = Odd()
    assert describe(record_forward(model, [torch.ones(4)]))[-1][0] == "aten::add"
    assert (model.repeated.tolist(), model.grown.tolist()) == ([1] * 4, [1])


def test_a_compiled_model_is_told_and_its_dry_run_is_not_compiled() -> None:
    compiled = torch.compile(Net(), backend="eager")
    with pytest.raises(ForwardError, match="OptimizedModule is compiled"):
        ForwardRecorder(compiled, pytest.fail, pytest.fail)
    assert describe(record_forward(compiled, [draw()])) == OPERATORS


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEEPPROF_SOCKET", str(tmp_path / "nobody.sock"))
    monkeypatch.delenv("DEEPPROF_INJECT", raising=False)
    return tmp_path / "t.json"


def train(model: Any, profiler: Any = None, steps: int = 1) -> list[float]:
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(draw()).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if profiler is not None:
            profiler.step()
    return losses


def test_attach_notes_the_layers_in_the_trace_of_a_running_profiler(nobody: Path) -> None:
    torch.manual_seed(0)
    plain = Net()
    torch.manual_seed(0)
    model = Net()
    with torch.profiler.profile() as profiler:
        attachment = deepprof.attach(profiler, model=model)
        losses = train(model, steps=3)
    attachment.detach()
    assert losses == train(plain, steps=3)
    assert count_hooks(model) == 0
    profiler.export_chrome_trace(str(nobody))
    trace = deepprof.read(nobody)
    assert trace.layers.select("operator", "layer", "layer_class", "call").rows() == OPERATORS
    written = nobody.read_text()
    assert "deepprof.open" not in written
    names = [event["name"] for event in json.loads(written)["traceEvents"] if event.get("cat") == "cpu_op"]
    assert names.count("aten::conv2d") == 3


def test_every_later_cycle_has_the_layers(nobody: Path) -> None:
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=2)
    model, traces = Net(), list[Any]()

    def keep(profiler: Any) -> None:
        profiler.export_chrome_trace(str(nobody))
        traces.append(deepprof.read(nobody))

    profiler = torch.profiler.profile(schedule=schedule, on_trace_ready=keep)
    attachment = deepprof.attach(profiler, model=model)
    with profiler:
        train(model, profiler, steps=7)
    attachment.detach()
    assert [each.layers.height for each in traces] == [len(OPERATORS)] * 2


def test_a_model_that_cannot_be_recorded_is_told_once_and_trains(
    nobody: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Net()
    model.fc._compiled_call_impl = model.fc._call_impl
    with caplog.at_level(logging.WARNING, "deepprof"), torch.profiler.profile() as profiler:
        attachment = deepprof.attach(profiler, model=model)
        train(model)
    attachment.detach()
    said = [record.getMessage() for record in caplog.records if "layers" in record.getMessage()]
    assert len(said) == 1
    assert "fc is compiled" in said[0]
    profiler.export_chrome_trace(str(nobody))
    assert deepprof.read(nobody).layers.is_empty()


def test_a_model_that_never_runs_is_told_and_keeps_no_hooks(nobody: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = Net()
    attachment = deepprof.attach(torch.profiler.profile(), model=model)
    assert count_hooks(model) > 0
    with caplog.at_level(logging.WARNING, "deepprof"):
        attachment.detach()
        attachment.detach()
    assert count_hooks(model) == 0
    assert [record.getMessage().endswith(UNSEEN) for record in caplog.records].count(True) == 1
