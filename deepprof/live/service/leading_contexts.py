"""The lines of code that use most of a rank's time: few, and the same for long, so that each can be a series.

A line comes in where it needs clearly more than the least of those that are in, and then stays: lines that use about
the same do not change places with every minute. A line's time counts where the line is at that moment, in its own
series or in the one of all others: the counters together have all of the time, each once. A line that comes back begins
at 0, which Prometheus takes for a restart. After some times as many lines as lead at a time no new ones come in: a
program that makes up names has few series, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from deepprof.live.wire.figures import ContextFigures, LeadingFigures

CLEARLY = 1.5  # times the weight of the least one: what a line must have to come in
KEPT = 0.5  # of a weight, from one minute to the next
CANDIDATES = 4  # times as many as are shown: lines whose weights are known
OTHER_CONTEXTS = "(other)"  # what all others are called as a series
LONGEST_NAME = 200  # characters
LEFT_OUT = "…"
MOST_EVER = 8  # times as many as are shown: lines that may lead one after the other, so that series stay few for ever
LARGEST_NS = 1 << 56  # of a counter, two years: a message adds some of them up


@dataclass(slots=True)
class _LeadingLine:
    """A line that is in: its counters, and what it needed in the latest window."""

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
    ever: set[str] = field(default_factory=set)  # that were in at any time
    other: _LeadingLine = field(default_factory=_LeadingLine)
    window_ns: int = 0

    def add(self, taken: pl.DataFrame, window_ns: int) -> None:
        """Add what lines took (`metrics.contexts.lines.LINES`) in the next window."""
        rows = [(_name(line), host, device) for line, host, device in taken.iter_rows()]
        totals = max(1, sum(row[1] for row in rows)), max(1, sum(row[2] for row in rows))
        self._weigh({line: max(host / totals[0], device / totals[1]) for line, host, device in rows})
        self._choose()
        self.window_ns = window_ns
        for each in (self.other, *self.lines.values()):
            each.latest_host_ns = each.latest_device_ns = 0
        for line, host, device in rows:
            to = self.lines.get(line, self.other)
            to.host_ns, to.device_ns = _add(to.host_ns, host), _add(to.device_ns, device)
            to.latest_host_ns = _add(to.latest_host_ns, host)
            to.latest_device_ns = _add(to.latest_device_ns, device)

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
            if line not in self.ever and len(self.ever) >= MOST_EVER * self.most:
                continue
            if len(self.lines) >= self.most:
                least = min(self.lines, key=lambda each: self.weights.get(each, 0.0))
                if self.weights[line] <= CLEARLY * self.weights.get(least, 0.0):
                    return
                del self.lines[least]  # what it takes from now on is the others'
            self.lines[line] = _LeadingLine()
            self.ever.add(line)


def _add(before_ns: int, more_ns: int) -> int:
    """Return the sum of two times, at most the largest one."""
    return min(LARGEST_NS, before_ns + max(0, more_ns))


def _figures(line: str, taken: _LeadingLine) -> ContextFigures:
    return ContextFigures(line, taken.host_ns, taken.device_ns, taken.latest_host_ns, taken.latest_device_ns)


def _name(line: str) -> str:
    """Return a name of bounded length, of which the end states most; none is that of all others."""
    if line == OTHER_CONTEXTS:
        return f"{line} "
    return line if len(line) <= LONGEST_NAME else LEFT_OUT + line[-(LONGEST_NAME - len(LEFT_OUT)) :]
