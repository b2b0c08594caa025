"""Programs as they train on a GPU, each on a CUPTI as its version has it: what the device kept came, or was counted."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from deepprof.collectors.live.packets import CollectionLevel, Kind, Reason

from .building import build
from .reader import TRUTH, Agent, Connection, await_truth, finish_job, start_job

ITERATIONS = 60
OLD, NOW, PER_THREAD, FRAGILE, JOINED = 26, 28, 130001, 130000, 130500  # versions of CUPTI's interface
KERNELS = 24
CLOCK_NS = 500_000_000_000_000_000  # what the mock's clock is ahead of CLOCK_MONOTONIC


def train(
    folder: Path, program: str, api: int = NOW, count: int = ITERATIONS, **settings: object
) -> tuple[Connection, np.ndarray]:
    """Run the program; return what was stated, and what the device kept."""
    truth = folder / "truth"
    with Agent(folder / "socket") as agent:
        own = {
            "DEEPPROF_SOCKET": agent.path,
            "JOB_TRUTH": truth,
            "MOCK_API": api,
            "MOCK_LEFT": 1,
            "DEEPPROF_RETRY_MS": 40,
        }
        kept, _, _ = finish_job(start_job(build("plain"), [program, count], {**own, **settings}, "training"))
        said = agent.only()
    rows = np.fromfile(truth, TRUTH)
    assert said.ended
    assert len(rows) == kept
    return said, rows


def key(stream: int, correlation: int, length: int) -> tuple[int, int, int]:
    """Return what distinguishes a record from others; cycles of a clock made nanoseconds are one more or less."""
    return int(stream), int(correlation), round(int(length), -1)


def missing(said: Connection, rows: np.ndarray) -> Counter[tuple[int, int, int]]:
    """Return what the device kept and did not come; nothing may come that it did not keep."""
    kept = Counter(key(r["stream"], r["correlation"], r["end"] - r["start"]) for r in rows)
    came = Counter(key(r["stream"], r["correlation"], r["end_ns"] - r["start_ns"]) for r in said.events)
    assert not came - kept
    return kept - came


def reasons(said: Connection) -> set[Reason]:
    return {reason for *_, reason in said.frames if reason}


WHOLE = [
    ("eager", NOW, {}),
    ("eager", OLD, {}),
    ("eager", PER_THREAD, {"MOCK_CUDA": 13}),
    ("graphs", NOW, {}),
    ("graphs", PER_THREAD, {"DEEPPROF_GRAPHS": "launches"}),
    ("devices", NOW, {}),
    ("devices", PER_THREAD, {}),
    ("workers", NOW, {}),
    ("checkpoints", NOW, {}),
    ("waiting", NOW, {}),
    ("eager", NOW, {"MOCK_DRIVER": 300}),
]


@pytest.mark.parametrize(("program", "api", "settings"), WHOLE)
def test_everything_comes(tmp_path: Path, program: str, api: int, settings: dict[str, object]) -> None:
    said, rows = train(tmp_path, program, api, **settings)
    assert len(rows) >= ITERATIONS
    assert not missing(said, rows)
    assert said.lost == 0


def test_a_fragile_cupti_is_neither_switched_off_nor_flushed(tmp_path: Path) -> None:
    """The mock crashes where it is. What its last buffer contains is lost, and stated."""
    said, rows = train(tmp_path, "eager", FRAGILE, MOCK_LEFT=0)
    assert said.count > len(rows) - 200
    assert sum(missing(said, rows).values()) == len(rows) - said.count > 0
    assert said.lost == 1
    assert [code for code, _ in said.notices] == [11]


def test_a_graph_that_begins_on_the_host_is_on_the_device_where_it_ends(tmp_path: Path) -> None:
    said, rows = train(tmp_path, "graphs", DEEPPROF_GRAPHS="launches")
    assert set(rows["device"].tolist()) == {2**31 - 1}
    assert set(said.events["device"].tolist()) == {1}


def test_each_device_has_its_own(tmp_path: Path) -> None:
    said, rows = train(tmp_path, "devices")
    assert Counter(said.events["device"].tolist()) == Counter(rows["device"].tolist())
    assert set(rows["device"].tolist()) == {0, 1}


@pytest.mark.parametrize("api", [NOW, FRAGILE, JOINED])
def test_graphs_that_were_captured_between_two_windows_are_seen_in_the_next(tmp_path: Path, api: int) -> None:
    """Were CUPTI off at the capture, the graph's kernels would never be recorded; on 13.0 switching off can hang.

    What it writes between the windows, many times what there is room for, is no loss; the program waits for room.
    """
    window = tmp_path / "captured"
    with Agent(tmp_path / "socket") as agent:
        settings = {"DEEPPROF_SOCKET": agent.path, "MOCK_API": api, "JOB_WINDOW": window}
        settings |= {"MOCK_PATIENT": 1, "DEEPPROF_BUFFERS": 2}
        job = start_job(build("plain"), ["graphs", ITERATIONS], settings, "training")
        await_truth(lambda: agent.connections and agent.connections[0].count > ITERATIONS, "graphs")
        said = agent.connections[0]
        said.say(Kind.LEVEL, CollectionLevel.OFF)
        await_truth(lambda: said.ticks[-1]["level"] == CollectionLevel.OFF, "the end of the window")
        ticks, before = len(said.ticks), said.count
        await_truth(lambda: len(said.ticks) > ticks + 8, "ticks")
        window.touch()
        await_truth(lambda: not window.exists(), "the capture")
        assert said.count == before
        said.say(Kind.LEVEL, CollectionLevel.ON)
        await_truth(lambda: said.ticks[-1]["level"] == CollectionLevel.ON, "the next window")
        window.touch()
        finish_job(job)
        said = agent.only()
    assert said.ended
    assert said.lost == (api == FRAGILE)
    # 13.0 gives its last buffers only when they are full: a flush can crash it.
    assert api == FRAGILE or {1, 2} == set(said.events["graph"].tolist())
    assert api == FRAGILE or Counter(said.events["graph"].tolist())[2] == 40 * ITERATIONS
    assert [code for code, _ in said.notices] == ([11] if api == FRAGILE else [])


def durations(said: Connection) -> set[int]:
    return set((said.events["end_ns"] - said.events["start_ns"]).tolist())


@pytest.mark.parametrize("leaves", [0, 1])
def test_after_torch_profiler_times_are_nanoseconds_as_before(tmp_path: Path, leaves: int) -> None:
    """Its clock counts cycles and stays; and CUPTI gives one more kernel of every session the wrong one.

    Up to August 2026 its subscription stays, too: that is no reason to be silent for ever.
    """
    said, rows = train(tmp_path, "profiled", MOCK_TORCH_LEAVES=leaves)
    lost = missing(said, rows)
    assert sum(lost.values()) == said.lost == sum(range(1, 4))
    assert reasons(said) == {Reason.BUSY}  # what is lost then is lost for its sake
    assert durations(said) <= {199, 200, 201}
    starts = np.sort(said.events["start_ns"])
    truth = np.sort(rows["start"])
    ahead = starts - np.sort([r["start"] for r in rows if key(r["stream"], r["correlation"], 200) not in lost])
    assert np.abs(ahead).max() < 5_000_000, "all of it is on one clock"
    assert starts[-1] - starts[0] == pytest.approx(truth[-1] - truth[0], abs=5_000_000)
    for tick in said.ticks:
        assert tick["device_ns"] < 0 or abs(int(tick["device_ns"]) - int(tick["mono_ns"]) - CLOCK_NS) < 50_000_000


@pytest.mark.parametrize("api", [NOW, JOINED])
@pytest.mark.parametrize("program", ["unannounced", "proton-later"])
def test_who_comes_later_is_left_alone_and_told(tmp_path: Path, program: str, api: int) -> None:
    """The program itself looks whether what the other client enabled stays so.

    Of ours the other one has switched off what it used itself; the rest is no sign that someone collects. Where CUPTI
    does not show what is enabled, torch.profiler is left alone for six of the longest pauses.
    """
    unseen = {"JOB_LEFT_ALONE_MS": 6 * 20} if (program, api) == ("unannounced", NOW) else {}
    said, rows = train(tmp_path, program, api, DEEPPROF_RETRY_MS=20, **unseen)
    assert 10 in [code for code, _ in said.notices]
    assert Reason.BUSY in reasons(said)
    assert not Counter(said.events["correlation"].tolist()) - Counter(rows["correlation"].tolist())
    last = rows["correlation"].max()
    assert last in said.events["correlation"]


@pytest.mark.parametrize("leaves", [0, 1])
def test_what_is_enabled_tells_of_one_whose_subscription_does_not(tmp_path: Path, leaves: int) -> None:
    """torch.profiler has always one, or never; from 13.2 on CUPTI itself can be asked."""
    said, rows = train(tmp_path, "torch-first", JOINED, MOCK_TORCH_LEAVES=leaves)
    assert sum(missing(said, rows).values()) == said.lost == 1  # the first after it has a time of the wrong clock
    assert (reasons(said), {code for code, _ in said.notices}) == ({Reason.BUSY}, {3, 6})


def test_later_sessions_that_nobody_tells_of_are_survived(tmp_path: Path) -> None:
    """torch.profiler's clock and its subscription are there already, and what it did not use stays enabled."""
    said, rows = train(tmp_path, "unannounced-again", DEEPPROF_RETRY_MS=20, JOB_LEFT_ALONE_MS=6 * 20)
    assert rows["correlation"].max() in said.events["correlation"]
    assert [reason for *_, reason in said.frames if reason].count(Reason.BUSY) > 1


def test_contexts_that_nobody_can_ask_for_hold_no_subscription(tmp_path: Path) -> None:
    """Proton, which comes later, would be refused."""
    said, _ = train(tmp_path, "proton-later", DEEPPROF_CONTEXTS="pythons")
    assert 10 in {code for code, _ in said.notices}


@pytest.mark.parametrize("program", ["proton-first", "proton-before-torch"])
def test_who_is_there_first_is_left_alone(tmp_path: Path, program: str) -> None:
    said, rows = train(tmp_path, program)
    assert not missing(said, rows)
    assert (reasons(said), [code for code, _ in said.notices]) == ({Reason.BUSY}, [3])


def test_who_has_subscribed_does_not_matter_where_the_user_says_so(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket") as agent:
        settings = {"DEEPPROF_SOCKET": agent.path, "DEEPPROF_BESIDE": 1}
        job = start_job(build("plain"), ["proton-before-torch", 5], settings, "training")
        finish_job(job, 10)  # the program finds its other profiler disturbed
        assert agent.only().notices == []


def test_one_that_allows_others_is_joined(tmp_path: Path) -> None:
    said, rows = train(tmp_path, "monitor-first", JOINED)
    assert not missing(said, rows)
    assert said.lost == 0
    assert said.notices == []


def test_without_subscribers_of_their_own_nobody_is_joined(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket") as agent:
        settings = {"DEEPPROF_SOCKET": agent.path, "MOCK_API": PER_THREAD, "DEEPPROF_RETRY_MS": 20}
        finish_job(start_job(build("plain"), ["proton-first", 5], settings, "training"))
        assert [code for code, _ in agent.only().notices] == [3]


def test_a_driver_without_a_device_is_asked_nothing(tmp_path: Path) -> None:
    """The mock ends the process at a call of CUPTI."""
    with Agent(tmp_path / "socket") as agent:
        settings = {"DEEPPROF_SOCKET": agent.path, "MOCK_DRIVER": -1, "JOB_ALONE": 1}
        job = start_job(build("plain"), ["steady", 10**7], settings)
        await_truth(lambda: agent.connections[0].notices, "a notice")
        job.send_signal(signal.SIGTERM)
        assert finish_job(job)[0] == 0
        said = agent.only()
    assert [(code, "CUDA_VISIBLE_DEVICES" in text) for code, text in said.notices] == [(9, True)]


def test_a_driver_that_never_comes_up_is_said_at_the_end(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket") as agent:
        settings = {"DEEPPROF_SOCKET": agent.path, "MOCK_DRIVER": 10**9, "JOB_ALONE": 1}
        job = start_job(build("plain"), ["steady", 10**7], settings)
        await_truth(lambda: agent.connections[0].ticks[-1]["level"] == CollectionLevel.ON, "the level")
        job.send_signal(signal.SIGTERM)
        assert finish_job(job)[0] == 0
        said = agent.only()
    assert [(code, "did not come up" in text) for code, text in said.notices] == [(9, True)]


def test_a_slow_thread_is_heard_beside_a_busy_one(tmp_path: Path) -> None:
    """With a buffer for every thread, a busy one's full buffers state nothing of the slow one's."""
    with Agent(tmp_path / "socket") as agent:
        window = tmp_path / "heard"
        settings = {
            "DEEPPROF_SOCKET": agent.path,
            "JOB_WINDOW": window,
            "MOCK_API": PER_THREAD,
            "MOCK_KEEPS_THREADS": 1,
        }
        job = start_job(build("plain"), ["slow-beside-busy", 3], settings, "training")
        await_truth(lambda: agent.connections and 99 in agent.connections[0].events["stream"], "the slow thread's")
        window.touch()
        kept, _, _ = finish_job(job)
        said = agent.only()
    assert said.count == kept
    assert said.lost == 0


def test_what_may_still_come_is_not_promised(tmp_path: Path) -> None:
    """A collective waits for another rank, and keeps the buffer that it is in: others, filled later, come before it."""
    truth, window = tmp_path / "truth", tmp_path / "window"
    settings = {"JOB_TRUTH": truth, "JOB_WINDOW": window, "MOCK_KEEPS_THREADS": 1, "MOCK_PATIENT": 1}
    with Agent(tmp_path / "socket") as agent:
        own = {"DEEPPROF_SOCKET": agent.path}
        job = start_job(build("plain"), ["waiting", 600], own | settings, "training")
        await_truth(lambda: sum(tick["events_until_ns"] > 0 for tick in agent.connections[0].ticks) > 2, "promises")
        window.touch()
        finish_job(job)
        said = agent.only()
    rows = np.fromfile(truth, TRUTH)
    assert not missing(said, rows)
    waiting = int(rows["start"][rows["stream"] == 20][0])
    until = [int(tick["events_until_ns"]) for tick in said.ticks if tick["device_ns"] > 0]
    assert len([at for at in until[:-1] if at > 0]) > 1
    assert max(at for at in until[:-1]) <= waiting + 1_000_000
    assert until[-1] > waiting


def test_a_signal_ends_it_without_a_word(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket") as agent:
        settings = {"DEEPPROF_SOCKET": agent.path, "JOB_TRUTH": tmp_path / "truth"}
        job = start_job(build("plain"), ["signalled", 400], settings, "training")
        finish_job(job, -signal.SIGTERM)
        said = agent.only()
    rows = np.fromfile(tmp_path / "truth", TRUTH)
    came = said.events["correlation"]
    assert not said.ended
    assert said.lost == 0
    assert came.tolist() == rows["correlation"][: len(came)].tolist()


@pytest.mark.parametrize("api", [OLD, NOW])
def test_a_driver_that_keeps_all_buffers_gets_no_more(tmp_path: Path, api: int) -> None:
    """Below version 27 a request that gets nothing crashes the process: it gets scrap, whose records are counted."""
    with Agent(tmp_path / "socket", keep=False) as agent:
        settings = {"DEEPPROF_SOCKET": agent.path, "DEEPPROF_BUFFERS": 4, "MOCK_API": api}
        kept, dropped, _ = finish_job(start_job(build("plain"), ["late", 60_000], settings))
        said = agent.only()
    assert said.count + said.lost == kept + dropped == 60_000
    assert said.lost > 0
    assert (dropped == 0) == (api == OLD)
    assert Reason.DRIVER_DROPPED in reasons(said)
    assert int(said.ticks[-1]["driver_dropped"]) == said.lost


def test_threads_of_the_driver_do_not_bear_our_name(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket") as agent:
        job = start_job(build("plain"), ["steady", 10**7], {"DEEPPROF_SOCKET": agent.path, "MOCK_THREAD": 1})
        await_truth(lambda: agent.connections and agent.connections[0].count > 100, "records")
        found = [path.read_text().strip() for path in Path(f"/proc/{job.pid}/task").glob("*/comm")]
        job.send_signal(signal.SIGTERM)
        finish_job(job)
        agent.only()
    assert Counter(found) == Counter({"job": 2, "deepprof": 1})
