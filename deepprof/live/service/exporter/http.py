"""`/metrics`, `/healthz` (no part has failed) and `/readyz` (ready, or why not) over HTTP, in an event loop of its own.

There is no thread per connection: a client that sends or reads nothing costs a descriptor and no thread, so that
neither it nor a long scrape delays a probe. Every answer closes its connection. Of too many connections the one that
has waited longest for its request is closed first; the limit fits the number of descriptors that a daemon may have.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from deepprof.collectors.errors import UsageError
from deepprof.live.process.supervision import FirstFailure
from deepprof.live.service.exporter.exposition import SERIES_CAP, TTL_S, Exposition, measure_process
from deepprof.live.service.exporter.snapshot import DaemonSnapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CONNECTIONS = 64
SCRAPES = 4  # at a time: each holds its text, 5 MB with 1,000 ranks
HEAD_NBYTES = 8192  # of a request; Prometheus sends about 300
PIECE_NBYTES = 1 << 16  # written at a time, so that the whole answer is not copied into a buffer for a slow reader
LINGER_S, LINGER_NBYTES = 1.0, 1 << 16  # for the rest of a refused request: closing before it would lose the answer
MAX_PORT = 65_535
CLOSING_S = 5.0
CLOSING_TURNS = 5  # of the loop, until sockets just accepted are connections, and cut connections are closed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterSettings:
    """Settings of the exporter; times in seconds.

    `vitals` holds the daemon's failure if it has one, and a failure of the exporter.
    """

    request_s: float = 10.0  # until a request has come
    ready_s: float = 2.0  # until there is a snapshot of the daemon
    answer_s: float = 15.0  # until an answer has been read; Prometheus waits 10 s for a scrape
    vitals: FirstFailure = field(default_factory=FirstFailure)


@dataclass(frozen=True, slots=True)
class _HttpAnswer:
    """An answer; `extra` are whole header lines."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    extra: tuple[str, ...] = ()

    @property
    def head(self) -> bytes:
        """The status line and headers."""
        lines = (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
            *self.extra,
        )
        return "\r\n".join((*lines, "", "")).encode()


def _say(status: int, text: str, *extra: str) -> _HttpAnswer:
    """Return an answer of one line."""
    return _HttpAnswer(status, f"{text}\n".encode(errors="backslashreplace"), extra=extra)


class _RefusedRequestError(Exception):
    """A refused request, whose client gets `answer`; it may not have been read to its end."""

    def __init__(self, status: int, text: str, *extra: str) -> None:
        super().__init__(status)
        self.answer = _say(status, text, *extra)


@dataclass(frozen=True, slots=True)
class _HttpRequest:
    """The parts of a request that are used."""

    method: str
    path: str


def _open_socket(address: tuple[str, int]) -> socket.socket:
    """Return a listening socket at the address, which no other process may use."""
    host, port = address
    if not 0 <= port <= MAX_PORT:
        raise UsageError(f"cannot serve metrics at port {port}; choose another one, up to {MAX_PORT}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise UsageError(f"cannot serve metrics at {host}:{port}: {error}; choose another address") from error


class Exporter:
    """Serves `/metrics`, `/healthz` and `/readyz` at host and port (0: any) until closed; `address` is the bound one.

    `look` is called from threads of the exporter, two at most at a time; it should only copy. `ttl_s` and `series_cap`
    are as in `Exposition`. Raises `UsageError` where the address cannot be bound or prometheus_client is missing. The
    caller decides whether other machines may connect: every client that reaches the address can read metrics.
    """

    def __init__(
        self,
        address: tuple[str, int],
        look: Callable[[], DaemonSnapshot],
        *,
        ttl_s: float = TTL_S,
        series_cap: int = SERIES_CAP,
        settings: ExporterSettings | None = None,
    ) -> None:
        self._look, self._settings = look, settings or ExporterSettings()
        self._exposition, self._process = Exposition(ttl_s=ttl_s, series_cap=series_cap), measure_process()
        self._listening = _open_socket(address)
        self.address: tuple[str, int] = self._listening.getsockname()[:2]
        # A thread each: a scrape waits for other scrapes, but a probe does not wait for scrapes.
        self._scraper = ThreadPoolExecutor(1, "deepprof-scrape")
        self._prober = ThreadPoolExecutor(1, "deepprof-probe")
        self._slots = SCRAPES
        self._awaited: dict[asyncio.StreamWriter, bool] = {}  # open connections, oldest first: is a request awaited?
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(
            target=self._settings.vitals.guard("the exporter", self._run), name="deepprof-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening and cut the open connections; may be called more than once."""
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(CLOSING_S)
        for pool in (self._scraper, self._prober):
            pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._talk, sock=self._listening, limit=HEAD_NBYTES)
        await self._stop.wait()
        # The server is closed last: else a connection that it was just accepting would be forgotten and stay open.
        self._loop.remove_reader(self._listening)
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)
            for writer in self._awaited:
                writer.transport.abort()
        server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection; clients may leave at any time."""
        self._admit(writer)
        try:
            await self._answer(reader, writer)
            writer.close()
        except (OSError, EOFError, asyncio.CancelledError):  # the client left or is too slow, or the exporter closes
            writer.transport.abort()
        except Exception:
            log.exception("the exporter could not answer")
            writer.transport.abort()
        finally:
            self._awaited.pop(writer, None)

    def _admit(self, writer: asyncio.StreamWriter) -> None:
        """Note a connection; if there are too many, cut the oldest without a request, else the oldest."""
        if len(self._awaited) >= CONNECTIONS:
            oldest = max(self._awaited, key=self._awaited.__getitem__)  # the first of equals
            del self._awaited[oldest]
            oldest.transport.abort()
        self._awaited[writer] = True

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read_request(reader, self._settings.request_s)
            if writer in self._awaited:
                self._awaited[writer] = False
            if request.path == "/metrics":
                await self._scrape(request, writer)
            else:
                await self._send(writer, await self._probe(request.path), request.method)
        except _RefusedRequestError as refusal:
            await self._send(writer, refusal.answer)
            await _linger(reader, writer)
        except (OSError, EOFError):  # caused by the client, also if it is too slow
            raise
        except Exception:
            log.exception("the exporter could not answer")
            await self._send(writer, _say(500, "this is a bug of DeepProf; its log says more"))

    async def _scrape(self, request: _HttpRequest, writer: asyncio.StreamWriter) -> None:
        if not self._slots:
            busy = _say(503, f"{SCRAPES} scrapes are being read already", "Retry-After: 1")
            return await self._send(writer, busy, request.method)
        self._slots -= 1
        try:
            body = await self._loop.run_in_executor(self._scraper, self._render)
            await self._send(writer, _HttpAnswer(200, body, CONTENT_TYPE), request.method)
        finally:
            self._slots += 1
        return None

    def _render(self) -> bytes:
        return self._exposition.render(self._observe()).encode() + self._process()

    def _observe(self) -> DaemonSnapshot:
        """Return a snapshot; errors become `RuntimeError`, so that none is taken for the connection's or a timeout."""
        try:
            return self._look()
        except Exception as error:
            raise RuntimeError("no snapshot of the daemon could be made") from error

    async def _probe(self, path: str) -> _HttpAnswer:
        """Return the answer of another path than `/metrics`."""
        if path == "/healthz":
            return _say(503, problem) if (problem := self._settings.vitals.problem) else _say(200, "alive")
        if path != "/readyz":
            return _say(404, "there are /metrics, /healthz and /readyz")
        looking = self._loop.run_in_executor(self._prober, self._observe)
        try:
            snapshot = await asyncio.wait_for(looking, self._settings.ready_s)
        except TimeoutError:
            return _say(503, f"the daemon did not say within {self._settings.ready_s:g} s how it is")
        return _say(200, "ready") if snapshot.ready else _say(503, snapshot.why_not or "not ready")

    async def _send(self, writer: asyncio.StreamWriter, answer: _HttpAnswer, method: str = "GET") -> None:
        """Write an answer and wait until the client has taken it, for `answer_s` at most."""
        writer.transport.set_write_buffer_limits(high=0)  # so that drain() waits for the last byte
        async with asyncio.timeout(self._settings.answer_s):
            writer.write(answer.head)
            for begin in range(0, len(answer.body) if method == "GET" else 0, PIECE_NBYTES):
                writer.write(answer.body[begin : begin + PIECE_NBYTES])
                await writer.drain()
            await writer.drain()


async def _read_request(reader: asyncio.StreamReader, timeout_s: float) -> _HttpRequest:
    """Return the request whose head comes within `timeout_s` seconds, or raise a `_RefusedRequestError`.

    The reader's own limit bounds the head. A client that leaves raises `asyncio.IncompleteReadError`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            head = await reader.readuntil(b"\r\n\r\n")
    except TimeoutError:
        raise _RefusedRequestError(408, f"no request within {timeout_s:g} s") from None
    except asyncio.LimitOverrunError:
        raise _RefusedRequestError(431, f"more than {HEAD_NBYTES} bytes of headers") from None
    return _parse_head(head.decode("latin-1"))


def _parse_head(head: str) -> _HttpRequest:
    """Return the request that a head describes."""
    words = head.partition("\r\n")[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _RefusedRequestError(400, "this is no request of HTTP/1")
    method, target, _ = words
    if method not in ("GET", "HEAD"):
        raise _RefusedRequestError(405, "only GET and HEAD", "Allow: GET, HEAD")
    return _HttpRequest(method, target.split("?", 1)[0])


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read and drop some of the data that a refused client still sends, so that it gets to read the answer."""
    if writer.can_write_eof():
        writer.write_eof()
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            for _ in range(LINGER_NBYTES // HEAD_NBYTES):
                if not await reader.read(HEAD_NBYTES):
                    break
