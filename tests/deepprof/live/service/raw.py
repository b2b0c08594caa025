"""A client that states whatever a test wants it to state, in whatever order."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import grpc

from deepprof.v1 import ingest_pb2_grpc
from deepprof.v1.ingest_pb2 import SendRequest, SendResponse
from tests.deepprof.live.service.daemons import Daemon
from tests.patience import PATIENCE_S

__all__ = ["DEADLINE_S", "RawStream"]

DEADLINE_S = PATIENCE_S


class RawStream:
    """One `Ingest.Send` call; `say` sends a message, `hear` waits for an answer, `fate` for the call's end."""

    def __init__(self, daemon: Daemon, *, options: tuple[tuple[str, int], ...] = ()) -> None:
        self.channel = grpc.insecure_channel(daemon.address, (("grpc.use_local_subchannel_pool", 1), *options))
        self.words: queue.Queue[SendRequest | None] = queue.Queue()
        send = ingest_pb2_grpc.IngestStub(self.channel).Send  # type: ignore[no-untyped-call]
        self.call: Any = send(iter(self.words.get, None), timeout=DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.words.put(None)
        self.call.cancel()
        self.channel.close()

    def say(self, **message: Any) -> None:
        """Send a message: hello=, batch=, gap= or end=."""
        self.words.put(SendRequest(**message))

    def hear(self) -> SendResponse:
        """Return the next answer."""
        return next(self.call)

    def hear_durable(self, count: int) -> SendResponse:
        """Return the first answer that acknowledges `count` records."""
        return next(answer for answer in self.call if answer.durable >= count)

    def answers(self) -> Iterator[SendResponse]:
        """Give all answers to the end."""
        yield from self.call

    def fate(self) -> grpc.StatusCode:
        """Return with what status the call ends, all answers read."""
        try:
            list(self.call)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK
