"""The window of what is not durable yet, against a model that never forgets."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from deepprof.live.client.retrying import RetrySchedule
from deepprof.live.client.sender import DroppedBatches
from deepprof.live.client.window import SendWindow, WindowEntry
from deepprof.live.wire.limits import LIMITS
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import Batch, Gap


@dataclass
class Model:
    """A daemon that takes messages in order and may lose answers, and the client that must not lose anything."""

    window: SendWindow = field(default_factory=lambda: SendWindow(1000))
    put: list[WindowEntry] = field(default_factory=list)
    taken: list[WindowEntry] = field(default_factory=list)
    next: int = 0

    def do(self, action: str, number: int) -> None:
        if action == "put":
            entry = WindowEntry(SendRequest(), sum(each.count for each in self.put), number % 3, 10)
            self.put.append(entry)
            self.window.put(entry)
        elif action == "write":
            entry = self.window.take_next()
            if entry is not None and (entry.first == self.next or entry.end > self.next):
                assert entry.first == self.next  # no hole, and nothing half known
                self.taken.append(entry)
                self.next = entry.end
        elif action == "answer":
            self.window.acknowledge(min(self.next, self.window.durable + number))
        else:
            self.forget(number)
            assert self.window.resume(self.next)

    def forget(self, number: int) -> None:
        """Lose the latest messages that were not acknowledged, as a daemon that is killed may."""
        for _ in range(number):
            if self.taken and self.taken[-1].first >= self.window.durable:
                self.taken.pop()
        self.next = self.taken[-1].end if self.taken else 0


ACTIONS = st.tuples(st.sampled_from(["put", "put", "write", "write", "answer", "break"]), st.integers(0, 5))


@given(st.lists(ACTIONS, max_size=80))
def test_nothing_is_lost_whatever_breaks(actions):
    model = Model()
    for action, number in actions:
        model.do(action, number)
        assert model.window.nbytes == 10 * len(model.window.entries)
        assert 0 <= model.window.written <= len(model.window.entries)
    model.do("break", 0)
    while model.window.written < len(model.window.entries):
        model.do("write", 0)
    with_records = [entry for entry in model.taken if entry.count]
    assert with_records == [entry for entry in model.put if entry.count]
    assert set(map(id, model.put)) == set(map(id, model.taken))


def test_what_was_let_go_cannot_be_sent_again():
    window = SendWindow(1000)
    window.put(WindowEntry(SendRequest(), 0, 5, 10))
    window.acknowledge(5)
    assert not window.resume(3)
    assert window.resume(5)


def test_an_answer_is_due_for_records_and_the_end_only():
    window = SendWindow(1000)
    window.put(WindowEntry(SendRequest(), 0, 0, 10))
    assert window.take_next()
    assert not window.awaits_answer
    window.put(WindowEntry(SendRequest(), 0, 5, 10))
    assert not window.awaits_answer
    assert window.take_next()
    assert window.awaits_answer
    window.acknowledge(5)
    assert not window.awaits_answer
    window.put(WindowEntry(SendRequest(), 0, 0, 10, is_end=True))
    assert window.take_next()
    assert window.awaits_answer
    window.acknowledge(5, ended=True)
    assert not window.entries


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=20), st.integers(0, 1000))
def test_an_overflow_says_all_that_was_let_go(batches, first):
    overflow, number, name = DroppedBatches(), first, 0
    for count, names in batches:
        overflow.add(Batch(first=number, names=[f"n{name + at}" for at in range(names)], first_name=name), count)
        number, name = number + count, name + names
    entries = list(overflow.close(7))
    gaps = [entry.request.gap for entry in entries if entry.request.HasField("gap")]
    named = [entry.request.batch for entry in entries if entry.request.HasField("batch")]
    assert [(gap.first, gap.lost) for gap in gaps] == ([(first, number - first)] if number > first else [])
    assert [text for batch in named for text in batch.names] == [f"n{at}" for at in range(name)]
    assert all(batch.first == number and batch.complete_until_ns == 7 for batch in named)
    assert list(overflow.close(8)) == []


def test_more_records_than_a_message_can_say_are_several_gaps():
    overflow = DroppedBatches()
    overflow.add(Batch(first=7), 2**32 + 5)
    gaps = [entry.request.gap for entry in overflow.close()]
    assert [(gap.first, gap.lost) for gap in gaps] == [(7, 2**32 - 1), (7 + 2**32 - 1, 6)]


def test_many_names_are_several_messages():
    overflow = DroppedBatches()
    most = LIMITS.batch_names
    overflow.add(Batch(names=[str(at) for at in range(most + 1)], first_name=3), 1)
    parts = [entry.request.batch for entry in overflow.close(0)][1:]
    assert [(part.first_name, len(part.names)) for part in parts] == [(3, most), (3 + most, 1)]


def test_long_names_fit_into_messages():
    overflow = DroppedBatches()
    overflow.add(Batch(names=[f"{at:0{LIMITS.name_nbytes}}" for at in range(600)], first_name=0), 1)
    entries = list(overflow.close(0))[1:]
    assert sum(len(entry.request.batch.names) for entry in entries) == 600
    assert max(entry.request.ByteSize() for entry in entries) <= LIMITS.message_nbytes


class Still:
    """Time that a test sets."""

    now = 0.0

    def now_s(self) -> float:
        return self.now


def test_patience_counts_from_the_first_failure():
    clock = Still()
    patience = RetrySchedule(clock, 10, lambda: 1.0)
    clock.now = 100.0
    assert [patience.fail() for _ in range(3)] == [0.1, 0.2, 0.4]
    clock.now = 109.9
    assert abs(patience.fail() - 0.1) < 1e-9  # what is left
    clock.now = 110.0
    assert patience.fail() is None
    patience.succeed()
    assert patience.fail() == 0.1


def promise(first: int, until_ns: int) -> WindowEntry:
    batch = Batch(first=first, complete_until_ns=until_ns)
    return WindowEntry(SendRequest(batch=batch), first, 0, batch.ByteSize())


@given(st.lists(st.sampled_from(["put", "write", "write", "break"]), max_size=40))
def test_of_promises_that_follow_each_other_the_latest_is_enough(actions):
    window, written = SendWindow(1000), 0
    window.put(WindowEntry(SendRequest(), 0, 5, 10))
    for number, action in enumerate(actions):
        if action == "put":
            window.put(promise(5, number))
        elif action == "write":
            while (entry := window.take_next()) is not None:
                written = entry.request.batch.complete_until_ns
        else:
            assert window.resume(5)
        assert window.nbytes == sum(entry.nbytes for entry in window.entries)
        assert len(window.entries) <= 2
    while (entry := window.take_next()) is not None:
        written = entry.request.batch.complete_until_ns
    assert written == max((number for number, action in enumerate(actions) if action == "put"), default=0)


def test_names_and_gaps_are_no_promises():
    window = SendWindow(1000)
    named = Batch(first=5, names=["a"], complete_until_ns=1)
    between = [WindowEntry(SendRequest(batch=named), 5, 0, 9), WindowEntry(SendRequest(gap=Gap(first=5)), 5, 0, 2)]
    for entry in (promise(5, 1), *between, promise(5, 2), promise(5, 3)):
        window.put(entry)
    assert [entry.request for entry in window.entries] == [
        promise(5, 1).request,
        *(entry.request for entry in between),
        promise(5, 3).request,
    ]
