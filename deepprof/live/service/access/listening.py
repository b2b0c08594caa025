"""Opening the daemon's addresses: the credentials they need are checked before, and two daemons never share one."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from deepprof.collectors.errors import UsageError
from deepprof.live.service.access.certificates import make_credentials
from deepprof.live.service.access.exposure import check_exposure, resolve
from deepprof.live.service.access.sockets import allow_group, claim, private_files
from deepprof.live.service.config.default_paths import listen_addresses
from deepprof.live.service.config.sections import Config
from deepprof.live.wire.addresses import DaemonAddress

if TYPE_CHECKING:
    import grpc
    from grpc import aio

log = logging.getLogger(__name__)

ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}  # `localhost` names ::1 on machines without IPv6 too


@dataclass(slots=True)
class ListeningServer:
    """The addresses where the server listens, as clients write them. `close` it after the server has stopped."""

    addresses: list[str] = field(default_factory=list)
    locks: list[int] = field(default_factory=list)

    def close(self) -> None:
        """Let another daemon listen at the sockets' paths."""
        while self.locks:
            os.close(self.locks.pop())


def open_ports(server: aio.Server, config: Config) -> ListeningServer:
    """Bind `server`, not yet started, to every address of the configuration.

    Raises `UsageError` for an address that is taken, that cannot be bound, or that other hosts can reach without
    credentials. All names are looked up and checked before the first is bound.
    """
    places = [(address, () if address.is_unix else resolve(address)) for address in listen_addresses(config)]
    exposed = [address for address, ips in places if check_exposure(address, ips, config)]
    credentials = make_credentials(config.tls) if config.tls.cert else None
    for address in exposed:
        log.warning("listening-insecure", extra={"address": str(address)})
    listening = ListeningServer()
    try:
        for address, ips in places:
            if address.is_unix:
                listening.addresses.append(_open_socket(server, address, config, listening))
            else:
                listening.addresses.append(_bind_host(server, address, ips, credentials))
    except BaseException:
        listening.close()
        raise
    return listening


def _open_socket(server: aio.Server, address: DaemonAddress, config: Config, listening: ListeningServer) -> str:
    """Bind a Unix socket at which no other process listens, and return its address."""
    listening.locks.append(claim(Path(address.path or ""), config.listen.socket_group))
    _bind_socket(server, address, config)
    return str(address)


def _bind_socket(server: aio.Server, address: DaemonAddress, config: Config) -> None:
    """Bind a Unix socket that only the users named in the configuration can connect to."""
    path = Path(address.path or "")
    try:
        with private_files():
            server.add_insecure_port(address.target)
        allow_group(path, int(config.listen.socket_mode, 8), config.listen.socket_group)
    except (RuntimeError, OSError) as error:
        raise UsageError(f"{address}: cannot listen there; choose another path (--listen)") from error


def _bind_host(
    server: aio.Server, address: DaemonAddress, ips: Iterable[str], credentials: grpc.ServerCredentials | None
) -> str:
    port, bound = address.port, 0
    for ip in ips:
        one = DaemonAddress(host=ip, port=port)
        problem = _why_not(one)
        if problem in ABSENT:
            continue
        try:
            port = server.add_secure_port(str(one), credentials) if credentials else server.add_insecure_port(str(one))
        except RuntimeError as error:
            raise UsageError(_say_why(one, problem)) from error
        bound += 1
    if not bound:
        raise UsageError(_say_why(address, errno.EADDRNOTAVAIL))
    return str(DaemonAddress(host=address.host, port=port))


def _why_not(address: DaemonAddress) -> int:
    """Return the system's error number for binding an IP address, 0 where that works. gRPC does not report it."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0


def _say_why(address: DaemonAddress, problem: int) -> str:
    if problem in {0, errno.EADDRINUSE}:
        return f"{address}: another program listens there; stop it or choose another address (--listen)"
    return f"{address}: {os.strerror(problem)}; choose another address (--listen)"
