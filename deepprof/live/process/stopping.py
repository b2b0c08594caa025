"""Signals that ask an asyncio event loop to stop: none is lost, however busy the loop is."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any] | signal.Handlers
WANTED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def stop_on_signals() -> Iterator[asyncio.Event]:
    """Give an event that SIGTERM, SIGINT and SIGHUP set; a second one of its kind ends the process at once.

    Use it within a running loop of the main thread. A signal that is ignored, as under nohup, stays ignored. The loop's
    own `add_signal_handler` reads signals from the pipe that also wakes the loop for other threads: if that is full, a
    signal is lost. These handlers use the loop's queue, which is unbounded.
    """
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, _usual(number))
        loop.call_soon_threadsafe(stopping.set)

    taken = [number for number in WANTED if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in taken}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, _usual(number) if handler is None else handler)  # None: set by C


def wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event from any thread; nothing happens if the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(event.set)


def _usual(number: int) -> Handler:
    """Return Python's usual handler of a signal, which ends the process."""
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
