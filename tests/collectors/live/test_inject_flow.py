"""Agents that are slow, gone, of another version or change their mind; a driver that is busy."""

import signal
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

from deepprof.collectors.live import packets
from deepprof.collectors.live.packets import CollectionLevel, Kind, Reason

from .building import build
from .reader import TRUTH, Agent, Connection, await_truth, finish_job, start_job

FOREVER = 10_000_000
FEW_BUFFERS = 4  # so that little waits with the driver, however late the collector is: what is more than that is queued


def numbers(said: Connection) -> list[int]:
    """Return the correlations that arrived: the job gives them in order, from 1."""
    return [int(number) for number in said.events["correlation"]]


def gaps(said: Connection) -> list[tuple[int, Reason]]:
    """Return the records missing before each packet that states why, or that misses some."""
    found, expected = [], 0
    for _, first, count, reason in said.frames:
        if first != expected or reason:
            found.append((first - expected, reason))
        expected = first + count
    return found


def stretches(said: Connection) -> list[tuple[int, int]]:
    """Return the numbers of the records that arrived without one missing: the first, and the one after the last."""
    found: list[tuple[int, int]] = []
    for _, first, count, _ in said.frames:
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], first + count)
        else:
            found.append((first, first + count))
    return found


def test_a_slow_reader_costs_whole_stretches_and_every_record_is_counted(tmp_path: Path) -> None:
    truth, queue = tmp_path / "truth", 1 << 20
    settings = {"JOB_TRUTH": truth, "MOCK_PATIENT": 1, "DEEPPROF_QUEUE_NBYTES": queue, "DEEPPROF_BUFFERS": FEW_BUFFERS}
    with Agent(tmp_path / "socket") as agent:
        agent.gate.clear()
        job = start_job(build("plain"), ["steady", FOREVER], settings | {"DEEPPROF_SOCKET": agent.path})
        await_truth(lambda: truth.exists() and truth.stat().st_size > 60_000 * TRUTH.itemsize, "the queue to fill")
        agent.gate.set()
        await_truth(lambda: agent.connections[0].count > 30_000, "records after the gap")
        job.send_signal(signal.SIGTERM)
        kept, dropped, _ = finish_job(job)
        said = agent.only()
    assert dropped == 0
    assert said.ended
    lost = [(missing, reason) for missing, reason in gaps(said) if missing]
    assert said.count + sum(missing for missing, _ in lost) == kept
    half_queue = queue // 2 // packets.EVENT.itemsize
    assert {reason for _, reason in lost} == {Reason.BUFFER_FULL}
    assert lost[0][0] >= half_queue - 2048
    taken = [end - begin for begin, end in stretches(said)]  # it may have filled again while it was emptied
    assert min(taken[:-1]) > half_queue // 2
    for _, first, count, _ in said.frames:  # what is between gaps is whole: the n-th record is the n-th launched
        place = sum(c for _, f, c, _ in said.frames if f < first)
        assert numbers(said)[place : place + count] == list(range(first + 1, first + count + 1))


def test_a_reader_of_half_the_speed_gets_few_long_stretches(tmp_path: Path) -> None:
    """Not many short ones: after a drop half of the queue must be free, and this much is taken until the next."""
    truth, queue, enough = tmp_path / "truth", 1 << 20, threading.Event()
    half_queue = queue // 2 // packets.EVENT.itemsize

    def read_half(said: Connection) -> None:
        await_truth(lambda: enough.is_set() or truth.stat().st_size >= 2 * said.nbytes, "the job to be ahead")

    def prepare(said: Connection) -> None:
        said.pace, said.piece_nbytes = read_half, 1 << 16

    settings = {"JOB_TRUTH": truth, "MOCK_PATIENT": 1, "DEEPPROF_QUEUE_NBYTES": queue, "DEEPPROF_BUFFERS": FEW_BUFFERS}
    with Agent(tmp_path / "socket") as agent:
        agent.prepare = prepare
        job = start_job(build("plain"), ["steady", FOREVER], settings | {"DEEPPROF_SOCKET": agent.path})
        await_truth(lambda: agent.connections and agent.connections[0].nbytes > 5 * queue, "records")
        enough.set()
        job.send_signal(signal.SIGTERM)
        kept, _, _ = finish_job(job)
        said = agent.only()
    lost = [missing for missing, _ in gaps(said) if missing]
    assert said.count + sum(lost) == kept
    assert len(lost) >= 2
    taken = [end - begin for begin, end in stretches(said)]
    assert min(taken[:-1]) > half_queue // 2


def test_without_an_agent_nothing_is_asked_of_the_driver(tmp_path: Path) -> None:
    settings = {"DEEPPROF_SOCKET": tmp_path / "nobody", "JOB_ALONE": 1}
    assert finish_job(start_job(build("plain"), ["burst", 1000], settings))[:2] == (0, 0)


def test_without_a_socket_nothing_runs(tmp_path: Path) -> None:
    assert finish_job(start_job(build("plain"), ["burst", 1000], {"JOB_ALONE": 1}))[:2] == (0, 0)


def test_a_path_that_is_too_long_is_said_once_and_the_job_runs(tmp_path: Path) -> None:
    job = start_job(build("plain"), ["burst", 10], {"DEEPPROF_SOCKET": "/" + "x" * 200, "JOB_ALONE": 1})
    out, err = job.communicate()
    assert (job.returncode, out.split()[:2], len(err.splitlines())) == (0, ["0", "0"], 1)
    assert "DEEPPROF_SOCKET is longer" in err


def test_a_reader_that_never_reads_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket") as agent:
        agent.gate.clear()
        settings = {"DEEPPROF_SOCKET": agent.path, "DEEPPROF_QUEUE_NBYTES": 1 << 20, "DEEPPROF_FINISH_MS": 200}
        kept, dropped, _ = finish_job(start_job(build("plain"), ["burst", 300_000], settings))
        assert kept + dropped == 300_000  # and the job ended, though no one took them


def test_a_level_of_off_asks_nothing_and_on_begins_a_complete_window(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket", level=CollectionLevel.OFF) as agent:
        job = start_job(build("plain"), ["steady", FOREVER], {"DEEPPROF_SOCKET": agent.path, "JOB_ALONE": 1})
        await_truth(lambda: agent.connections and len(agent.connections[0].ticks) > 1, "ticks")
        said = agent.connections[0]
        assert (said.count, {int(tick["level"]) for tick in said.ticks}) == (0, {0})
        for _ in range(2):
            before = said.count
            said.say(Kind.LEVEL, CollectionLevel.ON)
            await_truth(lambda before=before: said.count > before, "records")
            await_truth(lambda: int(said.ticks[-1]["level"]) == 1, "the level")
            said.say(Kind.LEVEL, CollectionLevel.OFF)
            await_truth(lambda: int(said.ticks[-1]["level"]) == 0, "the level")
        after, ticks = said.count, len(said.ticks)
        await_truth(lambda: len(said.ticks) > ticks + 1, "ticks")
        assert said.count == after
        job.send_signal(signal.SIGTERM)
        finish_job(job)
        agent.only()
    assert [reason for missing, reason in gaps(said)] == [Reason.DUTY_CYCLE] * (2 if said.ended else 1)
    assert said.lost == 0
    windows = np.split(numbers(said), np.flatnonzero(np.diff(numbers(said)) != 1) + 1)
    assert len(windows) == 2


@pytest.mark.parametrize("version", [28, 130000], ids=["stopped meanwhile", "never switched off"])
def test_an_agent_that_comes_back_hears_who_it_is_and_all_names_again(tmp_path: Path, version: int) -> None:
    path = tmp_path / "socket"
    with Agent(path) as first:
        job = start_job(build("plain"), ["steady", FOREVER], {"DEEPPROF_SOCKET": path, "MOCK_API": version})
        await_truth(lambda: first.connections and first.connections[0].count > 500, "records")
    with Agent(path) as second:
        await_truth(lambda: second.connections and second.connections[0].count > 500, "records again")
        job.send_signal(signal.SIGTERM)
        kept, _, _ = finish_job(job)
        again = second.only()
    before = first.connections[0]
    assert before.hello["session"] == again.hello["session"]
    assert ("continues" in before.hello, again.hello.get("continues")) == (False, "1")
    assert set(before.names.values()) <= set(again.names.values())
    _, number, _, reason = next(frame for frame in again.frames if frame[0] is Kind.EVENTS)
    assert (reason, number >= before.count) == (Reason.DISCONNECTED, True)
    assert number + again.count <= kept
    assert is_told_first(before)
    assert is_told_first(again)


def is_told_first(said: Connection) -> bool:
    """Return whether the device's clock was told before any record."""
    before = said.order[: said.order.index(Kind.EVENTS)].count(Kind.TICK)
    return before > 0 and int(said.ticks[before - 1]["device_ns"]) != packets.NO_TIME


@pytest.mark.parametrize(
    "answer",
    [
        struct.pack("<IHHIIII", packets.MAGIC, Kind.WELCOME, 0, 8, 0, packets.VERSION + 1, 1),
        struct.pack("<IHHIIII", packets.MAGIC + 1, Kind.WELCOME, 0, 8, 0, packets.VERSION, 1),
        struct.pack("<IHHII", packets.MAGIC, Kind.WELCOME, 0, 1 << 30, 0),
    ],
)
def test_an_agent_that_speaks_otherwise_is_left(tmp_path: Path, answer: bytes) -> None:
    with Agent(tmp_path / "socket") as agent:
        agent.answer = answer
        job = start_job(build("plain"), ["steady", FOREVER], {"DEEPPROF_SOCKET": agent.path, "JOB_ALONE": 1})
        await_truth(lambda: agent.connections and agent.connections[0].closed, "the end of the connection")
        assert set(agent.connections[0].order) <= {Kind.HELLO}  # none, where the answer arrived before the question
        job.send_signal(signal.SIGTERM)
        assert finish_job(job)[:2] == (0, 0)


def test_a_welcome_in_pieces_and_packets_that_are_not_known_are_understood(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket", level=CollectionLevel.OFF) as agent:
        job = start_job(build("plain"), ["backward", 10], {"DEEPPROF_SOCKET": agent.path})
        await_truth(lambda: agent.connections and agent.connections[0].ticks, "a tick")
        stranger = struct.pack("<IHHII12x", packets.MAGIC, 20, 0, 12, 0)
        for byte in stranger + struct.pack("<IHHIII", packets.MAGIC, Kind.LEVEL, 0, 4, 0, CollectionLevel.ON):
            agent.connections[0].stream.sendall(bytes([byte]))
        assert finish_job(job)[0] == 10
        assert agent.only().count == 10


def test_a_busy_driver_is_said_and_tried_again(tmp_path: Path) -> None:
    settings = {"DEEPPROF_SOCKET": tmp_path / "socket", "MOCK_BUSY": 2, "DEEPPROF_RETRY_MS": 50}
    with Agent(tmp_path / "socket") as agent:
        assert finish_job(start_job(build("plain"), ["backward", 100], settings))[0] == 100
        said = agent.only()
    ((code, text),) = said.notices
    assert (code, "another profiler has it (39, MOCK_ONE_SUBSCRIBER)" in text) == (3, True)
    assert gaps(said) == [(0, Reason.BUSY)]
    assert said.count == 100


def test_a_pause_is_over_before_another_profiler_begins(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket") as agent:
        finish_job(start_job(build("plain"), ["paused", 200], {"DEEPPROF_SOCKET": agent.path}))
        said = agent.only()
    assert said.count == 600
    assert {int(stream) for stream in said.events["stream"]} == {7, 8, 9}
    assert gaps(said) == [(0, Reason.BUSY)] * 3  # the last one on END


def test_kernels_come_while_ranges_do(tmp_path: Path) -> None:
    """A buffer that is far from full is requested when nothing came from CUPTI, whatever else comes."""
    with Agent(tmp_path / "socket") as agent:
        job = start_job(build("plain"), ["beside", 10], {"DEEPPROF_SOCKET": agent.path})
        await_truth(lambda: agent.connections and agent.connections[0].count == 10, "the kernels")
        ranges = [frame for frame in agent.connections[0].frames if frame[0] is Kind.RANGES]
        await_truth(lambda: int(agent.connections[0].ticks[-1]["events_until_ns"]) > 0, "the promise")
        job.send_signal(signal.SIGTERM)
        finish_job(job)
        assert agent.only().ended
    assert ranges


@pytest.mark.parametrize("count", [10, 300_000], ids=["over before it is measured", "at full speed"])
def test_the_clock_is_told_before_any_record(tmp_path: Path, count: int) -> None:
    """However fast they come: the agent keeps little of what it cannot lay on a clock."""
    with Agent(tmp_path / "socket", keep=False) as agent:
        finish_job(start_job(build("plain"), ["burst", count], {"DEEPPROF_SOCKET": agent.path}))
        said = agent.only()
    assert is_told_first(said)


def test_buffers_of_another_client_are_left_alone(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket") as agent:
        finish_job(start_job(build("plain"), ["stray", 200], {"DEEPPROF_SOCKET": agent.path}))
        said = agent.only()
    assert (said.count, said.lost, said.notices) == (600, 0, [])
    assert {int(stream) for stream in said.events["stream"]} == {7, 8, 9}


def test_a_library_that_is_no_cupti_is_said(tmp_path: Path) -> None:
    built = build("plain")
    settings = {"DEEPPROF_SOCKET": tmp_path / "socket", "JOB_ALONE": 1, "JOB_CUPTI": built.mock}
    with Agent(tmp_path / "socket") as agent:
        job = start_job(built, ["steady", FOREVER], settings | {"DEEPPROF_CUPTI": "/nowhere/libcupti.so"})
        await_truth(lambda: agent.connections and agent.connections[0].notices, "a notice")
        job.send_signal(signal.SIGTERM)
        finish_job(job)
        said = agent.only()
    assert [code for code, _ in said.notices] == [2]
    assert said.count == 0
    assert {int(tick["device_ns"]) for tick in said.ticks} == {packets.NO_TIME}
