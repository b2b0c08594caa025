"""A listening agent, and programs that run with the hook and report to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.collectors.live.building import build
from tests.collectors.live.hooked import Done, run_hooked
from tests.collectors.live.listener import Listener


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Done]]:
    """Runs one of the `programs` as `deepprof run` does: hooked(script, *words, processes=1, **variables)."""
    library = build("plain").library
    listener = Listener(tmp_path_factory.mktemp("agent") / "s").start()
    yield lambda *words, **options: run_hooked(library, listener, *words, **options)
    listener.stop()
