"""A listening agent, and programs that run with the hook and report to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from deepprof.collectors.live import connection, writer
from tests.collectors.live.building import build
from tests.collectors.live.hooked import Done, run_hooked
from tests.collectors.live.listener import Listener
from tests.patience import PATIENCE_S


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what is written from Python wait for an agent that is slow to answer."""
    for module, name in ((connection, "WELCOME_S"), (connection, "ENDING_S"), (writer, "FINISH_S")):
        monkeypatch.setattr(module, name, PATIENCE_S)


@pytest.fixture(scope="module")
def hooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Done]]:
    """Runs one of the `programs` as `deepprof run` does: hooked(script, *words, processes=1, **variables)."""
    library = build("plain").library
    listener = Listener(tmp_path_factory.mktemp("agent") / "s").start()
    yield lambda *words, **options: run_hooked(library, listener, *words, **options)
    listener.stop()
