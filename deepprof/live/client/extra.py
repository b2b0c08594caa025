"""The optional libraries that client and daemon need."""

from __future__ import annotations

import os

from deepprof.collectors.errors import UsageError
from deepprof.libraries import is_installed

INSTALL = 'pip install "deepprof[service]"'
NEEDED = {"grpc": "grpcio", "google.protobuf": "protobuf"}
# What the daemon itself needs besides these, by the package that is imported.
OF_THE_DAEMON = {
    **{"grpc_health": "grpcio-health-checking", "grpc_reflection": "grpcio-reflection"},
    **{"google": "protobuf", "prometheus_client": "prometheus-client"},
    **{"starlette": "starlette", "anyio": "starlette", "uvicorn": "uvicorn", "h11": "uvicorn"},
}


def require_grpc() -> None:
    """Raise `UsageError` with the command that installs what is missing; call it before anything imports gRPC.

    gRPC's own log is switched off unless GRPC_VERBOSITY sets it: DeepProf writes one line to stderr.
    """
    missing = [name for module, name in NEEDED.items() if not is_installed(module)]
    if missing:
        raise UsageError(f"talking to a daemon needs {' and '.join(missing)}; {INSTALL}")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def explain_missing(error: ImportError) -> UsageError:
    """Return the error for a library that the daemon could not import; raises `error` itself for an unknown library."""
    package = (error.name or "").partition(".")[0]
    known = {**NEEDED, **OF_THE_DAEMON}
    if package not in known:
        raise error
    return UsageError(f"the daemon needs {known[package]}; {INSTALL}")
