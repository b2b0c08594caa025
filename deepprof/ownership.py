"""Whose a directory is, and who is at the other end of a socket: what other users may change is not used."""

from __future__ import annotations

import os
import socket
import stat
import struct
from pathlib import Path

__all__ = ["find_fault", "find_peer", "is_trusted"]

ROOT = 0
OTHERS = stat.S_IWGRP | stat.S_IWOTH
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid of SO_PEERCRED


def find_fault(found: os.stat_result, path: Path, what: str) -> tuple[str, str] | None:
    """Return what is wrong with the directory `path` of our `what`, and what to do; None where it is for us alone.

    It must belong to us or to root, and nobody else may write to it. Those above it may be open, as /tmp is.
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
    """Return pid and user of who is at the other end of a Unix socket, as the kernel says. Raises `OSError`."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, user, _ = CREDENTIALS.unpack(raw)
    return pid, user


def is_trusted(connection: socket.socket, path: Path) -> bool:
    """Whether who listens at the socket `path` may hear of us: one of ours, root's, or one to whom root gave the place.

    Root gave it where the directory is theirs alone and lies in one of root's: as /run/deepprof is the system agent's.
    `connection.c` of the injected library has the same rule. Raises `OSError`.
    """
    _, user = find_peer(connection)
    return user in {ROOT, os.geteuid()} or (
        is_of(path.parent.lstat(), user) and is_of((path.parent / "..").stat(), ROOT)
    )


def is_of(found: os.stat_result, user: int) -> bool:
    """Whether a directory belongs to a user, and no other may write to it; a link may be anybody's."""
    return found.st_uid == user and not found.st_mode & OTHERS
