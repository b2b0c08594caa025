"""Memory is given back once after each load, not while one goes on, and not often."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from deepprof.service import memory
from deepprof.service.memory import EVERY_NS, QUIET_NS, Spare
from tests.deepprof.service.engines import FakeClock


@dataclass
class House:
    """A house that is kept every while."""

    clock: FakeClock = field(default_factory=FakeClock)
    trimmed: list[int] = field(default_factory=list)
    records: int = 0

    def __post_init__(self) -> None:
        self.spare = Spare(self.clock, lambda: self.trimmed.append(self.records))

    def keep(self, after_ns: int, more: int = 0) -> int:
        """Return how often memory was given back so far."""
        self.clock.now_ns += after_ns
        self.records += more
        asyncio.run(self.spare.give_back(self.records))
        return len(self.trimmed)


def test_a_daemon_that_nobody_has_sent_to_gives_nothing_back() -> None:
    house = House()
    assert [house.keep(EVERY_NS) for _ in range(3)] == [0, 0, 0]


def test_it_is_given_back_once_after_a_load() -> None:
    house = House()
    assert [house.keep(QUIET_NS, 10) for _ in range(20)] == [0] * 20
    assert house.keep(QUIET_NS - 1) == 0
    assert [house.keep(1), house.keep(EVERY_NS), house.keep(EVERY_NS)] == [1, 1, 1]


def test_short_loads_do_not_have_it_given_back_often() -> None:
    house = House()
    house.keep(0, 1)
    assert house.keep(QUIET_NS) == 1
    house.keep(0, 1)
    assert house.keep(QUIET_NS) == 1
    assert house.keep(EVERY_NS) == 2


def test_a_system_without_a_way_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "find_trim", lambda: None)
    spare = Spare(FakeClock())
    asyncio.run(spare.give_back(1))
    spare.clock.now_ns += QUIET_NS  # type: ignore[attr-defined]
    asyncio.run(spare.give_back(1))


def test_this_one_can_be_asked() -> None:
    if (trim := memory.find_trim()) is not None:
        trim()
