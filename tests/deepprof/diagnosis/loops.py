"""Loops for the tests of rules: one iteration drawn by hand in µs, repeated, measured as the pipeline does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from deepprof.collectors.trace import Trace
from deepprof.diagnosis.finding import Finding
from deepprof.metrics.breakdown.parts_table import with_parts
from deepprof.metrics.breakdown.timeline import lay_out
from deepprof.metrics.host import read_host
from deepprof.metrics.iteration_table import measure_iterations, summarize
from deepprof.metrics.loop import Loop
from deepprof.metrics.operators import NOTE
from deepprof.metrics.sequence import main_sequence
from deepprof.mining import Iterations
from tests.tables import Row, event, launch, make_trace, span

MAIN = 7
CALL_US = 4
START_US = 5  # from a launch to its kernel on an idle device


@dataclass(frozen=True)
class Work:
    """Something on the device, in µs of its iteration; `launched` None: without a launch record."""

    start: float
    end: float
    launched: float | None = None
    name: str = "kernel"
    stream: int = MAIN
    activity: str = "kernel"
    more: Row = field(default_factory=dict)
    every: int = 1  # iterations; it is missing from the others


@dataclass(frozen=True)
class Did:
    """Something on the host, in µs of its iteration; `category` "range" is an annotation."""

    name: str
    start: float
    end: float
    category: str = "runtime"
    thread: int = 1
    every: int = 1


@dataclass(frozen=True)
class Job:
    """Iterations of `length` µs; each begins with the first work on the main stream."""

    length: float
    work: Sequence[Work] = ()
    host: Sequence[Did] = ()
    iterations: int = 7
    confidence: float = 1.0

    @property
    def names(self) -> list[str]:
        """All names, the launch call first."""
        return list(dict.fromkeys(["cudaLaunchKernel", *(each.name for each in (*self.work, *self.host))]))

    def trace(self) -> Trace:
        """Return the trace."""
        device, host, ranges = list[Row](), list[Row](), list[Row]()
        number = {name: i for i, name in enumerate(self.names)}
        for i in range(self.iterations):
            for w in (w for w in self.work if i % w.every == 0):
                correlation = len(device) + 1 if w.launched is not None else None
                start, end = self.at(i, w.start), self.at(i, w.end)
                row = event(number[w.name], start, end, stream=w.stream, activity=w.activity, correlation=correlation)
                device.append(row | w.more)
                if w.launched is not None:
                    host.append(launch(len(device), self.at(i, w.launched), self.at(i, w.launched + CALL_US)))
            for d in (d for d in self.host if i % d.every == 0):
                start, end = self.at(i, d.start), self.at(i, d.end)
                if d.category == "range":
                    ranges.append(span(number[d.name], start, end) | {"thread": d.thread})
                    continue
                row = launch(0, start, end, number[d.name]) | {"correlation": None, "thread": d.thread}
                host.append(row | {"category": d.category})
        return make_trace(device, host, ranges, self.names)

    def at(self, iteration: int, us: float) -> int:
        """Return the time in ns."""
        return round((iteration * self.length + us) * 1_000)

    def build(self) -> tuple[Loop, Trace]:
        """Return the loop and its trace."""
        trace = self.trace()
        sequence = main_sequence(trace, 0, MAIN)
        period = len([w for w in self.work if w.stream == MAIN and w.activity == "kernel"])
        first = np.arange(self.iterations) * period
        ones = np.ones(self.iterations, np.int64)
        table = measure_iterations(trace, sequence, Iterations(first, first + period, ones, ones * 0, ones == 1))
        loop = Loop(
            rank=0,
            device=0,
            stream=MAIN,
            period=period,
            confidence=self.confidence,
            evidence="made by hand",
            boundary_source="mined",
            boundary_confidence=0.9,
            agreement=None,
            iterations=table,
            metrics=summarize(table),
        )
        return with_parts(loop, trace, lay_out(trace, 0, read_host(trace).launches)), trace

    def found(self, rule) -> list[Finding]:  # type: ignore[no-untyped-def]
        """Return what a rule states."""
        return list(rule(*self.build()))


def as_stand_in(trace: Trace) -> Trace:
    """Return the trace as if its kernels were operators."""
    return replace(trace, notes=(f"{NOTE}1",))


def compute(until: float, *, launched: float | None = -START_US) -> Work:
    """Return the kernel that an iteration begins with."""
    return Work(0, until, launched)
