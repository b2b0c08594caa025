"""HTTP for scrapes and probes, in a thread and an event loop of its own.

There is no thread per connection: a client that sends or reads nothing costs a descriptor and no thread, so that
neither it nor a long scrape delays a probe. Every answer closes its connection. Of too many connections the one that
has waited longest for its request is closed first; the limit fits the number of descriptors that a daemon may have.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import suppress

from deepprof.collectors.errors import UsageError
from deepprof.live.service.exporter.endpoints import ExporterPages, Look
from deepprof.live.service.exporter.exposition import SERIES_CAP, TTL_S, Exposition
from deepprof.live.service.exporter.http_messages import HEAD_NBYTES, HttpAnswer, RefusedRequestError, read_request, say
from deepprof.live.service.exporter.settings import ExporterSettings

__all__ = ["Exporter", "serve_metrics"]

CONNECTIONS = 64
PIECE_NBYTES = 1 << 16  # written at a time, so that the whole answer is not copied into a buffer for a slow reader
LINGER_S, LINGER_NBYTES = 1.0, 1 << 16  # for the rest of a refused request: closing before it would lose the answer
MAX_PORT = 65_535
CLOSING_S = 5.0
CLOSING_TURNS = 5  # of the loop, until sockets just accepted are connections, and cut connections are closed

log = logging.getLogger(__name__)


def serve_metrics(
    address: tuple[str, int],
    look: Look,
    *,
    ttl_s: float = TTL_S,
    series_cap: int = SERIES_CAP,
    settings: ExporterSettings | None = None,
) -> Exporter:
    """Serve `/metrics`, `/healthz` and `/readyz` at host and port (0: any) until closed.

    `look` is called from threads of the exporter, two at most at a time; it should only copy. `ttl_s` and `series_cap`
    are as in `Exposition`. Raises `UsageError` where the address cannot be bound or prometheus_client is missing. The
    caller decides whether other machines may connect: only `settings.authorize` restricts which clients that reach the
    address can read metrics.
    """
    settings = settings or ExporterSettings()
    pages = ExporterPages(look, Exposition(ttl_s=ttl_s, series_cap=series_cap), settings)
    return Exporter(open_socket(address), pages, settings)


def open_socket(address: tuple[str, int]) -> socket.socket:
    """Return a listening socket at the address, which no other process may use."""
    host, port = address
    if not 0 <= port <= MAX_PORT:
        raise UsageError(f"cannot serve metrics at port {port}; choose another one, up to {MAX_PORT}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise UsageError(f"cannot serve metrics at {host}:{port}: {error}; choose another address") from error


class HttpConnections:
    """The open connections, oldest first, and whether their request is still awaited."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._awaited: dict[asyncio.StreamWriter, bool] = {}

    def add(self, writer: asyncio.StreamWriter) -> None:
        """Add a connection; if there are too many, cut the oldest without a request, else the oldest."""
        if len(self._awaited) >= self.limit:
            oldest = next((one for one, awaited in self._awaited.items() if awaited), next(iter(self._awaited)))
            self.cut(oldest)
        self._awaited[writer] = True

    def asked(self, writer: asyncio.StreamWriter) -> None:
        """Note that the connection's request has come."""
        if writer in self._awaited:
            self._awaited[writer] = False

    def cut(self, writer: asyncio.StreamWriter) -> None:
        """Close a connection, even if it has not read its answer."""
        self.release(writer)
        writer.transport.abort()

    def cut_all(self) -> None:
        """Close all connections."""
        for writer in [*self._awaited]:
            self.cut(writer)

    def release(self, writer: asyncio.StreamWriter) -> None:
        """Forget a connection that closes by itself."""
        self._awaited.pop(writer, None)


class Exporter:
    """A running server of metrics; `address` is where it listens."""

    def __init__(self, listening: socket.socket, pages: ExporterPages, settings: ExporterSettings) -> None:
        self.address: tuple[str, int] = listening.getsockname()[:2]
        self._listening, self._pages, self._settings = listening, pages, settings
        self._connections = HttpConnections(CONNECTIONS)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(
            target=settings.vitals.guard("the exporter", self._run), name="deepprof-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening and cut the open connections; may be called more than once."""
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(CLOSING_S)
        self._pages.close()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._talk, sock=self._listening, limit=HEAD_NBYTES, ssl=self._settings.tls)
        await self._stop.wait()
        # The server is closed last: else a connection that it was just accepting would be forgotten and stay open.
        self._loop.remove_reader(self._listening)
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)
            self._connections.cut_all()
        server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection; clients may leave at any time."""
        self._connections.add(writer)
        try:
            await self._answer(reader, writer)
            writer.close()
            self._connections.release(writer)
        except (OSError, EOFError):  # TimeoutError is an OSError
            self._connections.cut(writer)
        except asyncio.CancelledError:  # the exporter is closing
            self._connections.cut(writer)
        except Exception:
            log.exception("the exporter could not answer")
            self._connections.cut(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await read_request(reader, self._settings.request_s)
            self._connections.asked(writer)
            await self._pages.answer(request, lambda answer: self._send(writer, answer, request.method == "GET"))
        except RefusedRequestError as refusal:
            await self._send(writer, refusal.answer)
            await linger(reader, writer)
        except (OSError, EOFError):  # caused by the client, also if it is too slow
            raise
        except Exception:
            log.exception("the exporter could not answer")
            await self._send(writer, say(500, "this is a bug of DeepProf; its log says more"))

    async def _send(self, writer: asyncio.StreamWriter, answer: HttpAnswer, body: bool = True) -> None:
        """Write an answer and wait until the client has taken it, for `answer_s` at most."""
        writer.transport.set_write_buffer_limits(high=0)  # so that drain() waits for the last byte
        async with asyncio.timeout(self._settings.answer_s):
            writer.write(answer.head)
            for begin in range(0, len(answer.body) if body else 0, PIECE_NBYTES):
                writer.write(answer.body[begin : begin + PIECE_NBYTES])
                await writer.drain()
            await writer.drain()


async def linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read and drop some of the data that a refused client still sends, so that it gets to read the answer."""
    if writer.can_write_eof():
        writer.write_eof()
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            for _ in range(LINGER_NBYTES // HEAD_NBYTES):
                if not await reader.read(HEAD_NBYTES):
                    break
