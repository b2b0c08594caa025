"""The account of a rank adds up at any time, whatever threads do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.service.account import Accounts
from deepprof.live.wire.figures import Account, KindAccount

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
            accounts.take({"kernel": count}, {"late": {"kernel": min(late, count)}})
        elif fate == "drop":
            accounts.drop(count, "journal-failed")
        else:
            getattr(accounts, fate)(count)
        assert accounts.view().adds_up
        assert sum(each.accepted for each in accounts.view().kinds) == accounts.view().accepted
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
    accounts.take({"sync": 2}, {"late": {"sync": 1}})
    accounts.gap(0)
    kinds = (
        KindAccount("sync", 1, {"late": 1}),
        KindAccount("unknown", 4),
    )  # the saved one did not know of kinds
    assert accounts.view() == Account(received=9, accepted=5, dropped={"late": 4}, gaps=2, lost=9, kinds=kinds)
    assert Accounts(accounts.view()).view() == accounts.view()


def test_what_was_not_sent_is_counted_by_as_many_reasons_as_there_may_be() -> None:
    accounts = Accounts()
    accounts.miss({"buffer-full": 3, "busy": 0})
    accounts.miss({"buffer-full": 2, "late": 1})
    assert accounts.view().missing == {"buffer-full": 5, "late": 1}
    for number in range(1000):
        accounts.miss({f"reason-{number}": 1})
    missing = accounts.view().missing
    assert sum(missing.values()) == 1006
    assert len(missing) <= 65
    assert missing["other"] > 900


def test_threads_lose_no_count() -> None:
    accounts = Accounts()

    def work(_: int) -> None:
        for _ in range(2000):
            accounts.arrive(3)
            accounts.take({"kernel": 2, "range": 1}, {"late": {"kernel": 1}})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    kinds = KindAccount("kernel", 8000, {"late": 8000}), KindAccount("range", 8000)
    assert accounts.view() == Account(received=24_000, accepted=16_000, dropped={"late": 8000}, kinds=kinds)
