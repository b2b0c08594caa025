"""The endpoint of a daemon: its address, the credentials for it, and gRPC channels to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc

from deepprof.collectors.errors import UsageError
from deepprof.live.client.credentials import (
    Credentials,
    check_secrecy,
    choose_credentials,
    read_certificate,
    read_token,
)
from deepprof.live.wire.addresses import DaemonAddress, default_address, parse_address

Metadata = tuple[tuple[str, str], ...]
DAEMON = "DEEPPROF_DAEMON"
MESSAGE_NBYTES = 64 << 20  # of an answer: more than a page of iterations or a batch of records
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_NBYTES),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel connects anew, independently of the former one
)
DIRECT = ("grpc.enable_http_proxy", 0)  # a connection within this machine does not go through a proxy


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A daemon's address and the credentials for it. Any number of channels can be made from it."""

    address: DaemonAddress
    credentials: Credentials = field(default_factory=Credentials)

    def open(self) -> grpc.Channel:
        """Return a new channel, which connects with the first call. Raises `UsageError` for unusable files."""
        tls = self.tls()
        if tls is None:
            return grpc.insecure_channel(self.address.target, self.options)
        return grpc.secure_channel(self.address.target, tls, self.options)

    def metadata(self) -> Metadata:
        """Return the metadata of every call: the token, as its file contains it now. Raises `UsageError`."""
        file = self.credentials.token_file
        return () if file is None else (("authorization", f"Bearer {read_token(file)}"),)

    def tls(self) -> grpc.ChannelCredentials | None:
        """Return the TLS credentials of the connection, None for one without TLS, such as a unix socket."""
        if self.address.is_unix or not self.credentials.is_tls:
            return None
        files = self.credentials
        pair = read_certificate(files.key), read_certificate(files.cert)
        return grpc.ssl_channel_credentials(read_certificate(files.ca), *pair)

    @property
    def options(self) -> tuple[tuple[str, int], ...]:
        """The gRPC options of every channel."""
        return (*OPTIONS, DIRECT) if self.address.is_local else OPTIONS


def find_endpoint(
    address: str | None = None, credentials: Credentials | None = None, environ: Mapping[str, str] | None = None
) -> Endpoint:
    """Return the endpoint of the daemon at `address`, else that of DEEPPROF_DAEMON, else the one on this machine.

    Raises `UsageError` for an invalid address or invalid credentials.
    """
    variables = os.environ if environ is None else environ
    text = address or variables.get(DAEMON)
    where = parse_address(text) if text else _find_default(variables)
    if not where.is_unix and not where.port:
        raise UsageError(f"address {where} has port 0, on which nothing listens; name the daemon's own")
    chosen = choose_credentials(credentials or Credentials(), variables)
    check_secrecy(chosen, where)
    return Endpoint(where, chosen)


def _find_default(variables: Mapping[str, str]) -> DaemonAddress:
    """Return the socket of the user's own daemon, or that of the machine's daemon where only that exists."""
    own = default_address(variables)
    shared = default_address({name: value for name, value in variables.items() if name != "XDG_RUNTIME_DIR"})
    return shared if not _exists(own) and _exists(shared) else own


def _exists(address: DaemonAddress) -> bool:
    """Return whether `address` is a unix socket whose file exists."""
    return address.path is not None and os.path.exists(address.path)
