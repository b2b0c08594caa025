"""The journal's one writer: what it cannot bear of a rank is that rank's alone, what it bears of none is no rank's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from deepprof.live.service.ingest import IngestConnection
from deepprof.live.service.journal import JournalFrame
from deepprof.live.service.refusal import RefusedError
from deepprof.v1.ingest_pb2 import SendRequest
from deepprof.v1.records_pb2 import Gap
from tests.deepprof.live.service.engines import Steps, hello


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    found = Steps(tmp_path)
    yield found
    found.close()


def break_journal(steps: Steps, number: int | None) -> None:
    """Have the journal meet a bug with every frame of a rank; None: with every call."""
    append = steps.engine.journal.append

    def fail(frames: Sequence[JournalFrame]) -> list[object]:
        if number is None or any(frame.session == number for frame in frames):
            raise ZeroDivisionError("a bug")
        return append(frames)

    steps.engine.journal.append = fail  # type: ignore[assignment,method-assign]


def say_gap(steps: Steps, stream: IngestConnection) -> None:
    """Have a stream bring a message, which waits to be written."""
    steps.begin(stream.take(SendRequest(gap=Gap(first=stream.rank.next, lost=5, reason="test"))))


def test_a_message_that_the_journal_cannot_bear_breaks_its_rank_alone(steps: Steps) -> None:
    unlucky, lucky = steps.attach(hello("a")), steps.attach(hello("b"))
    break_journal(steps, unlucky.rank.number)
    for stream in (unlucky, lucky, unlucky, lucky):
        say_gap(steps, stream)
    steps.write()
    steps.turn()
    assert (unlucky.rank.durable, lucky.rank.durable) == (0, 10)
    assert lucky.rank.broken is None
    assert isinstance(unlucky.rank.broken, RefusedError)
    assert "ZeroDivisionError: a bug" in str(unlucky.rank.broken)
    assert not steps.engine.vitals.problem


def test_a_rank_that_was_broken_goes_on_where_it_was_once_the_journal_bears_it(steps: Steps) -> None:
    stream = steps.attach(hello("a"))
    append = steps.engine.journal.append
    break_journal(steps, stream.rank.number)
    say_gap(steps, stream)
    steps.write()
    steps.turn()
    steps.detach(stream)
    steps.engine.journal.append = append  # type: ignore[method-assign]
    again = steps.attach(hello("a"))
    assert again.rank.next == 0
    steps.send(again, SendRequest(gap=Gap(first=0, lost=7, reason="test")))
    steps.settle()
    assert (again.rank.durable, again.rank.accounts.view().lost) == (7, 7)


def test_a_journal_that_bears_nothing_is_no_fault_of_a_rank(steps: Steps) -> None:
    stream = steps.attach(hello("a"))
    break_journal(steps, None)
    say_gap(steps, stream)
    with pytest.raises(ZeroDivisionError):  # the writer's thread ends the daemon with it
        steps.write()
    assert stream.rank.broken is None
