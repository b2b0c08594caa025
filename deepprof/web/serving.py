"""The HTTP server of all pages: uvicorn in a thread and an event loop of its own, on a socket that is already bound.

uvicorn takes no signals here (they belong to the main thread), prints nothing and sets up no log.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from deepprof.collectors.errors import UsageError
from deepprof.web.connection import HEAD_PIECE_NBYTES, BoundedConnection, ConnectionLimits, OpenConnections

MAX_PORT = 65_535
BACKLOG = 128
CLOSING_S = 5.0
CLOSING_TURNS = 5  # of the loop, until sockets just accepted are connections, and cut connections are closed
HEADERS = [  # of every answer; each closes its connection, so that no one waits for a client that only contains one
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Connection", "close"),
]

log = logging.getLogger(__name__)


def open_socket(address: tuple[str, int], what: str) -> socket.socket:
    """Return a listening socket at host and port (0: any), which no other process may use.

    `what` is served there. Raises `UsageError` where the address cannot be bound.
    """
    host, port = address
    if not 0 <= port <= MAX_PORT:
        raise UsageError(f"cannot serve {what} at port {port}; choose another one, up to {MAX_PORT}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise UsageError(f"cannot serve {what} at {host}:{port}: {error}; choose another address") from error


class _StoppableServer(uvicorn.Server):
    """uvicorn's server without its ten turns a second, and with an end that does not wait for clients."""

    def __init__(self, config: uvicorn.Config, opened: OpenConnections) -> None:
        super().__init__(config)
        self.opened, self.stopping = opened, asyncio.Event()

    async def main_loop(self) -> None:
        """Wait until the server is to stop."""
        await self.on_tick(0)  # sets the headers of all answers
        await self.stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cut all connections, then close the sockets.

        The server is closed last: else a connection that it was just accepting would be forgotten and stay open.
        """
        for listening in sockets or ():
            asyncio.get_running_loop().remove_reader(listening)
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)
            self.opened.cut()
        for task in self.server_state.tasks:
            task.cancel()
        await super().shutdown(sockets)


class PageServer:
    """Serves an ASGI app on a listening socket until closed; `address` is host and port.

    `failed` is called with what ends the server's thread before it is closed.
    """

    def __init__(
        self,
        app: ASGIApp,
        listening: socket.socket,
        *,
        limits: ConnectionLimits | None = None,
        failed: Callable[[BaseException], None],
        name: str = "deepprof-http",
    ) -> None:
        self.address: tuple[str, int] = listening.getsockname()[:2]
        self._listening, self._failed = listening, failed
        opened = OpenConnections(limits or ConnectionLimits())
        self._server = _StoppableServer(_configure(app, opened), opened)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and cut the open connections; may be called more than once."""
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._server.stopping.set)
        self._thread.join(CLOSING_S)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._server.serve([self._listening]))
        except BaseException as error:  # of any kind, because no other code sees it
            self._failed(error)


def _configure(app: ASGIApp, opened: OpenConnections) -> uvicorn.Config:
    """Return uvicorn's settings; all that the environment or a default could add is off."""
    connection = cast("type[asyncio.Protocol]", partial(BoundedConnection, opened=opened))
    switched_off: dict[str, Any] = {
        **{"ws": "none", "lifespan": "off", "log_config": None, "access_log": False},
        **{"proxy_headers": False, "server_header": False, "date_header": False},
    }
    return uvicorn.Config(
        app,
        http=connection,
        loop="asyncio",
        interface="asgi3",
        workers=1,
        backlog=BACKLOG,
        headers=HEADERS,
        log_level="error",  # of its own logger: clients cause the warnings, and get them as answers
        h11_max_incomplete_event_size=opened.limits.head_nbytes - HEAD_PIECE_NBYTES,
        timeout_graceful_shutdown=1,
        **switched_off,
    )
