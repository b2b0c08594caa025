"""Whose turn it is, held against what a page of paper would state: one line for every job, and who was served last."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.service.fair_queue import FairQueue

STEPS = st.lists(
    st.tuples(st.sampled_from(("add", "take", "take-some", "discard")), st.sampled_from("abc"), st.sampled_from("xy"))
)


@dataclass
class Paper:
    """A round robin by the longest way: who came or was served longest ago, of those that may, comes first."""

    items: list[tuple[str, str, int]] = field(default_factory=list)  # owner, job, number: as they arrived
    since: dict[tuple[str, ...], int] = field(default_factory=dict)  # since when an owner, or a job, waits for a turn
    now: int = 0

    def add(self, owner: str, job: str, number: int) -> None:
        self.items.append((owner, job, number))
        for who in ((owner,), (owner, job)):
            self.since.setdefault(who, self.tick())

    def take(self, blocked: set[str]) -> int | None:
        """Serve the first item of the job that waits longest of the owner that waits longest, none of `blocked`."""
        may = [item for item in self.items if item[0] not in blocked and item[1] not in blocked]
        if not may:
            return None
        owner = min({item[0] for item in may}, key=lambda one: self.since[one,])
        job = min({item[1] for item in may if item[0] == owner}, key=lambda one: self.since[owner, one])
        first = next(item for item in may if item[:2] == (owner, job))
        for who in ((owner,), (owner, job)):
            self.since[who] = self.tick()
        self.discard(first)
        return first[2]

    def discard(self, item: tuple[str, str, int]) -> None:
        """Take an item away; who has none left has no place in the line either."""
        self.items = [other for other in self.items if other != item]
        here = {who for owner, job, _ in self.items for who in ((owner,), (owner, job))}
        self.since = {who: since for who, since in self.since.items() if who in here}

    def tick(self) -> int:
        self.now += 1
        return self.now


def take(turns: FairQueue[int], blocked: set[str]) -> int | None:
    """Return whose turn it is, of owners and jobs that are not blocked."""
    return turns.take(owner_fits=lambda owner: owner not in blocked, job_fits=lambda _, job: job not in blocked)


@given(STEPS, st.sets(st.sampled_from("abcxy"), max_size=3))
def test_turns_are_those_of_a_round_robin(steps: list[tuple[str, str, str]], blocked: set[str]) -> None:
    turns, paper = FairQueue[int](), Paper()
    for number, (what, owner, job) in enumerate(steps):
        if what == "add":
            turns.add(owner, job, number)
            paper.add(owner, job, number)
        elif what == "discard" and (mine := [item for item in paper.items if item[:2] == (owner, job)]):
            turns.discard(*mine[-1])
            paper.discard(mine[-1])
        elif what != "discard":
            out = blocked if what == "take-some" else set()
            assert take(turns, out) == paper.take(out)
        assert sorted(turns) == sorted(item[2] for item in paper.items)
        assert bool(turns) == bool(paper.items)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_nobody_waits_for_more_than_one_item_of_each_other(counts: list[int]) -> None:
    """However many items the others have, an owner's n-th is served in the n-th round."""
    turns = FairQueue[tuple[int, int]]()
    for owner, count in enumerate(counts):
        for number in range(count):
            turns.add(str(owner), "job", (number, owner))
    served = [turns.take() for _ in range(sum(counts))]
    assert served == sorted(served)  # type: ignore[type-var]
    assert turns.take() is None


def test_what_does_not_fit_holds_up_nobody_behind_it() -> None:
    turns = FairQueue[int]()
    for number in (9, 1, 2):
        turns.add("owner", "job", number)
    assert [turns.take(lambda item: item < 5) for _ in range(3)] == [1, 2, None]
    assert turns.take() == 9


def test_what_is_not_here_is_not_discarded() -> None:
    turns = FairQueue[int]()
    turns.discard("nobody", "job", 1)
    turns.add("owner", "job", 1)
    turns.discard("owner", "other", 1)
    turns.discard("owner", "job", 2)
    assert list(turns) == [1]
