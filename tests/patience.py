"""How long a test waits for what must come, before it states that it hangs: no test is about the machine's speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["PATIENCE_S", "UNHURRIED", "answer"]

T = TypeVar("T")

PATIENCE_S = 300.0

# The same of a job that collects, in its environment: for the agent's first answer, and for its last records.
UNHURRIED = {"DEEPPROF_EARLY_MS": "60000", "DEEPPROF_FINISH_MS": "60000"}


def answer(ask: Callable[[], T]) -> T | None:
    """Return what `ask` states: nothing while the list whose last or first it asks about is empty."""
    try:
        return ask()
    except IndexError:
        return None
