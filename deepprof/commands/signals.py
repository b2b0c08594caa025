"""Clean-up when a signal asks the program to end, as a scheduler or a closed terminal does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from deepprof.collectors.errors import EndRequest

REQUESTS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no second


@contextmanager
def tidying() -> Iterator[None]:
    """Turn a request to end into an `EndRequest` with the code that a shell reports, so that every `finally` is run.

    A signal that is ignored, as under nohup, or that has another handler is left alone.
    """
    ours = threading.current_thread() is threading.main_thread()
    numbers = [number for number in REQUESTS if ours and signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in numbers:
            signal.signal(number, leave)
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


class SecondInterrupt(KeyboardInterrupt):
    """Ctrl-C was pressed again: the user does not want to wait for what the first one requests."""


@contextmanager
def noting_interrupt() -> Iterator[Callable[[], bool]]:
    """Give a function that returns whether Ctrl-C was pressed; a second one raises `SecondInterrupt`."""
    pressed = False

    def note(_: int, __: object) -> None:
        nonlocal pressed
        if pressed:
            raise SecondInterrupt
        pressed = True

    ours = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, note) if ours else None
    try:
        yield lambda: pressed
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def leave(number: int, _: object) -> NoReturn:
    """End the program; a second request must not interrupt the clean-up."""
    signal.signal(number, signal.SIG_IGN)
    raise EndRequest(128 + number)
