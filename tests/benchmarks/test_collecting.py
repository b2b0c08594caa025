"""The benchmark of collecting runs, loses nothing, and neither the agent nor the library in the job grows."""

from __future__ import annotations

import pytest

from benchmarks import collecting
from tests.collectors.live.building import build


def test_nothing_is_lost_on_the_way_to_the_agent() -> None:
    found = collecting.measure_agent(build("plain"), 500_000)
    assert found.lost == 0
    assert found.seconds > 0


def test_nothing_is_lost_on_the_way_to_the_daemon_and_nothing_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "TO_DAEMON", 400_000)
    found, _ = collecting.measure_daemon(build("plain"), 4_000_000)
    assert found.lost == 0
    assert max(found.job_mib) < 200  # 64 MiB of buffers, as much of a queue, if the machine is busy
    later = found.agent_mib[len(found.agent_mib) // 4 :]
    assert max(later) < 400
    assert sum(later[-20:]) / 20 < sum(later[:20]) / 20 + 100
