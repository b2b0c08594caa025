"""What the client needs beyond DeepProf's own libraries."""

from __future__ import annotations

import os
from importlib.util import find_spec

from deepprof.collectors.errors import UsageError

__all__ = ["INSTALL", "require_grpc"]

INSTALL = 'pip install "deepprof[service]"'
NEEDED = {"grpc": "gRPC", "google.protobuf": "protobuf"}


def require_grpc() -> None:
    """Raise `UsageError` with the line that installs what is missing; call it before anything imports gRPC.

    gRPC's own log goes to stderr, where DeepProf says one line: it is off unless GRPC_VERBOSITY asks for it.
    """
    missing = [name for module, name in NEEDED.items() if not is_there(module)]
    if missing:
        raise UsageError(f"a daemon is talked to with {' and '.join(missing)}, which is not installed; {INSTALL}")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def is_there(module: str) -> bool:
    """Return whether `module` can be imported, without importing it (its parents are)."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
