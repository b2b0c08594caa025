"""The open streams of records, and the choice of the one to end where there are too many."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from deepprof.live.service.refusal import RefusedError

__all__ = ["OpenStreams"]


class OpenStreams:
    """Counts the streams, each known by its connection; for the event loop only.

    To free a place, the oldest stream that has sent no Hello yet is ended; else the one that `spare` returns, whose
    client connects again when it has something to send. `spare` raises `RefusedError` where there is none.
    """

    def __init__(self, most: int, spare: Callable[[], object]) -> None:
        self.most, self.spare = most, spare
        self._lives: dict[object, asyncio.Timeout] = {}
        self._strangers: OrderedDict[object, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lives)

    @asynccontextmanager
    async def open(self, connection: Any) -> AsyncIterator[None]:
        """Hold a place for a stream until the block ends. Raises `RefusedError` without one, or if it was cut."""
        self._make_room()
        try:
            async with asyncio.timeout(None) as life:
                self._lives[connection] = life
                self._strangers[connection] = None
                try:
                    yield
                finally:
                    self._forget(connection)
        except TimeoutError:
            if life.expired():
                raise RefusedError("UNAVAILABLE", "let go to make room for others; connect again", "cut") from None
            raise

    def greet(self, connection: Any) -> None:
        """Note that a stream has sent its Hello."""
        self._strangers.pop(connection, None)

    def cut(self, connection: Any) -> None:
        """End a stream from outside; its place is free at once."""
        life = self._lives.get(connection)
        self._forget(connection)
        if life is not None:
            life.reschedule(asyncio.get_running_loop().time())

    def _make_room(self) -> None:
        """Free a place if there is none. Raises `RefusedError` where all are taken by streams that send records."""
        if len(self) < self.most:
            return
        self.cut(next(iter(self._strangers), None) or self.spare())

    def _forget(self, connection: Any) -> None:
        self._lives.pop(connection, None)
        self._strangers.pop(connection, None)
