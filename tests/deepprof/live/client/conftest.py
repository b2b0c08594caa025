"""A fake daemon, and the door to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deepprof.live.client.endpoint import Endpoint, find_endpoint

from .fake_daemon import FakeDaemon, listen, short_folder


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon()


@pytest.fixture
def folder() -> Iterator[str]:
    with short_folder() as path:
        yield path


@pytest.fixture
def address(daemon: FakeDaemon, folder: str) -> Iterator[str]:
    with listen(daemon, folder) as where:
        yield where


@pytest.fixture
def endpoint(address: str) -> Endpoint:
    return find_endpoint(address, environ={})
