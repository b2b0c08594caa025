"""How many records of every kind a process has made: those that never left it too."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from deepprof.collectors.live.packets import RECORD_KINDS, Kind, Reason
from tests.collectors.live.building import build
from tests.collectors.live.reader import TRUTH, Agent, Connection, await_truth, finish_job, start_job
from tests.collectors.live.test_early import Run, say_welcome
from tests.patience import PATIENCE_S

KIND_OF = {3: "kernel", 10: "kernel", 1: "memcpy", 22: "memcpy", 2: "memset", 51: "graph", 38: "sync"}
FOREVER = 10_000_000


def by_kind(made: np.ndarray) -> dict[str, int]:
    return {kind: int(count) for kind, count in zip(RECORD_KINDS, made, strict=True) if count}


def count_truth(truth: Path) -> dict[str, int]:
    return dict(Counter(KIND_OF[kind] for kind in np.fromfile(truth, TRUTH)["kind"].tolist()))


def collect(tmp_path: Path, arguments: list[object], **settings: object) -> tuple[Connection, int]:
    """Run a job to its end; returns what was stated, and how many records the device dropped."""
    with Agent(tmp_path / "socket") as agent:
        own = {"DEEPPROF_SOCKET": agent.path, "JOB_TRUTH": tmp_path / "truth", "MOCK_PATIENT": 1}
        _, dropped, _ = finish_job(start_job(build("plain"), arguments, {**own, **settings}))
        return agent.only(), dropped


@pytest.mark.parametrize("graphs", ["nodes", "launches"])
def test_every_kind_is_counted_and_told_right_before_the_end(tmp_path: Path, graphs: str) -> None:
    said, _ = collect(tmp_path, ["mixed", 3000], DEEPPROF_GRAPHS=graphs)
    assert by_kind(said.made[-1]) == count_truth(tmp_path / "truth")
    assert said.order[-2:] == [Kind.TICK, Kind.END]
    assert by_kind(said.ticks[-1]["made"]) == by_kind(said.made[-1])


def test_each_packet_says_what_was_made_before_it(tmp_path: Path) -> None:
    said, _ = collect(tmp_path, ["mixed", 20_000])
    events, counts = said.events["activity"], np.zeros(len(RECORD_KINDS), np.int64)
    for (_, first, count, _), made in zip(said.frames, said.made, strict=True):
        assert made.tolist() == counts.tolist()
        counts += np.bincount(events[first : first + count], minlength=len(counts))
    assert len(said.frames) > 2


def test_what_the_queue_has_dropped_is_known_by_kind(tmp_path: Path) -> None:
    truth = tmp_path / "truth"
    settings = {"JOB_TRUTH": truth, "MOCK_PATIENT": 1, "DEEPPROF_QUEUE_NBYTES": 1 << 20, "DEEPPROF_BUFFERS": 4}
    with Agent(tmp_path / "socket") as agent:
        agent.gate.clear()
        job = start_job(build("plain"), ["steady", FOREVER], settings | {"DEEPPROF_SOCKET": agent.path})
        await_truth(lambda: truth.exists() and truth.stat().st_size > 60_000 * TRUTH.itemsize, "the queue to fill")
        agent.gate.set()
        job.send_signal(signal.SIGTERM)
        kept, _, _ = finish_job(job)
        said = agent.only()
    assert said.lost > 0
    assert by_kind(said.made[-1]) == {"kernel": kept} == count_truth(truth)


def test_a_tick_tells_why_the_latest_are_missing(tmp_path: Path) -> None:
    """No one knows when the next packet comes."""
    said, dropped = collect(tmp_path, ["unfinished", 600])
    tick = said.ticks[-1]
    assert dropped == 0
    assert (int(tick["next"]), int(tick["reason"])) == (600, Reason.DRIVER_DROPPED)
    assert by_kind(tick["made"]) == {"kernel": 600}


def test_records_without_a_time_that_can_be_true_are_known_by_kind(tmp_path: Path) -> None:
    said, _ = collect(tmp_path, ["garbage", 5000])
    assert (said.lost, said.count) == (500, 4500)
    assert by_kind(said.made[-1]) == {"kernel": 5000}


def test_of_what_the_driver_drops_no_kind_is_known(tmp_path: Path) -> None:
    said, dropped = collect(tmp_path, ["dropped", 60_000])
    assert dropped > 0
    assert by_kind(said.made[-1]) == count_truth(tmp_path / "truth")
    assert said.frames[-1][1] - int(said.made[-1].sum()) == dropped


def test_what_was_made_without_an_agent_is_known_to_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Agent(path) as first:
        job = start_job(build("plain"), ["steady", FOREVER], {"DEEPPROF_SOCKET": path})
        await_truth(lambda: first.connections and first.connections[0].count > 500, "records")
    with Agent(path) as second:
        await_truth(lambda: second.connections and second.connections[0].count > 500, "records again")
        job.send_signal(signal.SIGTERM)
        finish_job(job)
        again = second.only()
    assert [by_kind(made).get("kernel", 0) for made in again.made] == [first for _, first, _, _ in again.frames]


def test_a_forked_child_counts_from_the_beginning(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket") as agent:
        job = start_job(build("plain"), ["fork", 500], {"DEEPPROF_SOCKET": agent.path})
        _, err = job.communicate(timeout=PATIENCE_S)
        assert (job.returncode, err) == (0, "")
        await_truth(lambda: len(agent.connections) == 3 and all(c.closed for c in agent.connections), "all ends")
    assert sorted(by_kind(each.made[-1])["kernel"] for each in agent.connections) == [500, 500, 2000]


def test_ranges_beside_kernels_are_counted(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket") as agent:
        job = start_job(build("plain"), ["beside", 10], {"DEEPPROF_SOCKET": agent.path})
        await_truth(lambda: agent.connections and len(agent.connections[0].frames) > 3, "ranges")
        job.send_signal(signal.SIGTERM)
        finish_job(job)
        said = agent.only()
    ranges = sum(count for kind, _, count, _ in said.frames if kind is Kind.RANGES)
    assert by_kind(said.made[-1]) == {"kernel": 10, "range": ranges}


def test_ranges_that_a_full_ring_has_dropped_were_ranges(tmp_path: Path) -> None:
    with Agent(tmp_path / "socket") as silent:
        silent.answer = b""
        run = Run("plain", tmp_path, "start ranges 40000 line ranges 20", DEEPPROF_EARLY_MS=60_000)
        run.await_ready()
        say_welcome(silent)
        run.go_on()
        run.end()
        said = silent.only()
    assert said.lost > 0
    assert by_kind(said.made[-1]) == {"range": 40_020}
