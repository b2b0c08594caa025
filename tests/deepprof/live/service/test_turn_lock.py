"""The lock is kept by one at a time, in turn, and is lost with no one who goes away."""

from __future__ import annotations

import asyncio
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.service.fair_lock import FairLock
from tests.patience import PATIENCE_S


def run_all(asks: list[tuple[str, str]], gone: set[int] = frozenset()) -> list[int]:  # type: ignore[assignment]
    """Return in which order those who ask get it, while somebody else holds it; those who are `gone` are cancelled."""

    async def ask(lock: FairLock, number: int, order: list[int]) -> None:
        async with lock.hold(*asks[number]):
            order.append(number)
            await asyncio.sleep(0)
            assert order[-1] == number  # no one came meanwhile

    async def main() -> list[int]:
        lock, order = FairLock(), list[int]()
        async with lock.hold("first", ""):
            tasks = [asyncio.create_task(ask(lock, number, order)) for number in range(len(asks))]
            await asyncio.sleep(0)
            for number in gone:
                tasks[number].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(PATIENCE_S), lock.hold("last", ""):  # it is free again
            return order

    return asyncio.run(main())


def in_turn(asks: list[tuple[str, str]]) -> list[int]:
    """Return the order by the definition: owners in turn, of an owner its jobs in turn, of a job as they arrived."""
    owners: dict[str, dict[str, deque[int]]] = {}
    for number, (owner, job) in enumerate(asks):
        owners.setdefault(owner, {}).setdefault(job, deque()).append(number)
    order = []
    while owners:
        for owner in list(owners):
            job = next(iter(owners[owner]))
            line = owners[owner].pop(job)
            order.append(line.popleft())
            if line:
                owners[owner][job] = line
            if not owners[owner]:
                del owners[owner]
    return order


ASKS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy")), max_size=12)


@given(ASKS)
def test_those_who_wait_get_it_in_turn(asks: list[tuple[str, str]]) -> None:
    assert run_all(asks) == in_turn(asks)


@given(ASKS, st.data())
def test_who_goes_away_is_left_out(asks: list[tuple[str, str]], data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.integers(0, len(asks) - 1))) if asks else set()
    assert sorted(run_all(asks, gone)) == sorted(set(range(len(asks))) - gone)


def test_one_who_was_given_it_and_is_gone_passes_it_on() -> None:
    async def main() -> None:
        lock = FairLock()
        async with lock.hold("a", ""):
            waiting = asyncio.create_task(hold(lock))
            await asyncio.sleep(0)
        waiting.cancel()  # it has it, and has not run since
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait_for(hold(lock), PATIENCE_S)

    async def hold(lock: FairLock) -> None:
        async with lock.hold("b", ""):
            pass

    asyncio.run(main())
