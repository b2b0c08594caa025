"""The last line of a run, and how long it waits for it."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import threading

import pytest

from deepprof.live.agent import draining
from deepprof.live.agent.answers import CUT, read_answer
from deepprof.live.agent.asking import NotAnsweredError
from deepprof.live.agent.draining import drain, is_alive
from deepprof.live.agent.process_decoder import CUT_TEXT
from deepprof.live.agent.summary import FinishedCommand, add_up, describe, select
from tests.patience import PATIENCE_S

from .fake_agent import account as books
from .fake_agent import answer, answering, process


def summarize(alive=(), before=(), finished=None, **fields):
    said = read_answer(json.dumps(answer(**fields)).encode())
    ours = select(said, "demo", before)
    account = add_up(ours, lambda pid: pid in alive)
    return describe(said, finished or FinishedCommand("demo"), ours, account), account.settled


def test_all_is_kept():
    ranks = [process(account=books(61_000)), process(rank=1, session="b", account=books(234))]
    line = "job demo: 2 ranks, 61,234 records kept by unix:/d, 0 lost; deepprof watch --job demo"
    assert summarize(processes=ranks) == (line, True)


def test_every_record_that_is_not_kept_is_there_by_reason():
    ranks = [process(account=books(900, late=40, buffer_full=60), refusal="names: too many")]
    ranks += [process(rank=1, session="b", account=books(0, refused=700, late=2))]
    line, settled = summarize(processes=ranks)
    assert line == (
        "job demo: 2 ranks, 1,702 records made, 900 kept by unix:/d, 700 refused (names: too many), 60 buffer-full, "
        "42 late; deepprof watch --job demo"
    )
    assert settled


def test_what_the_daemon_has_refused_it_never_calls_kept():
    """All batches but those of one kind were refused, and the numbers acknowledged as a gap: none of it is kept."""
    refused = process(records=40_145, next=40_145, durable=40_145, account=books(39_999, refused=146))
    line, _ = summarize(processes=[refused])
    assert "40,145 records made, 39,999 kept by unix:/d, 146 refused" in line
    assert "lost" not in line


def test_the_daemon_has_not_looked_at_all_that_it_has():
    line, settled = summarize(processes=[process(account=books(600, waiting=400, uncounted=300))])
    assert "1,000 records made, 600 kept by unix:/d, 100 wait on disk (they are on their way), 300 not yet look" in line
    assert not settled


def test_what_the_daemon_says_is_one_short_line():
    (why,) = [summarize(processes=[process(account=books(0, refused=1), refusal="a\nb" * 200)])[0]]
    assert "\n" not in why
    assert len(why) < 300


def test_all_is_acknowledged_by_a_daemon_that_does_not_say_what_it_kept():
    line = "job demo: 2 ranks, 61,237 records made, 61,234 acknowledged by unix:/d, 3 lost; deepprof watch --job demo"
    ranks = [process(records=61_003, next=61_003, durable=61_003, lost=3)]
    ranks += [process(rank=1, records=234, next=900, durable=900, session="b")]
    assert summarize(processes=ranks) == (line, True)
    asked = FinishedCommand("demo", "unix:/d")
    assert summarize(processes=ranks, finished=asked)[0].endswith("; deepprof watch unix:/d --job demo")
    one = "job demo: 1 rank, 1,000 records acknowledged by unix:/d, 0 lost; deepprof watch --job demo"
    assert summarize(processes=[process(), process(job="other")]) == (one, True)


def test_the_hint_names_the_daemon_that_has_the_records():
    """Not the one that was requested, where an agent was there already and sends elsewhere."""
    elsewhere = FinishedCommand("demo", "[::1]:7", usual="[::1]:7")
    assert summarize(processes=[process()], finished=elsewhere)[0].endswith("; deepprof watch unix:/d --job demo")
    unasked = FinishedCommand("demo", usual="unix:/run/usual")
    assert summarize(processes=[process()], finished=unasked)[0].endswith("; deepprof watch unix:/d --job demo")
    usual = FinishedCommand("demo", usual="unix:/d")
    assert summarize(processes=[process()], finished=usual)[0].endswith("; deepprof watch --job demo")


def test_something_waits():
    waiting = [process(durable=400)]
    on_their_way = "400 acknowledged by unix:/d, 600 wait on disk (they are on their way), 0 lost"
    assert on_their_way in summarize(processes=waiting)[0]
    assert not summarize(processes=waiting)[1]
    assert "(the daemon is away)" in summarize(processes=waiting, connected=False)[0]
    said = "daemon at unix:/d: there is no such socket; start it with deepprof serve"
    line, _ = summarize(processes=waiting, connected=False, problem=said)
    assert "(there is no such socket)" in line
    assert line.endswith("; they are sent once the daemon runs (deepprof serve)")  # there is nothing to watch yet
    said = "daemon at h:7: nothing listens there; start it"
    line, _ = summarize(processes=waiting, connected=False, problem=said, to="h:7")
    assert line.endswith("; they are sent once the daemon runs")
    assert "(certificate expired)" in summarize(processes=waiting, connected=False, problem="certificate expired")[0]


def test_lost_records_are_neither_acknowledged_nor_waiting():
    """A process has numbered its lost records too, and the gap that represents them waits as they would."""
    full = {"records": 1000, "next": 1000, "lost": 999}
    assert "1,000 records made, 1 acknowledged by unix:/d, 999 lost" in summarize(processes=[process(**full)])[0]
    waits = "1,000 records made, 0 acknowledged by unix:/d, 1 wait on disk (they are on their way), 999 lost"
    assert waits in summarize(processes=[process(**full, durable=0)])[0]
    line, settled = summarize(processes=[process(**{**full, "lost": 1000})])
    assert "1 rank, 1,000 records made, 0 acknowledged by unix:/d, 1,000 lost; deepprof watch --job demo" in line
    assert settled
    assert not summarize(processes=[process(**{**full, "lost": 1000}, durable=0)])[1]  # the gap is on its way


def test_one_rank_that_several_processes_carried():
    parts = [process(durable=1800, next=2000), process(session="b", durable=1800, next=2000)]
    assert "1 rank, 2,000 records made, 1,600 acknowledged by unix:/d, 400 wait" in summarize(processes=parts)[0]


def test_what_was_there_before_is_not_ours():
    assert "nothing was collected" in summarize(processes=[process()], before={"a" * 32})[0]


def test_nothing_was_collected():
    line, settled = summarize()
    assert settled
    assert line.startswith(
        "job demo: nothing was collected: no process ran a GPU kernel or a PyTorch operator where it "
    )
    assert "where it sees /s and has DeepProf's library in it; " in line  # python -I has the first, not the second
    silent = process(records=0, next=0, durable=0, rank=None)
    assert summarize(processes=[silent])[0].endswith("its processes ran no GPU kernel and no PyTorch operator")
    busy = {**silent, "notices": [{"code": 1, "text": "another profiler has CUPTI"}]}
    assert summarize(processes=[busy, busy])[0].endswith("nothing was collected: another profiler has CUPTI")
    refused = [{"pid": 1, "why": "rank 0 of job demo is another process's"}]
    assert summarize(refused=refused)[0].endswith("collected: rank 0 of job demo is another process's")


def test_a_process_that_was_refused_is_no_rank_of_ours():
    taken = {"pid": 7, "why": "rank 0 of job demo is collected already (x)"}
    refused = process(pid=7, session="b", records=6, next=0, durable=0, rank=None)
    refused |= {"account": books(0, not_collected=6)}
    line, _ = summarize(processes=[process(durable=0), refused], refused=[taken])
    assert "job demo: 1 rank, 1,006 records made, 0 acknowledged by unix:/d, 1,000 wait on disk" in line
    assert "6 not-collected; refused: rank 0 of job demo is collected already (x)" in line
    line, settled = summarize(processes=[refused], refused=[taken])
    assert (line, settled) == ("job demo: nothing was collected: rank 0 of job demo is collected already (x)", True)
    noted = {**refused, "notices": [{"code": 1, "text": "another profiler"}]}
    line, _ = summarize(processes=[noted], refused=[taken])
    assert line.endswith("collected: rank 0 of job demo is collected already (x); another profiler")


def test_what_another_job_was_refused_is_not_said():
    others = process(pid=7, job="other", records=6, next=0, durable=0, rank=None)
    line, _ = summarize(processes=[others], refused=[{"pid": 7, "why": "rank 0 of job other is collected already"}])
    assert "no process ran a GPU kernel" in line
    line, _ = summarize(processes=[process(), others], refused=[{"pid": 7, "why": "rank 0 of job other"}])
    assert "other" not in line


def test_an_end_that_was_not_heard():
    cut = [{"code": CUT, "text": CUT_TEXT}]
    line, _ = summarize(processes=[process(notices=cut), process(rank=1, session="b")])
    assert "0 lost but what 1 process that never said its end had not sent; deepprof watch" in line
    line, _ = summarize(processes=[process(notices=cut), process(rank=1, session="b", notices=cut)])
    assert "0 lost but what 2 processes that never said their end had not sent; deepprof watch" in line


def test_an_agent_that_was_started_again_knows_nothing_of_before():
    since = FinishedCommand("demo", since_unix_ns=10)
    line, _ = summarize(began_unix_ns=11, finished=since)
    assert line.startswith("job demo: the agent ended on the way; what it had taken is on disk")
    line, _ = summarize(began_unix_ns=11, finished=since, processes=[process()])
    assert "1,000 records acknowledged by unix:/d, since the agent was started again, 0 lost" in line
    line, _ = summarize(began_unix_ns=10, finished=since, processes=[process()])
    assert "again" not in line


def test_a_process_that_runs_on():
    going = FinishedCommand("demo", going=(9, 8))
    line, _ = summarize(finished=going)
    assert line == "job demo: nothing was collected so far; its process 8 runs on; deepprof watch --job demo"
    assert summarize(finished=going, processes=[process()])[0].endswith(
        "; its process 8 runs on; deepprof watch --job demo"
    )


def test_who_is_waited_for():
    going = process(ended=False, durable=10)
    assert not summarize(processes=[going])[1]  # it is dead, and its last records are on their way
    assert summarize(processes=[going], alive={2**22 + 1})[1]  # another run's, of the same job
    assert not summarize(processes=[process(records=0, next=0, durable=0, ended=False)])[1]


def called(said):
    return said() if callable(said) else said


@pytest.fixture
def looks(tmp_path, monkeypatch):
    """Answers one after the other, or what gives them, the last again and again; `drain` on them."""

    monkeypatch.setattr(draining, "ASK_S", PATIENCE_S)

    def look(*said, patience_s=PATIENCE_S, pause=lambda _: False):
        rest = itertools.chain(said, itertools.repeat(said[-1]))
        with answering(tmp_path / "s", lambda: called(next(rest))) as heard:
            _, _, account = drain(tmp_path / "s", "demo", (), patience_s, pause=pause)
        return account, len(heard)

    return look


WAITS = answer(processes=[process(durable=1)])
DONE = answer(processes=[process()])


def test_it_waits_until_all_is_durable(looks):
    account, count = looks(WAITS, WAITS, DONE)
    assert (account.settled, account.waiting, count) == (True, 0, 3)


def test_a_short_command_may_be_known_only_at_the_second_look(looks):
    account, count = looks(answer(), DONE)
    assert (account.made, count) == (1000, 2)
    assert looks(answer())[1] == 2


def test_it_waits_no_longer_than_it_may(looks):
    account, count = looks(WAITS, patience_s=0.0)
    assert (account.waiting, count) == (999, 1)


def test_a_signal_ends_the_wait(looks):
    assert looks(WAITS, pause=lambda _: True)[1] == 1


def test_a_daemon_that_is_away_is_not_waited_for_long(looks, monkeypatch):
    monkeypatch.setattr(draining, "AWAY_S", 0.05)
    assert looks({**WAITS, "connected": False})[0].waiting == 999


def test_an_agent_that_is_too_busy_to_answer_is_asked_again(looks, monkeypatch):
    monkeypatch.setattr(draining, "ASK_S", 0.2)
    waited = threading.Event()

    def late():
        assert waited.wait(PATIENCE_S)
        return DONE

    account, _ = looks(late, patience_s=PATIENCE_S, pause=lambda _: waited.set())
    assert account.settled


def test_a_busy_agent_is_waited_for_no_longer_than_it_may(tmp_path, monkeypatch):
    monkeypatch.setattr(draining, "ASK_S", 0.05)
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(str(tmp_path / "s"))
        endpoint.listen()
        with pytest.raises(NotAnsweredError, match="does not answer"):
            drain(tmp_path / "s", "demo", (), 0.0)
        with pytest.raises(NotAnsweredError, match="does not answer"):
            drain(tmp_path / "s", "demo", (), PATIENCE_S, pause=lambda _: True)  # a signal


def test_an_agent_that_is_gone(tmp_path):
    with pytest.raises(NotAnsweredError):
        drain(tmp_path / "s", "demo", (), 1.0)


def test_who_lives():
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert is_alive(os.getpid())
    assert is_alive(1)
    assert not is_alive(gone.pid)
    assert is_alive(2**70)
