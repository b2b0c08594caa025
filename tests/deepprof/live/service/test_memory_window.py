"""The allocations of a real program, sent to a daemon and read back from its window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

import deepprof
from deepprof.collectors.trace import SEGMENTS, Accounting, Trace
from tests.deepprof.live.service.daemons import Daemon, running
from tests.deepprof.live.service.sending import open_client
from tests.tables import table

torch: Any = pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")
SIZE = 3 * 1024 * 1024


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Return a cycle of torch.profiler with memory, in which tensors of `SIZE` bytes come and go."""
    path = tmp_path_factory.mktemp("profile") / "trace.json"
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        for _ in range(5):
            torch.ones(SIZE, dtype=torch.uint8).add_(1)
    profiler.export_chrome_trace(str(path))
    return deepprof.read(path)


def test_a_daemons_window_has_the_allocations_with_their_sizes(daemon: Daemon, profile: Trace) -> None:
    sizes = profile.memory_events["nbytes"].to_list()
    assert sizes.count(SIZE) >= 5
    assert sizes.count(-SIZE) >= 5
    with open_client(daemon) as client:
        client.send(profile, "memory")
        (back,) = client.window("memory")
        kinds = client.ranks("memory")[0].account.kinds
    assert back.memory_events.equals(profile.memory_events)
    assert back.memory_events["allocated_nbytes"].null_count() == 0
    assert {each.kind: each.accepted for each in kinds}["memory_events"] == profile.memory_events.height


def test_what_stays_in_files_is_counted_by_the_sender(daemon: Daemon, profile: Trace) -> None:
    taken = table([{"time_ns": 5, "device": 0, "nbytes": 64, "stream": 0}] * 3, SEGMENTS)
    said = profile.accounting
    counts = Accounting(said.read + 3, said.kept + 3, said.dropped, said.flagged)
    with open_client(daemon) as client:
        totals = client.send(replace(profile, segments=taken, accounting=counts), "segments")
        (back,) = client.window("segments")
    assert totals.records == said.kept
    assert back.segments.is_empty()
    assert back.accounting.dropped["not-sent"] == 3
