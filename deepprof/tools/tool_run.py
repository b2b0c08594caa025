"""The run of one tool: records in, report out, and one error that names the tool for whatever it raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from deepprof.collectors.errors import escaped
from deepprof.collectors.processes import split_all
from deepprof.collectors.trace import Trace
from deepprof.job import number_ranks
from deepprof.metrics.iteration import ITERATIONS
from deepprof.tools.hooks import BATCH_ROWS, RECORD_HOOKS, ToolHook, cut_batches
from deepprof.tools.tool import Report, Tool, ToolError, guard

if TYPE_CHECKING:
    from deepprof.analysis import Analysis

ITERATION_HOOK = ToolHook("on_iterations", "on_iteration", "iterations")
ITERATION_ROWS = pl.Schema({**dict.fromkeys(("rank", "device", "stream", "loop"), pl.Int64()), **ITERATIONS})
VALUES = (pl.DataFrame, int, float, str, type(None))


class ToolRun:
    """One run of a tool: any number of times `feed`, then `conclude`. Raises `ToolError` for what the tool raises."""

    def __init__(self, tool: Tool, batch_rows: int = BATCH_ROWS) -> None:
        self.tool, self.batch_rows = tool, batch_rows
        self.hooks = tuple(hook for hook in RECORD_HOOKS if overrides(tool, hook.batches, hook.each))
        self.wants_iterations = overrides(tool, ITERATION_HOOK.batches, ITERATION_HOOK.each)
        self.wants_analysis = overrides(tool, "on_analysis")
        self.call("begin")

    def feed(self, trace: Trace) -> None:
        """Give the tool records of one rank that it has not had; of one rank the earlier ones first."""
        for hook in self.hooks:
            self.give(hook.batches, cut_batches(trace, hook, self.batch_rows))

    def give(self, hook: str, frames: Iterable[pl.DataFrame]) -> None:
        """Give frames to one of the tool's methods."""
        for frame in frames:
            self.call(hook, frame)

    def call(self, method: str, *arguments: object) -> object:
        """Call a method of the tool; raises `ToolError` for what it raises, Ctrl-C excepted."""
        return guard(self.tool.name, method, lambda: getattr(self.tool, method)(*arguments))

    def conclude(self, analyse: Callable[[], Analysis], iterations: Callable[[], pl.DataFrame] | None = None) -> Report:
        """Give the tool iterations and analysis, each only if it wants them, and return its report.

        Without `iterations` those of the analysis are taken.
        """
        analyse = cache(analyse)
        if self.wants_iterations:
            found = analyse().iterations if iterations is None else iterations()
            table = found.select(ITERATION_ROWS.names()).cast(ITERATION_ROWS)
            self.give(ITERATION_HOOK.batches, table.iter_slices(self.batch_rows))
        if self.wants_analysis:
            self.call("on_analysis", analyse())
        return self.report()

    def report(self) -> Report:
        """Return the tool's report on what it was given."""
        return _check_report(self.tool, self.call("report"))


def run(
    tool: Tool, traces: Trace | Sequence[Trace], *, counts: Sequence[int] = (), stream: tuple[int, int] | None = None
) -> Report:
    """Run a tool over the ranks of one job, and return its report.

    Ranks are numbered as in `deepprof.read_job`; each process of a trace of several is one. `counts` and
    `stream` are those of `deepprof.analyze`, for tools that take iterations or the analysis; for others nothing is
    analysed. Raises `ToolError` for what the tool raises, and where its report is none.
    """
    ranks = number_ranks(split_all((traces,) if isinstance(traces, Trace) else traces))

    def analyse() -> Analysis:
        from deepprof.analysis import analyze

        return analyze(ranks, counts=counts, stream=stream)

    going = ToolRun(tool)
    for trace in ranks:
        going.feed(trace)
    return going.conclude(analyse)


def overrides(tool: Tool, *methods: str) -> bool:
    """Return whether the tool's class has one of its own methods."""
    return any(getattr(type(tool), method) is not getattr(Tool, method) for method in methods)


def _check_report(tool: Tool, report: object) -> Report:
    """Return a tool's report, numpy's numbers as Python's; raises `ToolError` for what cannot be shown."""
    if not isinstance(report, Mapping):
        raise ToolError(f"tool {tool.name}: report returned {type(report).__name__}, not values by name")
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in report.items()}
    for name, value in plain.items():
        if not isinstance(name, str) or not isinstance(value, VALUES):
            named = f"{escaped(repr(name))[:60]} of its report is {type(value).__name__}"
            raise ToolError(f"tool {tool.name}: {named}, not a table, a number or a text")
    return plain
