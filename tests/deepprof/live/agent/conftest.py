"""An agent and a daemon for replayed jobs, which all tests of this folder share: they need seconds to start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deepprof.live.agent.replaying import Node, running_node


@pytest.fixture(scope="package")
def node() -> Iterator[Node]:
    with running_node() as started:
        yield started
