"""The base class of tools: its methods are the hooks, its fields the options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

from deepprof.collectors.errors import DeepProfError, EndRequest
from deepprof.collectors.plugins import FAILURES, describe_error
from deepprof.tools.hooks import read_rows

if TYPE_CHECKING:
    import polars as pl

    from deepprof.analysis import Analysis

Report = Mapping[str, "pl.DataFrame | int | float | str | None"]
Result = TypeVar("Result")
WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")  # where a new word of a class's name begins


class ToolError(DeepProfError):
    """A tool that cannot be run, raised an exception or returned no report; the message names it."""


def guard(tool: str, doing: str, work: Callable[[], Result]) -> Result:
    """Return the result of work in a tool's code; raises `ToolError` for what it raises, but for Ctrl-C and signals."""
    try:
        return work()
    except (DeepProfError, EndRequest):
        raise
    except FAILURES as error:
        raise ToolError(f"tool {tool}: {doing} {describe_error(error)}") from error


class Tool(msgspec.Struct, kw_only=True, dict=True, forbid_unknown_fields=True):
    """A measurement of your own. Override the hooks whose records you need, and `report`.

    Fields with a type are the tool's options, which `deepprof tool NAME PATH -- --option value` sets; what `begin` or
    a hook sets besides is the tool's state. A hook gets frames of some 100,000 rows with the columns of the record
    table, `rank`, and `name` (null where the record has none), each record once. Of files they are sorted by time
    within a rank, one rank after the other. Of a running job each frame is sorted and ranks take turns; a record that
    arrives when later ones of its rank were given already comes after them. How the records are cut into frames, and
    which of two hooks is called first, is not defined. A hook that is not overridden costs nothing. Instead of
    `on_kernels` a tool may override `on_kernel`, which gets one row at a time with the columns as attributes; it is
    some twenty times slower. The same holds for the other hooks.

    `name` is the class's name in small letters with hyphens, unless the class sets another one. `details` is that of
    `deepprof.read`: whether traces are read with operands, launch shapes and call stacks, for `on_analysis`.
    """

    name: ClassVar[str] = "tool"
    details: ClassVar[bool | None] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in cls.__dict__:
            cls.name = WORD.sub("-", cls.__name__).lower()

    def begin(self) -> None:
        """Prepare the tool's state; called once, before everything else."""

    def on_kernels(self, frame: pl.DataFrame) -> None:
        """Take kernels, and graphs that were recorded as one event: rows of `DEVICE_EVENTS`."""
        for event in read_rows(frame):
            self.on_kernel(event)

    def on_kernel(self, event: Any) -> None:
        """Take one kernel."""

    def on_copies(self, frame: pl.DataFrame) -> None:
        """Take copies and memsets: rows of `DEVICE_EVENTS`."""
        for event in read_rows(frame):
            self.on_copy(event)

    def on_copy(self, event: Any) -> None:
        """Take one copy or memset."""

    def on_synchronisations(self, frame: pl.DataFrame) -> None:
        """Take waits of the host for a device, a stream or an event: rows of `DEVICE_EVENTS`."""
        for event in read_rows(frame):
            self.on_synchronisation(event)

    def on_synchronisation(self, event: Any) -> None:
        """Take one wait."""

    def on_memory(self, frame: pl.DataFrame) -> None:
        """Take allocations and releases of memory: rows of `MEMORY_EVENTS`."""
        for event in read_rows(frame):
            self.on_memory_event(event)

    def on_memory_event(self, event: Any) -> None:
        """Take one allocation or release."""

    def on_operators(self, frame: pl.DataFrame) -> None:
        """Take operators of the framework: rows of `HOST_EVENTS`."""
        for event in read_rows(frame):
            self.on_operator(event)

    def on_operator(self, event: Any) -> None:
        """Take one operator."""

    def on_calls(self, frame: pl.DataFrame) -> None:
        """Take calls of the driver and its runtime (CUDA, HIP): rows of `HOST_EVENTS`."""
        for event in read_rows(frame):
            self.on_call(event)

    def on_call(self, event: Any) -> None:
        """Take one call."""

    def on_ranges(self, frame: pl.DataFrame) -> None:
        """Take ranges and marks that the user or the framework wrote: rows of `ANNOTATIONS`."""
        for event in read_rows(frame):
            self.on_range(event)

    def on_range(self, event: Any) -> None:
        """Take one range."""

    def on_iterations(self, frame: pl.DataFrame) -> None:
        """Take iterations, once all else was read: `rank`, `device`, `stream`, `loop` and the columns of `ITERATIONS`.

        `loop` numbers the loops of the whole analysis; in a running job those of a device. The iterations of a running
        job are those that the daemon has found.
        """
        for event in read_rows(frame):
            self.on_iteration(event)

    def on_iteration(self, event: Any) -> None:
        """Take one iteration."""

    def on_analysis(self, analysis: Analysis) -> None:
        """Take the analysis of all that was read (in a running job: of what the daemon keeps), once, at the end."""

    def report(self) -> Report:
        """Return what was found, by name: tables, numbers and texts."""
        raise NotImplementedError
