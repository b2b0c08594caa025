"""The caller of the current call, for the code that serves it: set by the interceptor, and valid for that call only."""

from __future__ import annotations

from contextvars import ContextVar

CALLER: ContextVar[str] = ContextVar("caller", default="")  # the name of the caller's grant; "": unknown
