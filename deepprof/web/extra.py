"""The optional libraries of the page's server."""

from __future__ import annotations

from importlib.util import find_spec

from deepprof.collectors.errors import UsageError

NEEDED = ("starlette", "uvicorn")


def require_server() -> None:
    """Raise `UsageError` with the command that installs what is missing; call it before anything imports a server."""
    missing = [name for name in NEEDED if not _is_there(name)]
    if missing:
        raise UsageError(f'the page\'s server needs {" and ".join(missing)}; pip install "deepprof[view]"')


def _is_there(module: str) -> bool:
    """Return whether `module` can be imported, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
