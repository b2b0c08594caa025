"""`deepprof.attach` with a real torch on a CPU: what arrives is what torch shows, and the job's own is untouched."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepprof
from deepprof.collectors.live import torch_profiler
from deepprof.collectors.live.packets import ANNOTATION, CollectionLevel, Kind, Reason
from tests.collectors.live.listener import Heard, Listener
from tests.patience import PATIENCE_S

torch: Any = pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")

# As errors torch's own warnings break its profiler in the middle of a cycle.
pytestmark = pytest.mark.filterwarnings("ignore:.*Profiler (clears|won't):UserWarning")

LEFT_OUT = {  # by prof.events(), though the trace file has them
    *("profiler::_record_function_enter", "profiler::_record_function_enter_new", "profiler::_record_function_exit"),
    *("aten::is_leaf", "aten::output_nr", "aten::_version"),
}


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    started = Listener(tmp_path / "a.sock").start()
    monkeypatch.setenv("DEEPPROF_SOCKET", str(started.path))
    monkeypatch.delenv("DEEPPROF_INJECT", raising=False)
    yield started
    started.stop()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # that is what it is about
def test_a_forked_child_attaches_whatever_the_parents_threads_held(tmp_path: Path) -> None:
    speaker = torch_profiler.CollectorIdentity("torch")
    with torch_profiler.LOCK:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(PATIENCE_S))
            writer = torch_profiler.obtain(tmp_path / "nobody", speaker)
            os._exit(int(writer.is_over))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def train(iterations: int, profiler: Any = None) -> None:
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(iterations):
        with torch.profiler.record_function("mine"):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
        if profiler is not None:
            profiler.step()


def ended(listener: Listener) -> Heard:
    return listener.wait(lambda at: at.connections and at.last.ended and at.last)


def shown(heard: Heard) -> Counter[str]:
    return Counter(name for name in heard.texts(heard.ranges) if name not in LEFT_OUT)


def test_what_arrives_is_what_torch_shows(listener: Listener, tmp_path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        attachment = deepprof.attach(profiler, job="j", rank=2, world_size=4)
        train(5)
    attachment.detach()
    heard = ended(listener)
    assert set(shown(heard)) == {event.trace_name for event in profiler.events()}  # which joins some that have one name
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    document = json.loads((tmp_path / "t.json").read_text())
    kinds = {"cpu_op": 0, "user_annotation": ANNOTATION}
    written = [event for event in document["traceEvents"] if event.get("cat") in kinds]
    assert Counter(heard.texts(heard.ranges)) == Counter(event["name"] for event in written)
    assert Counter(heard.ranges["category"].tolist()) == Counter(kinds[event["cat"]] for event in written)
    assert Counter(heard.ranges["thread"].tolist()) == Counter(event["tid"] for event in written)
    assert (attachment.cycles, attachment.records, attachment.lost_cycles) == (1, len(written), 0)
    said = heard.hello
    assert (said["collector"], said["stand_in"]) == ("torch", "1")
    assert (said["env:DEEPPROF_JOB"], said["env:DEEPPROF_RANK"], said["env:DEEPPROF_WORLD_SIZE"]) == ("j", "2", "4")


def test_allocations_are_those_of_the_trace(listener: Listener, tmp_path: Path) -> None:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        attachment = deepprof.attach(profiler)
        train(4)
    attachment.detach()
    heard = ended(listener)
    assert heard.notices == []
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    expected = deepprof.read(tmp_path / "t.json").memory_events
    tick = heard.ticks[-1]
    changes, offset_ns = heard.changes, int(tick["unix_ns"]) - int(tick["mono_ns"])
    assert attachment.records == len(heard.ranges) + len(changes)
    assert len(changes) == expected.height > 20
    assert np.abs(changes["time_ns"] + offset_ns - expected["time_ns"].to_numpy()).max() < 10**6
    for name in ("nbytes", "address", "allocated_nbytes", "reserved_nbytes", "device", "thread"):
        assert changes[name].tolist() == expected[name].to_list(), name


def test_times_are_those_of_the_trace_on_the_monotonic_clock(listener: Listener) -> None:
    with torch.profiler.profile() as profiler:
        attachment = deepprof.attach(profiler)
        train(3)
    attachment.detach()
    heard = ended(listener)
    tick = heard.ticks[-1]
    offset_ns = int(tick["unix_ns"]) - int(tick["mono_ns"])
    events = profiler.profiler.kineto_results.events()
    mine = sorted(event.start_ns() for event in events if event.name() == "mine")
    ranges = heard.ranges[np.array(heard.texts(heard.ranges)) == "mine"]
    assert np.abs(np.sort(ranges["start_ns"]) + offset_ns - mine).max() < 10**6  # what the clocks are apart meanwhile
    assert (ranges["depth"] == 0).all()
    assert heard.ranges["end_ns"].max() < tick["ranges_until_ns"]
    assert int(tick["ranges_until_ns"]) + offset_ns - int(tick["events_until_ns"]) < 10**6


def test_every_cycle_of_a_schedule_is_whole_and_the_job_keeps_its_handler(listener: Listener, tmp_path: Path) -> None:
    handler = torch.profiler.tensorboard_trace_handler(str(tmp_path / "board"))
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=3)
    profiler = torch.profiler.profile(schedule=schedule, on_trace_ready=handler)
    attachment = deepprof.attach(profiler)
    with profiler:
        train(14, profiler)
    assert profiler.on_trace_ready is attachment.ours
    attachment.detach()
    assert profiler.on_trace_ready is handler
    assert len(list((tmp_path / "board").iterdir())) == 3
    heard = ended(listener)
    reasons = [reason for kind, _, _, reason in heard.heads if kind is Kind.RANGES]
    assert reasons == [Reason.NONE, Reason.DUTY_CYCLE, Reason.DUTY_CYCLE]
    assert shown(heard)["mine"] == 6
    assert heard.heads[-1][1] == len(heard.ranges) == attachment.records
    steps = [name for name in heard.texts(heard.ranges) if name.startswith("ProfilerStep#")]
    assert steps == [f"ProfilerStep#{at}" for at in (2, 3, 6, 7, 10, 11)]


def test_cycles_without_pauses_are_cycles_all_the_same(listener: Listener) -> None:
    profiler = torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=0, active=2))
    attachment = deepprof.attach(profiler)
    with profiler:
        train(6, profiler)
    attachment.detach()
    assert shown(ended(listener))["mine"] == 6


def test_errors_of_the_jobs_handler_are_its_own(listener: Listener) -> None:
    def handler(profiler: Any) -> None:
        raise ZeroDivisionError("theirs")

    profiler = torch.profiler.profile(on_trace_ready=handler)
    attachment = deepprof.attach(profiler)
    with pytest.raises(ZeroDivisionError, match="theirs"), profiler:
        train(1)
    attachment.detach()
    assert shown(ended(listener))["mine"] == 1


def test_an_error_of_ours_is_one_line_and_the_job_goes_on(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(torch_profiler, "read_cycle", fail)
    seen: list[Any] = []
    profiler = torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=1), on_trace_ready=seen.append
    )
    attachment = deepprof.attach(profiler)
    listener.wait(lambda at: at.connections and at.last.ticks)
    with profiler:
        train(4, profiler)
    attachment.detach()
    assert seen == [profiler] * 2
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_without_an_agent_the_job_runs_as_ever(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Any] = []
    with torch.profiler.profile(on_trace_ready=seen.append) as profiler:
        attachment = deepprof.attach(profiler, socket=str(tmp_path / "none.sock"))
        train(2)
    attachment.detach()
    assert seen == [profiler]
    assert attachment.lost_cycles == 1
    assert len(caplog.records) == 1


def test_under_deepprof_run_it_leaves_the_rank_to_the_library(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DEEPPROF_INJECT", "/some/library.so")
    with torch.profiler.profile() as profiler:
        attachment = deepprof.attach(profiler)
        train(1)
    attachment.detach()
    assert (attachment.cycles, attachment.records) == (1, 0)
    assert [record.getMessage()[:40] for record in caplog.records] == ["deepprof: this job runs under `deepprof "]
    assert not listener.connections


def test_an_agent_that_wants_nothing_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(tmp_path / "a.sock", CollectionLevel.OFF).start()
    profiler = torch.profiler.profile()
    attachment = deepprof.attach(profiler, socket=str(listener.path))
    listener.wait(lambda at: at.connections and at.last.ticks)
    monkeypatch.setattr(torch_profiler, "read_cycle", None)
    with profiler:
        train(1)
    attachment.detach()
    assert (attachment.cycles, attachment.lost_cycles, attachment.failed) == (1, 1, False)
    assert len(ended(listener).ranges) == 0
    listener.stop()


def test_profilers_of_one_process_share_its_connection(listener: Listener) -> None:
    attachments = []
    for _ in range(2):
        with torch.profiler.profile() as profiler:
            attachments.append(deepprof.attach(profiler, job="j"))
            train(2)
    for attachment in attachments:
        attachment.detach()
        attachment.detach()
    heard = ended(listener)
    assert len(listener.connections) == 1
    assert shown(heard)["mine"] == 4


def test_the_rank_is_asked_of_torch_where_nothing_else_says_it(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 5)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 8)
    attachment = deepprof.attach(torch.profiler.profile())
    attachment.detach()
    said = ended(listener).hello
    assert (said["env:DEEPPROF_RANK"], said["env:DEEPPROF_WORLD_SIZE"]) == ("5", "8")


SCRIPT = f"""
import sys, torch, deepprof
from deepprof.collectors.live import connection, writer
connection.ENDING_S = writer.FINISH_S = {PATIENCE_S}
with torch.profiler.profile() as profiler:
    deepprof.attach(profiler)
    for _ in range(3):
        with torch.profiler.record_function("mine"):
            torch.ones(8).sum()
print(sorted({{"polars", "grpc", "msgspec", "rich"}} & set(sys.modules)))
"""


def test_a_script_that_just_ends_has_sent_all_and_loads_no_libraries(listener: Listener) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert shown(ended(listener))["mine"] == 3
