"""Datagrams of a process under KINETO_USE_DAEMON=1 and the answers to them; every length in them is checked."""

from __future__ import annotations

import struct
from dataclasses import dataclass

HEAD = struct.Struct("<Q32s")  # bytes that follow, kind
CONTEXT = struct.Struct("<iiq")  # device, pid, job
REQUEST = struct.Struct("<iiq")  # purpose, number of pids, job
PID = struct.Struct("<i")
DATAGRAM_NBYTES = 8192
MOST_PIDS = 256  # a process and its ancestors
ACTIVITIES = 2  # bit of a request's purpose: a trace can begin
REGISTER, ASK = b"ctxt", b"req"


class MessageError(Exception):
    """A datagram that no Kineto writes."""


@dataclass(frozen=True, slots=True)
class ProcessRegistration:
    """A process registers itself."""

    pid: int


@dataclass(frozen=True, slots=True)
class ConfigurationRequest:
    """A process requests a configuration. `ready`: it could begin a trace, and none is under way."""

    pid: int
    ready: bool


def read_message(data: bytes) -> ProcessRegistration | ConfigurationRequest | None:
    """Return the message in a datagram, None for a kind that does not concern us. Raises `MessageError`."""
    if len(data) < HEAD.size:
        raise MessageError("a datagram without a head")
    nbytes, kind = HEAD.unpack_from(data)
    payload = data[HEAD.size :]
    if nbytes != len(payload):
        raise MessageError(f"a datagram of {len(payload)} bytes that claims {nbytes}")
    match kind.split(b"\0")[0]:
        case b"ctxt":
            return _read_context(payload)
        case b"req":
            return _read_request(payload)
    return None


def _read_context(payload: bytes) -> ProcessRegistration:
    """Return a registration. Raises `MessageError`."""
    if len(payload) != CONTEXT.size:
        raise MessageError(f"a registration of {len(payload)} bytes")
    return ProcessRegistration(_checked(CONTEXT.unpack(payload)[1]))


def _read_request(payload: bytes) -> ConfigurationRequest:
    """Return a request; of its pids the first is the asker's own, its ancestors follow. Raises `MessageError`."""
    if len(payload) < REQUEST.size + PID.size:
        raise MessageError(f"a request of {len(payload)} bytes")
    purpose, pids, _ = REQUEST.unpack_from(payload)
    if not 0 < pids <= MOST_PIDS or len(payload) != REQUEST.size + pids * PID.size:
        raise MessageError(f"a request of {len(payload)} bytes that claims {pids} processes")
    return ConfigurationRequest(_checked(PID.unpack_from(payload, REQUEST.size)[0]), bool(purpose & ACTIVITIES))


def _checked(pid: int) -> int:
    """Return `pid` if it can be a process id. Raises `MessageError`."""
    if pid <= 0:
        raise MessageError(f"process {pid}")
    return pid


def make_answer(text: str = "") -> bytes:
    """Return the answer to a request: a configuration, or none for now."""
    payload = text.encode()
    return HEAD.pack(len(payload), ASK) + payload


def make_count(processes: int) -> bytes:
    """Return the answer to a registration."""
    return HEAD.pack(PID.size, REGISTER) + PID.pack(min(processes, 2**31 - 1))
