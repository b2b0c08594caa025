"""Jobs whose mistake has a line: made by hand with Python functions and operators, each next to the same job put right.

They are the cases of DeepContext (section 6) that do not need a certain device, and its analyses one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec
import polars as pl

from benchmarks.cases.case import HEALTHY, Case
from deepprof.collectors.trace import DEVICES, OPERANDS, STALLS, Trace
from tests.tables import Row, event, launch, make_trace, span, table

__all__ = ["CASES", "REST", "SECTION", "Call", "cases", "write"]

SECTION = "Calling contexts"
ITERATIONS = 24
LAUNCH_US, ON_WAY_US = 4.0, 6.0  # a call, and the way of what it launched to the device
MAIN, ENGINE_THREAD = 1, 2
DEVICE = "NVIDIA H100 80GB HBM3"
NODE = "autograd::engine::evaluate_function: "


@dataclass(frozen=True)
class Call:
    """A function with the operators that it runs, a kernel each: name and µs of the kernel.

    `host_us` is what the function does besides launching, `growth_us` by how much more of that in every iteration.
    `backward` are the µs of the backward kernel of every operator that has one; `again` are operators of these that run
    again before it, as where activations are not kept. `operands` are the shapes and types of
    an operator's operands, as JSON, where they are recorded; `called` names kernels that are not named after theirs.
    """

    function: str
    kernels: Sequence[tuple[str, float]] = ()
    host_us: float = 0.0
    growth_us: float = 0.0
    backward: dict[str, float] = field(default_factory=dict)
    again: frozenset[str] = frozenset()
    operands: dict[str, tuple[str, str]] = field(default_factory=dict)
    called: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Backward:
    """The backward node of an operator of that number, whose forward kernel runs again first for `again_us`, if any."""

    node: str
    kernel_us: float
    sequence: int
    again_us: float | None


class _HandWriter:
    """Lays calls out one after the other: the host runs ahead of the device, which runs what is launched in order."""

    def __init__(self) -> None:
        self.names, self.host, self.device = list[str](), list[Row](), list[Row]()
        self.ranges = list[Row]()
        self.now = self.free = self.before = 0.0
        self.sequence = 0
        self.operands = list[Row]()
        self.pace = 1.0

    def name(self, text: str) -> int:
        """Return the number of a name."""
        if text not in self.names:
            self.names.append(text)
        return self.names.index(text)

    def open(self, name: str, category: str, thread: int = MAIN, **more: object) -> Row:
        """Begin a function or an operator now; the caller states when it ends."""
        row: Row = {"start_ns": self.ns(self.now), "process": 1, "thread": thread, "category": category}
        self.host.append(row | {"name_id": self.name(name)} | more)
        return self.host[-1]

    def close(self, row: Row) -> None:
        """End what was begun."""
        self.now += 1
        row["end_ns"] = self.ns(self.now)

    def ns(self, us: float) -> int:
        """Return a time in ns."""
        return round(us * 1e3)

    def run(self, operator: str, kernel_us: float, thread: int = MAIN, kernel: str = "", **more: object) -> None:
        """Run an operator that launches a kernel, which is named after it unless it is called otherwise."""
        row = self.open(operator, "op", thread, **more)
        self.now += 1
        number = len(self.device) + 1
        call = launch(number, self.ns(self.now), self.ns(self.now + LAUNCH_US), self.name("cudaLaunchKernel"))
        self.host.append(call | {"thread": thread})
        start = max(self.free, self.now + ON_WAY_US)
        self.free = start + self.pace * kernel_us
        kernel = kernel or f"{operator.replace(NODE, '').replace('aten::', '')}_kernel"
        self.device.append(event(self.name(kernel), self.ns(start), self.ns(self.free), correlation=number))
        self.now += LAUNCH_US
        self.close(row)

    def iterate(self, calls: Sequence[Call], iteration: int) -> None:
        """Run one iteration: the calls forward, then the backward kernels in reverse order, on another thread."""
        begun = self.now
        step = self.open("train.py(90): train_step", "python")
        backward = list[_Backward]()
        for call in calls:
            row = self.open(call.function, "python")
            for operator, kernel_us in call.kernels:
                self.sequence += 1
                self.note_operands(operator, call)
                kernel = call.called.get(operator, "")
                self.run(operator, kernel_us, kernel=kernel, sequence=self.sequence, forward_thread=0)
                if operator in call.backward:
                    node = operator.removeprefix("aten::").title().replace("_", "")
                    again = kernel_us if operator in call.again else None
                    backward.append(_Backward(f"{NODE}{node}Backward0", call.backward[operator], self.sequence, again))
            self.now += call.host_us + call.growth_us * iteration
            self.close(row)
        for each in reversed(backward):
            self.run_backward(each)
        self.wait()
        self.close(step)
        self.ranges.append(
            span(self.name(f"ProfilerStep#{iteration}"), self.ns(begun), self.ns(self.now), framework=True)
        )

    def run_backward(self, each: _Backward) -> None:
        """Run a backward node; what runs again in it has its own number, what computes the gradient has none."""
        if each.again_us is None:
            self.run(each.node, each.kernel_us, ENGINE_THREAD, sequence=each.sequence, forward_thread=1)
            return
        row = self.open(each.node, "op", ENGINE_THREAD, sequence=each.sequence, forward_thread=1)
        self.sequence += 1
        self.run("aten::mm", each.again_us, ENGINE_THREAD, sequence=self.sequence, forward_thread=0)
        self.run("aten::mm", each.kernel_us, ENGINE_THREAD)
        self.close(row)

    def note_operands(self, operator: str, call: Call) -> None:
        """Note the operands of an operator that is about to run, where they are recorded."""
        if operator in call.operands:
            dims, dtypes = call.operands[operator]
            self.operands.append({"start_ns": self.ns(self.now), "dims": dims, "dtypes": dtypes})

    def wait(self) -> None:
        """Wait until the device is done with the iteration before this one, if it is not yet."""
        if self.before <= self.now:
            self.before = self.free
            return
        row = self.open("cudaEventSynchronize", "runtime")
        self.now, self.before = self.before, self.free
        self.close(row)


def write(
    calls: Sequence[Call], _: Path | None = None, *, iterations: int = ITERATIONS, growth: float = 0.0
) -> list[Trace]:
    """Return the trace of a job; kernels of the last iteration are by `growth` longer than those of the first."""
    writer = _HandWriter()
    for iteration in range(iterations):
        writer.pace = 1 + growth * iteration / max(1, iterations - 1)
        writer.iterate(calls, iteration)
    trace = make_trace(writer.device, writer.host, writer.ranges, writer.names)
    return [trace if not writer.operands else _with_operands(trace, writer.operands)]


def _with_operands(trace: Trace, operands: Sequence[Row]) -> Trace:
    """Return the trace of an H100 that has recorded these operands of the operators that begin then."""
    begun = trace.host_events.with_row_index("event").filter(pl.col("category") == "op").select("event", "start_ns")
    rows = begun.join(pl.DataFrame(operands), on="start_ns").drop("start_ns").to_dicts()
    device: Row = {"device": 0, "name": DEVICE, "multiprocessors": 132}
    return msgspec.structs.replace(trace, operands=table(rows, OPERANDS), devices=table([device], DEVICES))


def write_with_stalls(calls: Sequence[Call], _: Path) -> list[Trace]:
    """Return the trace of a job with what Nsight Compute measured of its gathers: their warps wait for memory."""
    (trace,) = write(calls)
    rows = {"name_id": [trace.names.index_of("gather_kernel")], "reason": ["long_scoreboard"], "share_ratio": [0.7]}
    return [msgspec.structs.replace(trace, stalls=pl.DataFrame(rows, schema=STALLS))]


CONVOLVE, NORM = "model.py(80): convolve", "model.py(55): rms_norm"
GATHER = [Call("model.py(15): gather", [("aten::gather", 280.0)])]
EMBED, LAYERS, LOSS = "model.py(10): embed", "model.py(20): layers", "model.py(60): loss"
REST = [  # no function has a third of it
    Call("model.py(30): attention", [("aten::addmm", 70.0), ("aten::softmax", 30.0)], backward={"aten::addmm": 130.0}),
    Call("model.py(40): mlp", [("aten::bmm", 80.0), ("aten::gelu", 20.0)], backward={"aten::bmm": 140.0}),
    Call("model.py(50): norm", [("aten::layer_norm", 60.0), ("aten::mul", 20.0)], backward={"aten::layer_norm": 120.0}),
    Call("optimizer.py(70): update", [("aten::_fused_adamw_", 150.0)]),
]
FIRST, SECOND = (
    Call(f"model.py({line}): {name}", [("aten::mm", us)], backward={"aten::mm": us + 10})
    for line, name, us in ((25, "first_layer", 150.0), (28, "second_layer", 120.0))
)
LARGE = [("aten::addmm", 200.0), ("aten::gelu", 150.0), ("aten::mul", 150.0), ("aten::bmm", 200.0)]
SMALL = [("aten::log_softmax", 8.0), ("aten::copy_", 8.0), ("aten::nll_loss", 8.0), ("aten::mean", 8.0)]
# RMSNorm in half precision: to float, the norm step by step, and back.
CONVERTED = [(f"aten::{name}", 9.0) for name in ("to", "pow", "mean", "rsqrt", "mul", "_to_copy")]
HOST = Call("data.py(5): select_rows", host_us=800.0)
OTHER = Call("data.py(15): augment", host_us=300.0)

# The calls, the rule that must speak with its line, and whether it is the headline. None: the rules may not speak.
CASES: dict[str, tuple[Sequence[Call], str, str]] = {
    "rows by index": (
        [Call(EMBED, [("aten::index", 20.0)], backward={"aten::index": 500.0}), *REST],
        "heavy-backward",
        EMBED,
    ),
    "rows by index_select": (
        [Call(EMBED, [("aten::index_select", 20.0)], backward={"aten::index_select": 45.0}), *REST],
        "",
        "",
    ),
    "convolutions in the wrong layout": (
        [Call(CONVOLVE, [("aten::nchwToNhwc", 60.0), ("aten::conv2d", 90.0), ("aten::nhwcToNchw", 60.0)]), *REST],
        "layout-conversions",
        CONVOLVE,
    ),
    "convolutions in their layout": ([Call(CONVOLVE, [("aten::conv2d", 90.0)]), *REST], "", ""),
    "conversions around a norm": ([*REST, Call(NORM, CONVERTED)], "fusion-candidates", NORM),
    "a loss of small kernels": ([*REST, *[Call(LOSS, SMALL * 3)]], "fusion-candidates", LOSS),
    "a loss in one kernel": ([*REST, Call(LOSS, [("aten::fused_loss", 40.0)])], "", ""),
    "a function with half of the work": ([Call(LAYERS, LARGE), *REST], "hotspot", LAYERS),
    "layers that run again": (
        [*(replace(layer, again=frozenset({"aten::mm"})) for layer in (FIRST, SECOND)), *REST],
        "recomputed-forward",
        FIRST.function,
    ),
    "layers that run once": ([FIRST, SECOND, *REST], "", ""),
    "rows selected in Python": ([HOST, OTHER, *REST], "heavy-host", HOST.function),
    "rows selected by a tensor": ([OTHER, *REST], "", ""),
    "a kernel that waits for memory": ([*GATHER, *REST], "stalled-kernels", "model.py(15): gather"),
    "the same without counters": ([*GATHER, *REST], "", ""),
    "a list that grows behind the device": (
        [Call("log.py(8): note", host_us=20.0, growth_us=20.0), *REST],
        "growing-context",
        "log.py(8): note",
    ),
    "a list that does not grow": ([Call("log.py(8): note", host_us=200.0), *REST], "", ""),
}
HEADLINES = {
    "heavy-backward": "heavy-backward",
    "layout-conversions": "layout-conversions",
    "heavy-host": "host-bound",
}  # the others are remarks
BESIDE = {"heavy-backward": ("hotspot",)}  # what is as true
RULES = (
    "hotspot",
    "heavy-backward",
    "layout-conversions",
    "fusion-candidates",
    "heavy-host",
    "growing-context",
    "stalled-kernels",
    "recomputed-forward",
)


def cases() -> Iterator[Case]:
    """Yield a case per job."""
    for name, (calls, rule, function) in CASES.items():
        headline = HEADLINES.get(rule, HEALTHY)
        load = write_with_stalls if rule == "stalled-kernels" else write
        never = tuple(each for each in RULES if each not in (rule, *BESIDE.get(rule, ())))
        yield Case(SECTION, name, headline, partial(load, calls), never=never, finds=(rule, function) if rule else None)
