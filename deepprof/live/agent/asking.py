"""Asks the agent of this node for its status, over the socket that jobs use."""

from __future__ import annotations

import socket
import time
from enum import Enum
from pathlib import Path

import numpy as np

from deepprof.collectors.live.packets import HEAD, MAGIC, PAYLOAD_NBYTES, Kind
from deepprof.live.agent.answers import AgentStatus, read_answer
from deepprof.ownership import is_trusted

# An agent that takes records from many jobs answers within a fraction of a second, unless the machine is overloaded.
PATIENCE_S = 10.0


class NoAnswerReason(Enum):
    """Why no agent answered."""

    ABSENT = "no agent listens there"
    FORBIDDEN = "the socket may not be used by this user"
    STRANGER = "it is another user's agent, and not the system's"
    SILENT = "the agent does not answer"
    FOREIGN = "what listens there is no agent of this release"
    LEFT = "the agent is about to end"


class NotAnsweredError(Exception):
    """No agent answered; `why` is the reason, the text adds the detail."""

    def __init__(self, why: NoAnswerReason, detail: str = "") -> None:
        self.why = why
        super().__init__(f"{why.value} ({detail})" if detail else why.value)


def ask(path: Path, patience_s: float = PATIENCE_S) -> AgentStatus:
    """Return the status of the agent at the socket `path` within `patience_s`. Raises `NotAnsweredError`."""
    lease, answer = sit(path, patience_s)
    lease.close()
    return answer


def sit(path: Path, patience_s: float = PATIENCE_S) -> tuple[socket.socket, AgentStatus]:
    """Do as `ask`, and return the connection too: an agent does not end by itself while it is open."""
    endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        endpoint.settimeout(patience_s)
        connect(endpoint, path)
        answer = _converse(endpoint, time.monotonic() + patience_s)
        endpoint.setblocking(False)  # with a timeout a read would wait, and time out instead of finding nothing
        return endpoint, answer
    except NotAnsweredError:
        endpoint.close()
        raise


def is_held(lease: socket.socket) -> bool:
    """Whether the agent is still at the other end; it sends nothing unasked."""
    try:
        return bool(lease.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _converse(endpoint: socket.socket, until_s: float) -> AgentStatus:
    """Return the answer over an open connection. Raises `NotAnsweredError`."""
    try:
        endpoint.sendall(np.array((MAGIC, Kind.ASK, 0, 0, 0), HEAD).tobytes())
        payload = _receive_answer(endpoint, until_s)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise NotAnsweredError(NoAnswerReason.LEFT) from error
    except OSError as error:
        raise NotAnsweredError(NoAnswerReason.SILENT) from error
    try:
        return read_answer(payload)
    except ValueError as error:
        raise NotAnsweredError(NoAnswerReason.FOREIGN, str(error)) from error


def is_there(path: Path) -> bool:
    """Whether a process listens at `path`; nothing is asked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as endpoint:
        endpoint.settimeout(PATIENCE_S)
        try:
            connect(endpoint, path)
        except NotAnsweredError as error:
            return error.why in {NoAnswerReason.SILENT, NoAnswerReason.STRANGER}
    return True


def connect(endpoint: socket.socket, path: Path) -> None:
    """Connect to the socket at `path`. Raises `NotAnsweredError`."""
    try:
        endpoint.connect(str(path))
        is_known = is_trusted(endpoint, path)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as error:
        raise NotAnsweredError(NoAnswerReason.ABSENT) from error
    except PermissionError as error:
        raise NotAnsweredError(NoAnswerReason.FORBIDDEN) from error
    except (TimeoutError, BlockingIOError) as error:  # the latter while many others wait to be accepted
        raise NotAnsweredError(NoAnswerReason.SILENT) from error
    except (OSError, ValueError) as error:  # a path that is too long, or has a NUL in it
        raise NotAnsweredError(NoAnswerReason.ABSENT, str(error)) from error
    if not is_known:
        raise NotAnsweredError(NoAnswerReason.STRANGER)


def _receive_answer(endpoint: socket.socket, until_s: float) -> bytes:
    """Return the payload of ANSWER. Raises `NotAnsweredError`, OSError."""
    magic, kind, zero, nbytes, more = np.frombuffer(_receive(endpoint, HEAD.itemsize, until_s), HEAD)[0].item()
    if magic != MAGIC or kind != Kind.ANSWER or zero or more or nbytes > PAYLOAD_NBYTES:
        raise NotAnsweredError(NoAnswerReason.FOREIGN)
    return _receive(endpoint, nbytes, until_s)


def _receive(endpoint: socket.socket, nbytes: int, until_s: float) -> bytes:
    """Return `nbytes` bytes. Raises `NotAnsweredError`, OSError."""
    got = bytearray()
    while len(got) < nbytes:
        endpoint.settimeout(max(0.001, until_s - time.monotonic()))
        piece = endpoint.recv(min(nbytes - len(got), 1 << 16))
        if not piece:
            raise NotAnsweredError(NoAnswerReason.LEFT)
        got += piece
        if time.monotonic() > until_s:
            raise NotAnsweredError(NoAnswerReason.SILENT)
    return bytes(got)
