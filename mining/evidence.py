"""What may be known besides the symbols: times, copies and host ranges, all as arrays along the sequence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

Value = TypeVar("Value", bound=np.generic)
Trust = Literal["step", "loop", "framework", "range", "part"]

DRAWN_STEP = "step"  # the name, without its number, of the steps that XLA's profiler draws on a device
UPDATE = "Optimizer.step#"  # how the name of PyTorch's own range around one update of the weights begins


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Host ranges of one name: `positions[j]` is the first symbol launched after the j-th of them began (or ended).

    `trust` states their origin and purpose: `step` is a user's step marker, `loop` a range that the framework writes
    once per iteration or micro-batch (loading a batch, the optimizer's step), `framework` any other range of the
    framework, `range` any other range of the user, `part` one that is named like a layer. `coverage` is the share of
    the time from the first to the last range that they fill, `ends[j]` the first symbol launched after the j-th of them
    ended, where that is known. `telling` ranks the framework's ranges by how often an iteration was seen to begin
    there.
    """

    name: str
    trust: Trust
    positions: npt.NDArray[np.int64]
    coverage: float = 0.0
    ends: npt.NDArray[np.int64] | None = None
    telling: float = 0.0

    @property
    def marks_steps(self) -> bool:
        """Whether each range is a step, as the user or a framework's profiler sees it."""
        return self.trust == "step" or (self.trust == "framework" and self.name == DRAWN_STEP)

    @property
    def is_update(self) -> bool:
        """Whether each range is one update of the weights."""
        return self.trust == "loop" and self.name.startswith(UPDATE)

    def between(self, first: int, end: int) -> Family:
        """Return the ranges that reach into the symbols [first, end), counted from `first` (one may begin before)."""
        reach = self.positions + 1 if self.ends is None else self.ends
        inside = (reach > first) & (self.positions <= end)
        ends = None if self.ends is None else self.ends[inside] - first
        return Family(self.name, self.trust, self.positions[inside] - first, self.coverage, ends, self.telling)


def short(name: str) -> str:
    """Return a range's name cut to what fits into a sentence."""
    return name if len(name) <= 40 else name[:39].rstrip() + "…"


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Optional arrays of length n along the symbols, and host ranges; all of it may be missing.

    `gaps` is idle device time before each symbol, `launch_gaps` host time before its launch (any unit, both ≥ 0),
    `durations` how long the device works on it, in the unit of `gaps`, less what others did at the same time,
    `copies` marks symbols that follow a copy from or to the host, `syncs` those launched after the host had waited for
    the device, `graphs` those that are a whole graph launch. `optimizer` marks symbol values (not positions) whose
    names look like an optimizer's, `updates` the places of a window where they are. `start` is the first symbol that
    was launched while the capture ran: profilers are switched on between iterations, but the device may still be busy
    with the iteration before.
    """

    gaps: npt.NDArray[np.float64] | None = None
    launch_gaps: npt.NDArray[np.float64] | None = None
    copies: npt.NDArray[np.bool_] | None = None
    syncs: npt.NDArray[np.bool_] | None = None
    graphs: npt.NDArray[np.bool_] | None = None
    optimizer: npt.NDArray[np.bool_] | None = None
    families: tuple[Family, ...] = field(default=())
    start: int = 0
    length: int = 0  # of the sequence or window; set by `find_loop`
    opens: bool = True  # the first symbol is the capture's first, not the first of a window or after a gap
    closes: bool = True  # the last symbol is the capture's last
    updates: npt.NDArray[np.bool_] | None = None  # set by `search`
    breaks: tuple[int, ...] = ()  # ascending: symbols before which others are missing
    durations: npt.NDArray[np.float64] | None = None

    @property
    def update_ranges(self) -> npt.NDArray[np.int64]:
        """The positions, ascending, of the framework's ranges around updates of the weights."""
        known = [family.positions for family in self.families if family.is_update]
        return np.unique(np.concatenate(known)) if known else np.empty(0, np.int64)

    def check(self, length: int, alphabet: int) -> None:
        """Raise `ValueError` where the evidence does not fit `length` symbols, all below `alphabet`."""
        for name in ("gaps", "launch_gaps", "durations", "copies", "syncs", "graphs"):
            values = getattr(self, name)
            if values is not None and values.shape != (length,):
                raise ValueError(
                    f"evidence `{name}` must have one entry per symbol, {length}, not shape {values.shape}"
                )
        if list(self.breaks) != sorted(set(self.breaks)) or not all(0 < at < length for at in self.breaks):
            raise ValueError(f"`breaks` must ascend within the {length} symbols")
        for name in ("gaps", "launch_gaps", "durations"):
            values = getattr(self, name)
            if values is not None and not np.isfinite(values).all():
                raise ValueError(f"evidence `{name}` must be finite: it holds NaN or infinity")
        if self.optimizer is not None and len(self.optimizer) < alphabet:
            raise ValueError(f"`optimizer` must have an entry per symbol value, {alphabet}, not {len(self.optimizer)}")
        for family in self.families:
            if family.positions.dtype.kind not in "iu" or family.positions.ndim != 1:
                raise ValueError(f"positions of the family {short(family.name)!r} must be one-dimensional integers")
            if family.ends is not None and family.ends.shape != family.positions.shape:
                raise ValueError(f"the family {short(family.name)!r} must have as many ends as positions")

    def between(self, first: int, end: int) -> Evidence:
        """Return the same evidence on the symbols [first, end) only, counted from `first`."""

        def cut(values: npt.NDArray[Value] | None) -> npt.NDArray[Value] | None:
            return None if values is None else values[first:end]

        return Evidence(
            cut(self.gaps),
            cut(self.launch_gaps),
            cut(self.copies),
            cut(self.syncs),
            cut(self.graphs),
            self.optimizer,
            tuple(family.between(first, end) for family in self.families),
            max(0, self.start - first),
            end - first,
            self.opens and first == 0,
            self.closes and end == (self.length or end),
            breaks=tuple(at - first for at in self.breaks if first < at < end),
            durations=cut(self.durations),
        )
