"""The datagram socket to which Kineto sends its requests."""

from __future__ import annotations

import contextlib
import os
import socket

from deepprof.collectors.errors import UsageError

NAME = "dynolog"  # the name that Kineto sends to, in KINETO_IPC_SOCKET_DIR or as an abstract name
PATH_NBYTES = 107  # the system's limit


def find_address(directory: str | None, *, abstract: bool = False) -> str:
    """Return the address: in the directory of KINETO_IPC_SOCKET_DIR, or the abstract name if `abstract`.

    Raises `UsageError` if neither is given: the whole machine shares the abstract name, and a dynolog may own it.
    """
    if abstract:
        return f"\0{NAME}"
    if not directory:
        raise UsageError("no directory for Kineto's socket; set KINETO_IPC_SOCKET_DIR here and in the job")
    address = os.path.join(os.path.abspath(directory), NAME)
    if len(os.fsencode(address)) > PATH_NBYTES:
        raise UsageError(f"{address}: too long for a socket; name a shorter KINETO_IPC_SOCKET_DIR")
    return address


def open_datagrams(address: str) -> socket.socket:
    """Return the bound socket; only its owner may write to one with a path. Raises `UsageError`."""
    endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        if not address.startswith("\0"):
            _make_way(address)
        endpoint.bind(address)
        if not address.startswith("\0"):
            os.chmod(address, 0o600)
    except OSError as error:
        endpoint.close()
        taken = "a dynolog or another agent has it; stop that one, or name another KINETO_IPC_SOCKET_DIR"
        said = taken if address.startswith("\0") else f"{error.strerror}; name another KINETO_IPC_SOCKET_DIR"
        raise UsageError(f"{address.replace(chr(0), '@')}: cannot listen there: {said}") from error
    except UsageError:
        endpoint.close()
        raise
    return endpoint


def _make_way(address: str) -> None:
    """Make the directory, and remove a socket there at which no process listens. Raises `UsageError`, `OSError`."""
    os.makedirs(os.path.dirname(address), mode=0o700, exist_ok=True)
    if not os.path.lexists(address):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            os.unlink(address)
            return
    raise UsageError(f"{address}: a dynolog or another agent listens there; stop it, or use another directory")


def close_datagrams(endpoint: socket.socket, address: str) -> None:
    """Close the socket, and remove its path."""
    endpoint.close()
    if not address.startswith("\0"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address)
