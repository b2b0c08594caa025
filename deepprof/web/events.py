"""A stream of events to open pages (Server-Sent Events): what has changed is written once for all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from secrets import token_hex

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from deepprof.web.answers import say
from deepprof.web.connection import STREAM

STREAMS = 16  # at a time
INTERVAL_S = 1.0  # between two looks at what is shown
PING_S = 15.0  # of silence, after which a line is sent that keeps proxies from closing
RETRY_MS = 2000  # after which a page asks again that has lost its stream
PING = b": ping\n\n"

log = logging.getLogger(__name__)


class EventFeed:
    """Observes something while pages are open, and shows them what has changed; for one event loop.

    `observe` returns the data of every event, JSON without a line break. It is called every `interval_s` seconds, but
    not at all while no page is open.
    """

    def __init__(
        self,
        observe: Callable[[], Awaitable[Mapping[str, bytes]]],
        *,
        streams: int = STREAMS,
        interval_s: float = INTERVAL_S,
        ping_s: float = PING_S,
    ) -> None:
        self._observe, self._most, self._interval_s, self._ping_s = observe, streams, interval_s, ping_s
        self._open = self._number = 0
        self._data: dict[str, bytes] = {}
        self._frames: dict[str, tuple[int, bytes]] = {}  # by event: the number of its last change, and its text
        self._life = token_hex(4)  # of this feed: numbers of another one mean nothing here
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def answer(self, request: Request) -> Response:
        """Answer with the stream, or that there are too many."""
        if self._open >= self._most:
            return say(503, f"{self._most} pages are open already", {"Retry-After": "5"})
        if request.method == "HEAD":
            return Response(media_type=STREAM.decode())
        return _EventResponse(self, request.headers.get("last-event-id", ""))

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Count a page as open, and observe while any is."""
        self._open += 1
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._open -= 1
            if not self._open and self._watching is not None:
                self._watching.cancel()
                self._watching = None

    async def tell(self, last_id: str) -> AsyncIterator[bytes]:
        """Yield the events after the one with the id `last_id`: of every kind the last alone."""
        yield f"retry: {RETRY_MS}\n\n".encode()
        if self._open == 1:
            await self._look()
        seen = self._read_id(last_id)
        while True:
            changed = self._changed
            for number, text in sorted(self._frames.values()):
                if number > seen:
                    yield text
            seen = self._number
            try:
                async with asyncio.timeout(self._ping_s):
                    await changed.wait()
            except TimeoutError:
                yield PING

    def _read_id(self, last_id: str) -> int:
        """Return the number of the last event that a page has had, 0 where it had none of this feed."""
        life, _, number = last_id.partition("-")
        return int(number) if life == self._life and number.isdecimal() and len(number) < 20 else 0

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._look()
            except Exception:
                log.exception("the page could not be kept up to date")

    async def _look(self) -> None:
        """Observe, and note the events whose data have changed."""
        found = await self._observe()
        fresh = {event: data for event, data in found.items() if self._data.get(event) != data}
        self._data.update(fresh)
        for event, data in fresh.items():
            self._number += 1
            head = f"id: {self._life}-{self._number}\nevent: {event}\n"
            self._frames[event] = self._number, head.encode() + b"data: " + data + b"\n\n"
        if fresh:
            self._changed.set()
            self._changed = asyncio.Event()


class _EventResponse(Response):
    """The answer that is a stream of events."""

    def __init__(self, feed: EventFeed, last_id: str) -> None:
        super().__init__(media_type=STREAM.decode())
        self._feed, self._last_id = feed, last_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write events until the client leaves."""
        with self._feed.hold():
            stream = StreamingResponse(self._feed.tell(self._last_id), media_type=self.media_type)
            await stream(scope, receive, send)
