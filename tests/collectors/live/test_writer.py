"""Packets written from Python: all arrive once and in order, nothing waits, and what is lost is counted and stated."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepprof.collectors.live import connection, payloads
from deepprof.collectors.live import writer as module
from deepprof.collectors.live.identity import PLACES, CollectorIdentity, find_socket
from deepprof.collectors.live.packets import (
    EVENT,
    MEMORY_CHANGE,
    NO_TIME,
    RANGE,
    RECORD_KINDS,
    VERSION,
    CollectionLevel,
    Kind,
    Reason,
)
from deepprof.collectors.live.writer import NEVER, RecordBatch, Writer, read_clocks
from deepprof.live.agent.node_agent import default_socket
from tests.collectors.live.listener import PATIENCE_S, Listener


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    started = Listener(tmp_path / "a.sock").start()
    yield started
    started.stop()


@pytest.fixture
def writer(listener: Listener) -> Iterator[Writer]:
    made = Writer(CollectorIdentity("test"), listener.path)
    assert made.start()
    yield made
    made.finish()
    made.thread.join(PATIENCE_S)


def events(count: int, begin: int = 0) -> np.ndarray:
    rows = np.zeros(count, EVENT)
    rows["start_ns"] = rows["end_ns"] = np.arange(begin, begin + count)
    return rows


def test_everything_arrives_once_with_names_before_it(listener: Listener, writer: Writer) -> None:
    names = writer.intern(["gemm", "copy", "gemm"])
    assert names.tolist() == [1, 2, 1]
    rows, ranges = events(3), np.zeros(2, RANGE)
    rows["name"], ranges["name"] = names, [2, 1]
    assert writer.put(RecordBatch(rows, ranges, events_until_ns=70, ranges_until_ns=80))
    writer.finish()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    assert heard.order[0] is Kind.HELLO
    assert heard.names == {1: "gemm", 2: "copy"}
    assert heard.events.tolist() == rows.tolist()
    assert heard.ranges.tolist() == ranges.tolist()
    assert heard.heads == [
        (Kind.EVENTS, 0, 3, Reason.NONE),
        (Kind.RANGES, 3, 2, Reason.NONE),
        (Kind.END, 5, 0, Reason.NONE),
    ]
    tick = heard.ticks[-1]
    assert (tick["events_until_ns"], tick["ranges_until_ns"], tick["next"]) == (70, 80, 5)
    assert tick["open_since_ns"] == NEVER
    assert tick["device_ns"] == tick["unix_ns"]
    assert not writer.put(RecordBatch(rows))


def test_changes_of_memory_are_records_of_their_kind(listener: Listener, writer: Writer) -> None:
    changes = np.zeros(4, MEMORY_CHANGE)
    changes["time_ns"], changes["nbytes"] = [5, 6, 7, 8], [64, -64, 32, 16]
    assert writer.put(RecordBatch(events(2), ranges_until_ns=9, changes=changes))
    assert not writer.put(RecordBatch(changes=np.zeros(10**7, MEMORY_CHANGE)))  # more than the queue contains
    writer.finish()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    assert heard.changes.tolist() == changes.tolist()
    assert heard.heads[:2] == [(Kind.EVENTS, 0, 2, Reason.NONE), (Kind.MEMORY_CHANGES, 2, 4, Reason.NONE)]
    assert heard.heads[2][1:] == (6 + 10**7, 0, Reason.BUFFER_FULL)
    memory = RECORD_KINDS.index("memory")
    assert [made[memory] for made in heard.made] == [0, 0, 4 + 10**7]
    assert heard.ticks[-1]["ranges_until_ns"] == 9


def test_promises_come_after_the_records_that_they_cover(listener: Listener, writer: Writer) -> None:
    before = listener.wait(lambda at: at.connections and at.last.ticks)[0]
    assert before["events_until_ns"] == NO_TIME
    writer.put(RecordBatch(events(1), events_until_ns=9))
    heard = listener.wait(lambda at: any(tick["events_until_ns"] == 9 for tick in at.last.ticks) and at.last)
    assert len(heard.events) == 1


def test_a_large_batch_comes_in_parts_of_its_time_with_promises(listener: Listener, writer: Writer) -> None:
    device_ns, mono_ns, _ = read_clocks()
    rows, ranges = events(30_000, device_ns), np.zeros(30_000, RANGE)
    ranges["start_ns"] = ranges["end_ns"] = np.arange(30_000) + mono_ns
    until = int(rows["start_ns"][-1]) + 1, int(ranges["start_ns"][-1]) + 1
    writer.put(RecordBatch(rows, ranges, *until, reason=Reason.DUTY_CYCLE))
    writer.finish()
    heard = listener.wait(lambda at: at.connections and at.last.ended and at.last)
    assert heard.events["start_ns"].tolist() == rows["start_ns"].tolist()
    assert heard.ranges["start_ns"].tolist() == ranges["start_ns"].tolist()
    assert [head[3] for head in heard.heads] == [Reason.DUTY_CYCLE] + [Reason.NONE] * (len(heard.heads) - 1)
    assert [head[1] for head in heard.heads] == np.cumsum([0, *[head[2] for head in heard.heads]])[:-1].tolist()
    assert len(heard.heads) > 10
    events_until = ranges_until = NO_TIME
    pieces = {
        Kind.EVENTS: iter(heard.event_pieces),
        Kind.RANGES: iter(heard.range_pieces),
        Kind.TICK: iter(heard.ticks),
    }
    for kind in heard.order:
        found = next(pieces[kind]) if kind in pieces else None
        if kind is Kind.TICK:
            assert found is not None
            assert found["events_until_ns"] >= events_until
            events_until, ranges_until = int(found["events_until_ns"]), int(found["ranges_until_ns"])
        elif found is not None:
            promised = events_until if kind is Kind.EVENTS else ranges_until
            assert int(found["start_ns"].min()) >= promised  # a promise is kept
    assert (events_until, ranges_until) == until


@given(
    st.lists(st.integers(0, 40), max_size=40).map(sorted),
    st.lists(st.integers(0, 40), max_size=40).map(sorted),
    st.lists(st.integers(0, 40), max_size=40).map(sorted),
    st.integers(-5, 5),
)
def test_parts_are_all_of_it_in_order_of_time(
    starts: list[int], range_starts: list[int], times: list[int], offset: int
) -> None:
    rows, ranges = np.zeros(len(starts), EVENT), np.zeros(len(range_starts), RANGE)
    changes = np.zeros(len(times), MEMORY_CHANGE)
    rows["start_ns"], ranges["start_ns"], changes["time_ns"] = np.array(starts) + offset, range_starts, times
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payloads, "PART", 4)
        patch.setattr(payloads, "MAX_EVENTS_PER_PACKET", 3)
        parts = list(payloads.cut(rows, ranges, changes, offset))
    assert np.concatenate([part.events for part in parts]).tolist() == rows.tolist()
    assert np.concatenate([part.ranges for part in parts]).tolist() == ranges.tolist()
    assert np.concatenate([part.changes for part in parts]).tolist() == changes.tolist()
    assert max(max(len(part.events), len(part.ranges), len(part.changes)) for part in parts) <= 3
    assert [part.until_ns for part in parts].count(None) == 1
    assert parts[-1].until_ns is None
    for at, part in enumerate(parts[:-1]):
        after = [int(start) for later in parts[at + 1 :] for start in later.ranges["start_ns"]]
        after += [int(start) - offset for later in parts[at + 1 :] for start in later.events["start_ns"]]
        after += [int(time) for later in parts[at + 1 :] for time in later.changes["time_ns"]]
        assert part.until_ns is not None
        assert all(start >= part.until_ns for start in after)


def test_many_threads_share_one_writer(listener: Listener, writer: Writer) -> None:
    def work(at: int) -> None:
        for turn in range(50):
            rows = events(10, at * 1000 + turn * 10)
            rows["name"] = writer.intern([f"{at}-{turn}"] * 10)
            assert writer.put(RecordBatch(rows))

    threads = [threading.Thread(target=work, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.finish()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    expected = [f"{at // 1000}-{at % 1000 // 10}" for at in heard.events["start_ns"].tolist()]
    assert heard.texts(heard.events) == expected
    assert sorted(heard.events["start_ns"]) == [at * 1000 + turn for at in range(4) for turn in range(500)]
    assert [head[1] for head in heard.heads] == list(range(0, 2001, 10))


def test_a_reader_that_stops_costs_whole_batches_which_are_counted(listener: Listener) -> None:
    writer = Writer(CollectorIdentity("test"), listener.path, queue_nbytes=64 * 1000)
    writer.start()
    listener.wait(lambda at: at.connections and at.last.ticks)
    listener.reading.clear()
    taken = []
    for turn in range(3000):
        if writer.put(RecordBatch(events(500, turn * 500))):
            taken.append(turn)
        elif len(taken) + 20 < turn:  # full for long enough
            break
    assert 0 < len(taken) < turn
    listener.reading.set()
    listener.wait(lambda at: len(at.last.events) == len(taken) * 500)
    assert writer.put(RecordBatch(events(1, 10**9)))
    writer.finish()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    starts = heard.events["start_ns"]
    numbers = np.concatenate([np.arange(first, first + count) for _, first, count, _ in heard.heads])
    kept = starts < 10**9
    assert np.array_equal(starts[kept], numbers[kept])  # a record's number is what it would have been without losses
    assert np.array_equal(np.unique(starts[kept] // 500), taken)
    jumps = [
        after for before, after in zip(heard.heads, heard.heads[1:], strict=False) if before[1] + before[2] < after[1]
    ]
    assert jumps
    assert {jump[3] for jump in jumps} == {Reason.BUFFER_FULL}
    assert [made[0] for made in heard.made] == [head[1] for head in heard.heads]  # kernels, those dropped among them


def test_records_are_counted_by_kind_up_to_each_packet_and_tick(listener: Listener, writer: Writer) -> None:
    rows, ranges = events(20_000), np.zeros(9, RANGE)
    rows["activity"] = np.arange(len(rows)) % 5
    rows["activity"][7] = 77  # no kind
    ranges["start_ns"] = 10_000
    writer.put(RecordBatch(rows, ranges, lost=3))
    writer.put(RecordBatch(events(5)))
    writer.finish()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    kernels, *others = np.bincount(np.delete(rows["activity"], 7)).tolist()
    expected = [kernels + 5, *others, 9, 0, 0]
    assert heard.made[-1] == heard.ticks[-1]["made"].tolist() == expected
    assert heard.heads[-1][1] == sum(expected) + 4
    assert len(heard.heads) > 4
    reached, numbers = iter(heard.ticks), dict(zip([head[1] for head in heard.heads], heard.made, strict=True))
    for kind in heard.order:  # a tick speaks of what was written before it, not of what waits
        tick = next(reached) if kind is Kind.TICK else None
        if tick is not None and int(tick["next"]) in numbers:
            assert tick["made"].tolist() == numbers[int(tick["next"])]
    assert {int(tick["reason"]) for tick in heard.ticks} == {0}


def test_nothing_waits_while_nobody_reads(listener: Listener, writer: Writer) -> None:
    listener.wait(lambda at: at.connections and at.last.ticks)
    listener.reading.clear()
    began = time.thread_time()
    while writer.put(RecordBatch(events(1 << 16))):
        pass
    assert time.thread_time() - began < 5
    assert writer.queued_nbytes <= writer.limit_nbytes
    listener.reading.set()


def test_after_an_agent_has_gone_the_next_gets_all_names_and_the_gap(tmp_path: Path) -> None:
    first = Listener(tmp_path / "a.sock").start()
    gone = threading.Event()
    writer = Writer(CollectorIdentity("test"), first.path, listener=lambda on: None if on else gone.set())
    writer.start()
    writer.intern(["a", "b"])
    writer.put(RecordBatch(events(4)))
    first.wait(lambda at: at.connections and len(at.last.events) == 4)
    first.stop()
    assert gone.wait(PATIENCE_S)
    assert not writer.is_on
    assert not writer.put(RecordBatch(events(3)))
    second = Listener(tmp_path / "a.sock").start()
    heard = second.wait(lambda at: at.connections and at.last.ticks and at.last)
    assert writer.put(RecordBatch(events(2)))
    writer.finish()
    second.wait(lambda at: at.last.ended)
    assert heard.hello["continues"] == "1"
    assert heard.hello["session"] == first.last.hello["session"]
    assert "continues" not in first.last.hello
    assert heard.names == {1: "a", 2: "b"}
    assert heard.heads[0] == (Kind.EVENTS, 7, 2, Reason.DISCONNECTED)
    second.stop()


def test_switched_off_it_takes_nothing_and_numbers_nothing(listener: Listener) -> None:
    told: list[bool] = []
    writer = Writer(CollectorIdentity("test"), listener.path, listener=told.append)
    writer.start()
    listener.wait(lambda at: at.connections and at.last.ticks)
    listener.say(CollectionLevel.OFF)
    listener.wait(lambda at: at.last.ticks[-1]["level"] == CollectionLevel.OFF)
    assert not writer.is_on
    assert not writer.put(RecordBatch(events(5)))
    listener.say(CollectionLevel.ON)
    listener.wait(lambda at: at.last.ticks[-1]["level"] == CollectionLevel.ON)
    assert writer.put(RecordBatch(events(2)))
    writer.finish()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    assert heard.heads[0] == (Kind.EVENTS, 0, 2, Reason.DUTY_CYCLE)
    writer.thread.join(PATIENCE_S)
    assert told == [True, False, True, False]


def test_no_agent_is_one_line_and_the_next_records_say_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = threading.Event()
    writer = Writer(CollectorIdentity("test"), tmp_path / "a.sock", listener=lambda on: found.set() if on else None)
    assert not writer.start()
    assert [record.getMessage()[:30] for record in caplog.records] == ["deepprof: no agent listens at "]
    assert not writer.put(RecordBatch(events(3)))
    listener = Listener(tmp_path / "a.sock").start()
    assert found.wait(PATIENCE_S)
    assert writer.put(RecordBatch(events(1)))
    writer.finish()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    assert heard.heads[0] == (Kind.EVENTS, 3, 1, Reason.DISCONNECTED)
    assert "continues" not in heard.hello
    listener.stop()


def test_finish_without_an_agent_returns_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPPROF_QUIET", "1")
    writer = Writer(CollectorIdentity("test"), tmp_path / "none.sock")
    writer.start()
    writer.finish()
    writer.thread.join(PATIENCE_S)
    assert not writer.thread.is_alive()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # that is what it is about
def test_a_forked_child_says_nothing(listener: Listener, writer: Writer) -> None:
    listener.wait(lambda at: at.connections and at.last.ticks)
    child = os.fork()
    if child == 0:
        taken = writer.put(RecordBatch(events(9)))
        writer.finish()
        os._exit(int(taken))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.put(RecordBatch(events(2)))
    writer.finish()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    assert len(heard.events) == 2
    assert len(listener.connections) == 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_holds_nothing_open(listener: Listener, writer: Writer) -> None:
    listener.wait(lambda at: at.connections and at.last.ticks)
    assert writer.connection is not None
    numbers = [end.fileno() for end, _ in writer.connection.ends]
    child = os.fork()
    if child == 0:
        os._exit(sum(os.path.exists(f"/proc/self/fd/{number}") for number in numbers))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert writer.connection.is_whole


@pytest.mark.parametrize("end", [0, 1, 2])
def test_a_job_that_closes_all_descriptors_keeps_its_files(
    listener: Listener, writer: Writer, tmp_path: Path, end: int
) -> None:
    listener.wait(lambda at: at.connections and at.last.ticks)
    assert writer.connection is not None
    number = writer.connection.ends[end][0].fileno()
    mine = os.open(tmp_path / "mine", os.O_RDWR | os.O_CREAT)
    os.dup2(mine, number)
    writer.put(RecordBatch(events(2)))
    listener.wait(lambda at: len(at.connections) == 2 and at.last.ticks)
    writer.put(RecordBatch(events(3)))
    writer.finish()
    heard = listener.wait(lambda at: at.last.ended and at.last)
    assert heard.heads[-1][1] == 5
    assert len(heard.events) in {3, 5}  # the first two are lost, or come too where it saw in time what had become of it
    assert os.path.sameopenfile(mine, number)
    assert os.fstat(mine).st_size == 0
    os.close(number)
    os.close(mine)


def test_where_no_descriptor_or_thread_is_to_be_had_the_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    path = tmp_path / "socket"
    writer = Writer(CollectorIdentity("test"), path)
    with socket.socket(socket.AF_UNIX) as server, monkeypatch.context() as patch:
        server.bind(str(path))
        server.listen(1)
        patch.setattr(socket, "socketpair", refuse)
        assert connection.connect(path) is None
        patch.setattr(socket, "socket", refuse)
        assert connection.connect(path) is None
        patch.setattr(threading.Thread, "start", fail)
        assert not writer.start()
    assert "no thread can be started" in caplog.messages[-1]
    assert not writer.put(RecordBatch(events(1)))
    writer.finish()


def test_names_are_bounded_by_their_number_and_by_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALL_CHARS", 10)
    monkeypatch.setattr(module, "NAME_CHARS", 4)
    writer = Writer(CollectorIdentity("test"), Path("/nowhere"))
    assert writer.intern(["abcdef", "abcdxy", "ghij", "klm", "kl"]).tolist() == [1, 1, 2, 0, 3]
    assert writer.names == ["abcd", "ghij", "kl"]


def test_hello_says_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("SLURM_JOB_NAME", "two\nlines")
    speaker = CollectorIdentity("torch", stand_in=True, variables={"DEEPPROF_RANK": "7"})
    said = dict(line.split("=", 1) for line in speaker.hello().decode().splitlines())
    assert said["version"] == str(VERSION)
    assert said["pid"] == str(os.getpid())
    assert said["start"] == Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    assert len(said["session"]) == 32
    assert (said["collector"], said["format"], said["stand_in"]) == ("torch", "torch", "1")
    assert (said["env:RANK"], said["env:DEEPPROF_RANK"], said["env:SLURM_JOB_NAME"]) == ("3", "7", "two lines")
    assert "env:WORLD_SIZE" not in said
    assert len(said["command"]) > 3


def test_hello_stays_small_and_keeps_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PLACES:
        monkeypatch.setenv(name, "ü" * 5000)
    said = CollectorIdentity("torch").hello()
    assert len(said) <= 16 << 10
    assert said.endswith(b"\n")
    assert all("=" in line for line in said.decode().splitlines())


def test_the_socket_is_found_in_the_usual_order(tmp_path: Path) -> None:
    known = {"HOME": "/home/u"}
    assert find_socket({**known, "DEEPPROF_SOCKET": "/x/s"}) == Path("/x/s")
    assert find_socket({**known, "XDG_RUNTIME_DIR": "/run/user/1"}) == Path("/run/user/1/deepprof/agent.sock")
    assert find_socket(known, tmp_path) == Path("/home/u/.local/state/deepprof/agent.sock")
    (tmp_path / "deepprof").mkdir()
    (tmp_path / "deepprof/deepprof.sock").touch()
    assert find_socket(known, tmp_path) == tmp_path / "deepprof/agent.sock"


def test_clocks_are_read_together() -> None:
    device_ns, mono_ns, unix_ns = read_clocks()
    assert device_ns == unix_ns
    assert abs((time.time_ns() - unix_ns) - (time.monotonic_ns() - mono_ns)) < 10**9
    assert read_clocks(lambda: 5)[0] == 5


@pytest.mark.parametrize("environ", [{"XDG_RUNTIME_DIR": "/run/user/7"}, {"HOME": "/home/u"}, {"XDG_RUNTIME_DIR": ""}])
def test_the_socket_is_where_the_agent_listens(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    assert find_socket({"HOME": "/home/u", **environ}) == default_socket({"HOME": "/home/u", **environ})
