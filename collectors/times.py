"""Limits of the times in a trace, shared by importers, clocks, store and wire."""

from __future__ import annotations

EARLIEST_UNIX_NS = 10**17  # 1973: no clock that counts from a machine's start comes so far, and no trace is older
TIME_LIMIT_NS = 4 * 10**18  # the year 2096: keeps every difference of two times inside int64
