"""Calling contexts of a job from its packets, through an agent and a daemon, to all that shows them."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from deepprof.collectors.live.packets import Kind
from deepprof.commands import main
from deepprof.live.client.daemon import Daemon as Client
from deepprof.live.wire.figures import LeadingFigures
from deepprof.metrics.contexts.sent import read_sent
from tests.deepprof.live.agent import packets_made as made
from tests.deepprof.live.agent.agents import AgentProcess, Job, running_agent
from tests.deepprof.live.service.daemons import Daemon, running, wait_for
from tests.deepprof.live.service.sending import open_client
from tests.deepprof.render.test_pprof import check_invariants

SECOND, MINUTES = 10**9, 30
KERNEL_NS = 1000
NAMES = ["/home/me/train.py(5): step", "aten::mm", "/home/me/train.py(30): log", "aten::stack", "gemm"]
TREE = [(0, 1, 7, 0), (1, 2, 0, 1), (0, 3, 33, 0), (3, 4, 0, 1)]  # step → aten::mm, log → aten::stack
STEP, MM, LOG, STACK = 1, 2, 3, 4


@dataclass
class Shown:
    """A daemon that a job has told its contexts, and what the job did by context: count and host time."""

    daemon: Daemon
    client: Client
    begun_ns: int
    counts: Counter[int]
    host_ns: Counter[int]

    def fetch(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://{self.daemon.metrics}{path}") as answer:
            return bytes(answer.read())


def did(second: int) -> dict[int, tuple[int, int]]:
    """Return what contexts did in a second: a log that uses more and more."""
    log_ns = SECOND // 10 + second * SECOND // 10 // (60 * MINUTES) * 3
    return {STEP: (5, SECOND // 2), MM: (20, SECOND // 4), LOG: (5, log_ns), STACK: (5, log_ns * 9 // 10)}


def run_job(agent: AgentProcess, shown: Shown) -> None:
    """Speak as a job does that has run for half an hour, a window and a kernel each second."""
    job = Job(agent, env__DEEPPROF_JOB="train")
    now = time.monotonic_ns()
    begun = now - 60 * MINUTES * SECOND
    shown.begun_ns = begun + job.offset_ns
    job.tick(begun)
    job.name(*NAMES)
    job.write(Kind.CONTEXTS, made.contexts(TREE))
    for second in range(60 * MINUTES):
        start, kinds = begun + second * SECOND, {"kernel": second, "context": 4 * second}
        kernel = made.kernels([start + 5000], KERNEL_NS, name=5)
        kernel["correlation"] = second
        job.write(Kind.LAUNCHES, made.launches({second: MM}))
        job.write(Kind.EVENTS, made.events(job.next, kernel, **kinds))
        sums = made.window(start, did(second))
        job.write(Kind.CONTEXT_SUMS, made.sums(job.next + 1, sums, **kinds | {"kernel": second + 1}))
        job.next += 1 + len(sums)
        if second % 20 == 19:
            job.tick(start + SECOND)
        for context, (count, host_ns) in did(second).items():
            shown.counts[context] += count
            shown.host_ns[context] += host_ns
    wait_for(lambda: has_arrived(agent, job), "all of it has arrived")
    job.socket.close()  # it may yet come back


def has_arrived(agent: AgentProcess, job: Job) -> bool:
    """Return whether all is durable; the last window is sent when the clock states that no kernel of it may come."""
    job.tick()
    return sum(each.durable for each in agent.ask().processes) >= job.next


@pytest.fixture(scope="module")
def shown() -> Iterator[Shown]:
    folder = Path(tempfile.mkdtemp(prefix="dp-"))
    with (
        running(settings=["examine.every=1s"]) as daemon,
        running_agent(folder, daemon.address) as agent,
        closing(open_client(daemon)) as client,
    ):
        found = Shown(daemon, client, 0, Counter(), Counter())
        run_job(agent, found)
        wait_for(lambda: sum_of(found) == sum(found.counts.values()), "all of it is shown")
        yield found
    shutil.rmtree(folder)


def sum_of(shown: Shown) -> int:
    return int(shown.client.contexts("train").sums["count"].sum())


def test_the_tree_is_the_job_s(shown: Shown) -> None:
    history = shown.client.contexts("train", rank=0)
    table = read_sent(history.nodes).measure(history.sums)
    rows = {row["name"]: row for row in table.iter_rows(named=True)}
    assert rows["step"]["line"] == 7
    for name, context in {"step": STEP, "aten::mm": MM, "log": LOG, "aten::stack": STACK}.items():
        assert (rows[name]["own_count"], rows[name]["host_ns"]) == (shown.counts[context], shown.host_ns[context])
    assert rows["step"]["own_host_ns"] == shown.host_ns[STEP] - shown.host_ns[MM]
    assert (rows["aten::mm"]["device_count"], rows["step"]["device_ns"]) == (60 * MINUTES, 60 * MINUTES * KERNEL_NS)


def test_the_flame_is_drawn(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flame", "train", "--daemon", shown.daemon.address]) == 0
    title, first, *_ = capsys.readouterr().out.splitlines()
    assert title == "device time: 1.80 ms"
    assert "step me/train.py:7 › aten::mm" in first
    assert main(["flame", "train", "--daemon", shown.daemon.address, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert abs(told["start_unix_ns"] - shown.begun_ns) <= 60 * SECOND
    assert told["contexts"][0]["host"] == shown.host_ns[STEP] + shown.host_ns[LOG]


def leading(shown: Shown) -> LeadingFigures:
    (rank,) = shown.client.ranks("train")
    assert rank.contexts is not None
    return rank.contexts


def test_lines_of_code_lead_in_watch_and_in_metrics(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    found = {each.context: each for each in leading(shown).lines}
    assert found.keys() == {"step me/train.py:7", "log me/train.py:33"}
    assert main(["watch", shown.daemon.address, "--once"]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "device time" in each]
    assert line == "  device time: step me/train.py:7 100 %"
    text = shown.fetch("/metrics").decode()
    (series,) = [each for each in text.splitlines() if each.startswith("deepprof_context_host") and "log" in each]
    seconds = float(series.split()[-1])
    assert seconds == pytest.approx(found["log me/train.py:33"].host_ns / SECOND)
    assert 0.8 * shown.host_ns[LOG] < seconds * SECOND <= shown.host_ns[LOG]  # minutes that are over


def test_profilers_scrape_it(shown: Shown) -> None:
    profile = check_invariants(shown.fetch("/debug/pprof/contexts?seconds=600"))
    texts = list(profile.string_table)
    kinds = [texts[each.type] for each in profile.sample_type]
    totals = dict(zip(kinds, np.sum([list(sample.value) for sample in profile.sample], axis=0).tolist(), strict=True))
    history = shown.client.contexts("train", rank=0)
    start, end = profile.time_nanos, profile.time_nanos + profile.duration_nanos
    minutes = history.sums.filter(pl.col("time_ns").is_between(start, end, closed="left"))
    assert minutes["time_ns"].n_unique() == 10
    assert totals["count"] == minutes["count"].sum()
    assert totals["device"] == minutes["device_ns"].sum() > 500 * KERNEL_NS


def test_the_page_has_its_flame(shown: Shown) -> None:
    session = json.loads(shown.fetch("/api/documents/session"))
    (flame,) = [view for view in session["views"] if view["name"] == "flame"]
    document = json.loads(shown.fetch(f"/api/documents/{flame['documents'][0]['key']}"))
    host = [each["name"] for each in document["measures"]].index("host")
    assert document["value"][host][0] == pytest.approx(shown.host_ns[STEP] + shown.host_ns[LOG], rel=0.01)


def test_what_takes_longer_and_longer_is_found(shown: Shown) -> None:
    def find() -> list[str]:
        return [each.title for each in shown.client.findings("train").findings if each.rule == "rising-context"]

    assert wait_for(find, "the history was examined") == ["log me/train.py:33 takes longer and longer"]
    assert 'finding="rising-context"' in shown.fetch("/metrics").decode()


def test_a_job_that_never_sent_any_is_told_how(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flame", "nobody", "--daemon", shown.daemon.address]) == 2
    error = capsys.readouterr().err
    assert "there are: train" in error
    assert error.count("\n") == 1
