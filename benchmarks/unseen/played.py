"""What happened when a program was played, row by row, on the clock of the machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.unseen.steps import MAIN_STREAM

__all__ = ["DeviceRow", "HostRow", "Played", "RangeRow"]


@dataclass(slots=True)
class DeviceRow:
    """Work on a device."""

    start: int
    end: int
    device: int
    stream: int
    activity: str
    name: str
    correlation: int
    external: int | None
    nbytes: int | None = None
    direction: str | None = None
    node: int | None = None

    @property
    def part(self) -> str:
        """What the device does meanwhile."""
        if self.activity == "memcpy":
            return "copying"
        return "communicating" if self.name.startswith(("nccl", "rccl")) else "computing"


@dataclass(slots=True)
class HostRow:
    """An operator, a call, a frame or a system call."""

    start: int
    end: int
    thread: int
    category: str
    name: str
    correlation: int | None = None
    external: int | None = None


@dataclass(slots=True)
class RangeRow:
    """A range; `framework` for those that a framework writes itself."""

    start: int
    end: int
    thread: int
    name: str
    framework: bool = False


@dataclass
class Played:
    """All rows of one process; `marks` are the numbers of the device rows and the times at which iterations begin.

    `clocks` has the host's time before each step. `late` are processes that began after the others.
    """

    device: list[DeviceRow] = field(default_factory=list)
    waits: list[DeviceRow] = field(default_factory=list)
    host: list[HostRow] = field(default_factory=list)
    ranges: list[RangeRow] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)
    late: bool = False

    def bounds(self) -> tuple[int, int]:
        """Return when the first thing began and when the last one ended."""
        rows: list[DeviceRow | HostRow | RangeRow] = [*self.device, *self.host, *self.ranges, *self.waits]
        return min(row.start for row in rows), max(row.end for row in rows)

    def starts(self) -> list[int]:
        """Return when each iteration began: its first work on the main stream, or the host's where there is none."""
        if not self.device:
            return [at for _, at in self.marks]
        found = (self.first_from(number) for number, _ in self.marks)
        return [start for start in found if start is not None]

    def first_from(self, number: int) -> int | None:
        """Return when the first work of the main stream began that was launched as that number or later."""
        rows = (self.device[place] for place in range(number, len(self.device)))
        return next((row.start for row in rows if row.stream == MAIN_STREAM), None)
