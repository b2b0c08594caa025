"""Model FLOP utilisation of running jobs, where the configuration states what an iteration of their model computes.

The shapes of operators are not sent to the daemon, so that it cannot know that itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepprof.live.service.views import RankView

ENTRY = re.compile(r"(?P<job>[^=\s]+)=(?P<flop>[\d.]+(?:e\+?\d+)?)/(?P<peak>[\d.]+(?:e\+?\d+)?)", re.ASCII)
NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class ModelFlops:
    """What an iteration of the jobs of a pattern takes on one device at its peak, in nanoseconds."""

    jobs: str
    ideal_ns: float


def read_model_flops(text: str) -> ModelFlops | None:
    """Return an entry such as `llama-*=3.1e15/989e12`: jobs, FLOP of an iteration on a device, and FLOP/s of its peak.

    None for anything else.
    """
    found = ENTRY.fullmatch(text)
    try:
        flop, peak = (float(found[name]) for name in ("flop", "peak")) if found else (0.0, 0.0)
    except ValueError:
        return None
    if found is None or not 0 < flop < 1e30 or not 0 < peak < 1e30:
        return None
    return ModelFlops(found["job"], flop / peak * NS_PER_S)


def read_all(texts: Iterable[str]) -> tuple[ModelFlops, ...]:
    """Return the entries that can be read."""
    return tuple(each for text in texts if (each := read_model_flops(text)) is not None)


def add_ideal(view: RankView, known: Sequence[ModelFlops]) -> RankView:
    """Return a rank with the shortest time of its iterations, if the first entry with its job states it."""
    ideal_ns = next((each.ideal_ns for each in known if fnmatchcase(view.job, each.jobs)), None)
    return view if ideal_ns is None else replace(view, ideal_iteration_ns=ideal_ns)
