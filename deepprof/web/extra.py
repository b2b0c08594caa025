"""The optional libraries of the page's server."""

from __future__ import annotations

from deepprof.collectors.errors import UsageError
from deepprof.libraries import is_installed

NEEDED = ("starlette", "uvicorn")


def require_server() -> None:
    """Raise `UsageError` with the command that installs what is missing; call it before anything imports a server."""
    missing = [name for name in NEEDED if not is_installed(name)]
    if missing:
        raise UsageError(f'the page\'s server needs {" and ".join(missing)}; pip install "deepprof[view]"')
