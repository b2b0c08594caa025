"""Owners of directories and of sockets' peers: what other users may change is not used."""

from __future__ import annotations

import os
import socket
import stat
import struct
from pathlib import Path

ROOT = 0
OTHERS = stat.S_IWGRP | stat.S_IWOTH
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of SO_PEERCRED


def find_fault(found: os.stat_result, path: Path, what: str) -> tuple[str, str] | None:
    """Return the fault of the directory `path` of the `what`, and what to do; None where no other user may write to it.

    It must belong to us or to root, and no other user may write to it. Its parents may be open, as /tmp is.
    """
    if found.st_uid not in {ROOT, os.geteuid()}:
        return "belongs to another user", f"choose a directory of your own for the {what}"
    if found.st_mode & OTHERS:
        return (
            f"others can write to the {what}'s directory",
            f"take that away (chmod go-w {path}) or choose another one",
        )
    return None


def find_peer(connection: socket.socket) -> tuple[int, int]:
    """Return pid and user id of the peer process of a Unix socket, as the kernel reports them. Raises `OSError`."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, user, _ = CREDENTIALS.unpack(raw)
    return pid, user


def is_trusted(connection: socket.socket, path: Path) -> bool:
    """Return whether the listener at the socket `path` is trusted: our user, root, or a user whom root gave the place.

    Root gave it where only that user can write to the directory and its parent is root's, as with /run/deepprof of the
    system agent. `connection.c` of the injected library has the same rule. Raises `OSError`.
    """
    _, user = find_peer(connection)
    return user in {ROOT, os.geteuid()} or (
        _is_of(path.parent.lstat(), user) and _is_of((path.parent / "..").stat(), ROOT)
    )


def _is_of(found: os.stat_result, user: int) -> bool:
    """Return whether a directory belongs to a user and no other may write to it; False for a link."""
    return found.st_uid == user and not found.st_mode & OTHERS
