"""What each figure of the source code may be at most, and what it was when this began to be measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

LIMITS = Path(__file__).with_name("limits.json")


@dataclass(frozen=True)
class Limit:
    """What a figure was at first, and the most that it may be."""

    began: int
    limit: int


def read_limits() -> dict[str, Limit]:
    """Return the limits by figure."""
    return {name: Limit(**each) for name, each in json.loads(LIMITS.read_text()).items()}


def find_raised(figures: dict[str, int], limits: dict[str, Limit]) -> list[str]:
    """Return a line on every figure that is above its limit."""
    above = [name for name, limit in limits.items() if figures[name] > limit.limit]
    return [
        f"{name}: {figures[name]:,}, at most {limits[name].limit:,}; take something away (make house)" for name in above
    ]
