"""The account of a rank adds up at any time, whatever threads do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from deepprof.service.account import Accounts
from deepprof.service.views import Account

FATES = st.sampled_from(["refuse", "repeat", "drop", "take"])


@given(st.lists(st.tuples(FATES, st.integers(0, 1000), st.integers(0, 1000))))
def test_account_adds_up_after_every_message(messages: list[tuple[str, int, int]]) -> None:
    accounts, received = Accounts(), 0
    for fate, count, late in messages:
        accounts.arrive(count)
        received += count
        assert accounts.in_flight == count
        assert accounts.view().adds_up
        if fate == "take":
            accounts.take(count, {"late": min(late, count)})
        elif fate == "drop":
            accounts.drop(count, "journal-failed")
        else:
            getattr(accounts, fate)(count)
        assert accounts.view().adds_up
    assert accounts.view().received == received
    assert accounts.in_flight == 0


def test_records_in_flight_are_not_yet_received() -> None:
    accounts = Accounts()
    accounts.arrive(10)
    accounts.arrive(5)
    accounts.repeat(5)
    assert accounts.view() == Account(received=5, duplicate=5)


def test_account_goes_on_from_a_saved_one() -> None:
    accounts = Accounts(Account(received=7, accepted=4, dropped={"late": 3}, gaps=1, lost=9))
    accounts.arrive(2)
    accounts.take(2, {"late": 1})
    accounts.gap(0)
    assert accounts.view() == Account(received=9, accepted=5, dropped={"late": 4}, gaps=2, lost=9)


def test_threads_lose_no_count() -> None:
    accounts = Accounts()

    def work(_: int) -> None:
        for _ in range(2000):
            accounts.arrive(3)
            accounts.take(3, {"late": 1})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert accounts.view() == Account(received=24_000, accepted=16_000, dropped={"late": 8000})
