"""The version of DeepProf."""

from __future__ import annotations


def read_version() -> str:
    """Return the installed version, or `unknown` in a tree that was never installed."""
    # importlib.metadata costs 20 ms, and only reports and --version need it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("deepprof")
    except PackageNotFoundError:
        return "unknown"
