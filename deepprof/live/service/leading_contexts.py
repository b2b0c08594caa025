"""The lines of code that take most of a rank's time: few, and the same for long, so that each can be a series.

A line comes in where it takes clearly more than the least of those that are in, and then stays: lines that take about
the same do not change places with every minute. A line's time counts where the line is at that moment, in a series of
its own or in the one of all others: the counters together have all of the time, each once. A line that comes back
begins at 0, which Prometheus takes for a restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from deepprof.live.client.values import ContextFigures, LeadingFigures

CLEARLY = 1.5  # times the weight of the least one: what a line must have to come in
KEPT = 0.5  # of a weight, from one minute to the next
CANDIDATES = 4  # times as many as are shown: lines whose weights are known
LONGEST_NAME = 200  # characters
LEFT_OUT = "…"


@dataclass(slots=True)
class _LeadingLine:
    """A line that is in: its counters, and what it took in the latest window."""

    host_ns: int = 0
    device_ns: int = 0
    latest_host_ns: int = 0
    latest_device_ns: int = 0


@dataclass(slots=True)
class LeadingContexts:
    """The leading lines of one rank, `most` of them."""

    most: int
    lines: dict[str, _LeadingLine] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    other: _LeadingLine = field(default_factory=_LeadingLine)
    window_ns: int = 0

    def add(self, taken: pl.DataFrame, window_ns: int) -> None:
        """Add what lines took (`metrics.contexts.lines.LINES`) in the next window."""
        rows = [(_shorten(line), host, device) for line, host, device in taken.iter_rows()]
        totals = max(1, sum(row[1] for row in rows)), max(1, sum(row[2] for row in rows))
        self._weigh({line: max(host / totals[0], device / totals[1]) for line, host, device in rows})
        self._choose()
        self.window_ns = window_ns
        for each in (self.other, *self.lines.values()):
            each.latest_host_ns = each.latest_device_ns = 0
        for line, host, device in rows:
            to = self.lines.get(line, self.other)
            to.host_ns, to.device_ns = to.host_ns + host, to.device_ns + device
            to.latest_host_ns, to.latest_device_ns = to.latest_host_ns + host, to.latest_device_ns + device

    def show(self) -> LeadingFigures:
        """Return the figures of the lines, those with most of the latest window first."""
        lines = sorted(self.lines.items(), key=lambda item: (-self.weights.get(item[0], 0.0), item[0]))
        return LeadingFigures(tuple(_figures(*each) for each in lines), _figures("", self.other), self.window_ns)

    def _weigh(self, shares: Mapping[str, float]) -> None:
        """Note the shares of lines; of too many those with the largest weights are known."""
        lines = self.weights.keys() | shares.keys()
        weights = {line: KEPT * self.weights.get(line, 0.0) + shares.get(line, 0.0) for line in lines}
        order = sorted(weights, key=lambda line: (line not in self.lines, -weights[line], line))
        self.weights = {line: weights[line] for line in order[: CANDIDATES * self.most]}

    def _choose(self) -> None:
        """Let lines in, where there is room or one that is in has clearly less."""
        outside = sorted((line for line in self.weights if line not in self.lines), key=self.weights.__getitem__)
        while outside:
            line = outside.pop()
            if len(self.lines) >= self.most:
                least = min(self.lines, key=lambda each: self.weights.get(each, 0.0))
                if self.weights[line] <= CLEARLY * self.weights.get(least, 0.0):
                    return
                del self.lines[least]  # what it takes from now on is the others'
            self.lines[line] = _LeadingLine()


def _figures(line: str, taken: _LeadingLine) -> ContextFigures:
    """Return the figures of a line."""
    return ContextFigures(line, taken.host_ns, taken.device_ns, taken.latest_host_ns, taken.latest_device_ns)


def _shorten(line: str) -> str:
    """Return a name of bounded length, of which the end says most."""
    return line if len(line) <= LONGEST_NAME else LEFT_OUT + line[-(LONGEST_NAME - len(LEFT_OUT)) :]
