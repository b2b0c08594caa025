"""A connection of the HTTP server: uvicorn's, with the deadlines and bounds that uvicorn leaves out.

uvicorn waits for a request's head as long as the client likes, for a reader as long as it does not read, and beyond
`limit_concurrency` it refuses those who come and keeps those who are silent. Here a connection has one request, which
must come in time, and an answer, which must be read in time; of too many connections the oldest is cut that has not
asked yet, so that a probe is answered whoever else contains connections.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import h11
from msgspec import Struct, field
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope

HEAD_PIECE_NBYTES = 1024  # of a head that are parsed at a time; h11 examines its size only between two of them
LINGER_S, LINGER_NBYTES = 1.0, 1 << 16  # for the rest of a refused request: closing before it would lose the answer
STREAM = b"text/event-stream"
REFUSALS = {400: "this is no request of HTTP/1", 501: "this transfer encoding is not known"}

log = logging.getLogger(__name__)


class ConnectionLimits(Struct, frozen=True, kw_only=True):
    """What a server bears of its clients; times in seconds.

    `answer_s` is for all of an answer, and of a stream of events for what waits to be read.
    """

    connections: int = 64
    head_nbytes: int = 8192  # of a request; Prometheus sends about 300, a browser about 1000
    request_s: float = 10.0  # until a request has come
    answer_s: float = 15.0  # until an answer has been read; Prometheus waits 10 s for a scrape


class OpenConnections(Struct):
    """The open connections of one server, oldest first: is the request still awaited?"""

    limits: ConnectionLimits
    awaited: dict[BoundedConnection, bool] = field(default_factory=dict)

    def admit(self, connection: BoundedConnection) -> None:
        """Note a connection; if there are too many, cut the oldest without a request, else the oldest."""
        if len(self.awaited) >= self.limits.connections:
            oldest = max(self.awaited, key=self.awaited.__getitem__)  # the first of equals
            del self.awaited[oldest]
            oldest.shutdown()
        self.awaited[connection] = True

    def note_request(self, connection: BoundedConnection) -> None:
        """Note that a connection's request has come."""
        if connection in self.awaited:
            self.awaited[connection] = False

    def cut(self) -> None:
        """Cut all connections."""
        for connection in list(self.awaited):
            connection.shutdown()


class BoundedConnection(H11Protocol):
    """A connection with one request and its answer; made by uvicorn for every client."""

    def __init__(self, *, opened: OpenConnections, **given: Any) -> None:
        super().__init__(**given)
        self._opened, self._limits = opened, opened.limits
        self._served, self.app = self.app, self._serve
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._refused = self._streams = False
        self._dropped_nbytes = 0

    # -- called by the transport --

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Await a request, for `request_s` at most."""
        super().connection_made(transport)
        self._opened.admit(self)
        self._set_deadline(self._limits.request_s, self._tell_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._opened.awaited.pop(self, None)
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a piece of the request, and drop what comes after it was refused."""
        while data and not self._refused:
            size = len(data) if self._is_asked else HEAD_PIECE_NBYTES
            super().data_received(data[:size])
            data = data[size:]
            if self._is_asked:
                self._note_request()
        self._dropped_nbytes += len(data)
        if self._dropped_nbytes > LINGER_NBYTES:
            self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether to stay open: who states that nothing more is asked may still wait for the answer."""
        return self._is_asked and not self._streams

    def pause_writing(self) -> None:
        """Cut the client if it does not read on."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self._limits.answer_s, self.shutdown)

    def resume_writing(self) -> None:
        """Go on with a client that reads."""
        if self._stalled is not None:
            self._stalled.cancel()
        super().resume_writing()

    # -- called by uvicorn --

    def shutdown(self) -> None:
        """Cut the connection, whatever it is doing."""
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse what h11 has just refused, with the status that it names."""
        error = sys.exception()
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        too_long = f"more than {self._limits.head_nbytes} bytes of headers"
        self._refuse(status, too_long if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE else REFUSALS[status])

    # -- its own --

    @property
    def _is_asked(self) -> bool:
        return bool(self.cycle)

    def _note_request(self) -> None:
        """Stop waiting for a request, once it is there."""
        if self._opened.awaited.get(self, False):
            self._opened.note_request(self)
            self._clear_deadline()

    async def _serve(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Run the app; what it raises is in the log. Who leaves, or is cut when the server closes, is no error."""

        async def answer(message: ASGISendEvent) -> None:
            if message["type"] == "http.response.start":
                self._begin_answer(dict(message["headers"]))
            elif message["type"] == "http.response.body" and not message.get("more_body") and self.cycle.more_body:
                await send({**message, "more_body": True})
                await _linger(receive)
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            if self.transport.is_closing():
                await asyncio.sleep(0)  # until uvicorn hears of it, and no longer writes
            await send(message)

        with suppress(asyncio.CancelledError):
            try:
                await self._served(scope, receive, answer)
            except Exception:
                log.exception("the server could not answer")

    def _begin_answer(self, headers: dict[bytes, bytes]) -> None:
        """Limit the time in which an answer is read; a stream ends when no one reads it."""
        self._streams = headers.get(b"content-type", b"").startswith(STREAM)
        if not self._streams:
            self._set_deadline(self._limits.answer_s, self.shutdown)

    def _tell_late(self) -> None:
        self._refuse(408, f"no request within {self._limits.request_s:g} s")

    def _refuse(self, status: int, text: str) -> None:
        """Answer what is no request, and read some of what its client still sends, so that it gets the answer."""
        if self._refused or self._is_asked:  # the body of a request that is being answered
            return self.shutdown()
        self._refused, body = True, f"{text}\n".encode()
        headers = [*self.server_state.default_headers, (b"content-type", b"text/plain; charset=utf-8")]
        headers.append((b"content-length", str(len(body)).encode()))
        response = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode())
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._set_deadline(LINGER_S, self.transport.close)
        return None

    def _set_deadline(self, seconds: float, work: Callable[[], None]) -> None:
        self._clear_deadline()
        self._deadline = self.loop.call_later(seconds, work)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()


async def _linger(receive: ASGIReceiveCallable) -> None:
    """Read and drop some of a body that no one wants, so that its client gets to read the answer."""
    nbytes = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while nbytes < LINGER_NBYTES:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body"):
                    return
                nbytes += len(message.get("body", b""))
