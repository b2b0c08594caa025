"""Who the call under way comes from, for whoever serves it: set at the door, and gone with the call."""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["CALLER"]

CALLER: ContextVar[str] = ContextVar("caller", default="")  # the name of the caller's grant; "": not known
