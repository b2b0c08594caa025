"""What goes wrong in the sender itself: a machine without threads is waited for, a bug is not."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from deepprof.live.client import stream
from deepprof.live.client.sender import Sender

from .test_sender import send


@pytest.mark.parametrize("place", ["Thread", "IngestStub"])
def test_a_machine_that_gives_no_thread_is_waited_for(daemon, endpoint, monkeypatch, place):
    refusals, notices, before = [None, None], [], set(threading.enumerate())
    real = {"Thread": threading.Thread, "IngestStub": stream.IngestStub}[place]

    def give(*given, **named):
        if refusals:
            refusals.pop()
            raise RuntimeError("can't start new thread")
        return real(*given, **named)

    changed = SimpleNamespace(Thread=give) if place == "Thread" else give
    monkeypatch.setattr(stream, "threading" if place == "Thread" else place, changed)
    sent = send(endpoint, notice=notices.append)
    assert (sent.durable, sent.connections) == (500, 1)
    assert ["start new thread" in notice for notice in notices] == [True, True]
    assert not [each for each in set(threading.enumerate()) - before if each.name == "deepprof-answers"]


def test_a_bug_in_the_connection_is_not_waited_for(daemon, endpoint, monkeypatch):
    monkeypatch.setattr(Sender, "welcome", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        send(endpoint)
