"""One connection's stream of messages to a daemon; every failure is a `StreamBrokenError`.

It uses gRPC's threads, not `grpc.aio`: there a failed write hides the status that the daemon sent, and leftovers of one
event loop raise errors in the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import grpc
from grpc import StatusCode

from deepprof.live.client.endpoint import Endpoint
from deepprof.v1.ingest_pb2 import SendRequest, SendResponse
from deepprof.v1.ingest_pb2_grpc import IngestStub
from deepprof.v1.records_pb2 import Hello

CLOSING_S = 2.0  # that a daemon may take to close a stream that has ended
LATEST = SendRequest()  # placeholder in the queue for `latest`, a message of a kind of which only the newest counts


class StreamBrokenError(Exception):
    """The stream has ended too early, with the code and details of gRPC."""

    def __init__(self, code: StatusCode, details: str | None) -> None:
        super().__init__(code, details)
        self.status, self.said = code, details

    def code(self) -> StatusCode:
        """Return the status code."""
        return self.status

    def details(self) -> str | None:
        """Return the explanation that arrived with the code."""
        return self.said


class IngestStream:
    """A stream to the daemon behind `endpoint`, opened with `hello`; an answer that is due may take `silence_s`."""

    def __init__(self, endpoint: Endpoint, hello: Hello, silence_s: float) -> None:
        self.endpoint, self.hello, self.silence_s = endpoint, hello, silence_s
        self.requests: SimpleQueue[SendRequest | None] = SimpleQueue()
        self.answers: asyncio.Queue[SendResponse | StreamBrokenError] = asyncio.Queue()
        self.latest, self.latest_waits = LATEST, False

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        metadata = self.endpoint.metadata()
        self.channel = self.endpoint.open()
        self.write(SendRequest(hello=self.hello))
        try:
            self.call: Any = IngestStub(self.channel).Send(self.take(), metadata=metadata)
            self.thread = threading.Thread(target=self.listen, name="deepprof-answers", daemon=True)
            self.thread.start()
        except RuntimeError as error:  # the system has no thread now; it may have one later
            self.requests.put(None)
            self.channel.close()
            raise StreamBrokenError(StatusCode.UNAVAILABLE, str(error)) from error
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.call.cancel()
        self.requests.put(None)
        self.thread.join()
        self.channel.close()

    def write(self, request: SendRequest) -> None:
        """Queue a message to be written when the daemon is ready; `hear` raises the errors of the stream.

        All queued messages are in the window, which bounds them.
        """
        self.requests.put(request)

    def tell(self, request: SendRequest) -> None:
        """Queue a message of which only the latest counts: one that still waits is replaced."""
        self.latest = request  # first, so that the thread that takes the placeholder finds it
        if not self.latest_waits:
            self.latest_waits = True
            self.requests.put(LATEST)

    def take(self) -> Iterator[SendRequest]:
        """Yield the messages as the daemon accepts them; runs in a thread of gRPC."""
        for request in iter(self.requests.get, None):
            if request is LATEST:
                self.latest_waits = False
                yield self.latest
            else:
                yield request

    def listen(self) -> None:
        """Pass every answer to the event loop, at last how the stream ended; runs in its own thread."""
        try:
            for answer in self.call:
                self.loop.call_soon_threadsafe(self.answers.put_nowait, answer)
            ending = StreamBrokenError(StatusCode.UNAVAILABLE, "the stream was closed")
        except grpc.RpcError:
            ending = StreamBrokenError(self.call.code(), self.call.details())
        with contextlib.suppress(RuntimeError):  # the loop has ended: no task waits for it
            self.loop.call_soon_threadsafe(self.answers.put_nowait, ending)

    async def hear(self, is_due: Callable[[], bool]) -> SendResponse:
        """Return the daemon's next answer; raises `StreamBrokenError`, also where one is overdue by `silence_s`."""
        while True:
            due = is_due()
            try:
                async with asyncio.timeout(self.silence_s):
                    answer = await self.answers.get()
            except TimeoutError:
                if due and is_due():
                    raise StreamBrokenError(StatusCode.DEADLINE_EXCEEDED, "no answer") from None
                continue
            if isinstance(answer, StreamBrokenError):
                raise answer
            return answer

    async def close(self) -> None:
        """End the stream of requests, and give the daemon a moment to close."""
        self.requests.put(None)
        with contextlib.suppress(TimeoutError, StreamBrokenError):
            async with asyncio.timeout(CLOSING_S):
                while True:
                    await self.hear(lambda: False)
