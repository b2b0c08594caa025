"""`deepprof.connect`: connects to a daemon from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepprof.live.client.extra import require_grpc

if TYPE_CHECKING:
    from deepprof.live.client.daemon import Daemon


def connect(  # noqa: PLR0913 - where it is, and what is shown there
    address: str | None = None,
    *,
    token_file: str | None = None,
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    timeout_s: float = 30.0,
) -> Daemon:
    """Return the daemon at `address` (`unix:PATH` or `HOST:PORT`), to be used in a `with` statement.

    Without an address it is the one in DEEPPROF_DAEMON, else the one on this machine. `token_file` contains the token,
    `ca` the certificates that authenticate the daemon over TLS; `cert` and `key` are the client's own. Files left out
    come from DEEPPROF_TOKEN_FILE, DEEPPROF_CA, DEEPPROF_CERT and DEEPPROF_KEY. `timeout_s` limits every query.

    Nothing is sent before the first query, which raises `DaemonError` when no daemon answers. Raises `UsageError` for
    an invalid address or invalid files, and where gRPC is not installed.
    """
    require_grpc()
    from deepprof.live.client.credentials import Credentials
    from deepprof.live.client.daemon import Daemon
    from deepprof.live.client.endpoint import find_endpoint

    return Daemon(find_endpoint(address, Credentials(token_file, ca, cert, key)), timeout_s)
