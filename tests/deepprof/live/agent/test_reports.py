"""A directory where reports appear: each is sent once, when it is done, under the right name."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from deepprof.collectors.errors import UsageError
from deepprof.collectors.importers import read
from deepprof.live.agent import reports as module
from deepprof.live.agent.notices import NoticeLog
from deepprof.live.agent.reports import (
    EXPORT_S,
    RETRY_S,
    ReportFile,
    ReportMemory,
    ReportSource,
    name_of,
    read_report,
    sender_to,
)
from deepprof.live.client.credentials import Credentials
from deepprof.live.client.endpoint import find_endpoint
from deepprof.live.client.errors import DaemonError
from deepprof.simulation import simulate, write
from tests.deepprof.live.client.fake_daemon import ALLOWED, FakeDaemon, listen, short_folder
from tests.deepprof.render.test_shared_report import write_capture
from tests.patience import PATIENCE_S

from .receiving import TurningClock


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("made") / "job.json.gz"
    write(simulate("healthy", iterations=3), path)
    return path


class Watch:
    """A source on a folder, with a clock that turns when told to, and what it has sent."""

    def __init__(self, folder: Path, **changes) -> None:
        self.clock, self.lines, self.sent, self.error = TurningClock(), [], [], None
        changes = {"send": self.send, "clock": self.clock} | changes
        self.source = ReportSource(folder, "job", notices=NoticeLog(self.lines.append), **changes)

    async def send(self, shipment) -> int:
        if self.error is not None:
            raise self.error
        self.sent.append(shipment)
        return sum(trace.accounting.kept for trace in shipment.traces)

    def look(self, seconds: float = 0.0) -> list[str]:
        """Look after `seconds`; return the jobs of what has been sent so far."""
        self.clock.now += seconds
        asyncio.run(self.source.look())
        return [shipment.job for shipment in self.sent]


def test_a_report_is_sent_once_when_it_no_longer_changes(tmp_path, report):
    watch = Watch(tmp_path)
    assert watch.look() == []
    part = report.read_bytes()
    (tmp_path / "run.json.gz").write_bytes(part[: len(part) // 2])
    assert watch.look() == []
    (tmp_path / "run.json.gz").write_bytes(part)
    assert watch.look(6) == []
    assert watch.look(4) == []
    assert watch.look(2) == ["job/run"]
    assert watch.look(100) == ["job/run"]
    assert watch.source.state()["counts"] == {"reports": 1, "records": read(report).accounting.kept}
    json.dumps(watch.source.state())
    assert watch.lines == []


def test_a_report_that_changes_later_is_sent_again(tmp_path, report):
    watch = Watch(tmp_path)
    shutil.copy(report, tmp_path / "run.json.gz")
    watch.look()
    assert watch.look(6) == ["job/run"]
    os.utime(tmp_path / "run.json.gz", ns=(5, 5))
    watch.look()
    assert watch.look(6) == ["job/run", "job/run"]


def test_another_agent_sends_nothing_twice(tmp_path, report):
    folder, memory = tmp_path / "reports", tmp_path / "memory.json"
    folder.mkdir()
    shutil.copy(report, folder / "a.json.gz")
    first = Watch(folder, memory=ReportMemory(memory))
    first.look()
    assert first.look(6) == ["job/a"]
    shutil.copy(report, folder / "b.json.gz")
    second = Watch(folder, memory=ReportMemory(memory))
    second.look()
    assert second.look(6) == ["job/b"]
    (folder / "a.json.gz").unlink()
    shutil.copy(report, folder / "c.json.gz")
    third = Watch(folder, memory=ReportMemory(memory))
    third.look()
    assert third.look(6) == ["job/c"]
    assert set(ReportMemory(memory).reports) == {"b.json.gz", "c.json.gz"}


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"a": {"nbytes": "x"}}', b"\xff\xfe"])
def test_a_memory_that_is_damaged_is_forgotten(tmp_path, content):
    (tmp_path / "memory.json").write_bytes(content)
    memory = ReportMemory(tmp_path / "memory.json")
    assert memory.reports == {}
    memory.add("a", ReportFile(1, 2), {"a": 1})
    assert ReportMemory(tmp_path / "memory.json").has("a", ReportFile(1, 2))


def test_a_memory_that_cannot_be_written_is_a_line(tmp_path, report):
    folder = tmp_path / "reports"
    folder.mkdir()
    shutil.copy(report, folder / "a.json.gz")
    watch = Watch(folder, memory=ReportMemory(tmp_path / "nowhere" / "memory.json"))
    watch.look()
    assert watch.look(6) == ["job/a"]
    assert watch.look(60) == ["job/a"]
    assert "cannot write down" in watch.lines[0]


def test_files_that_name_their_rank_are_one_job(tmp_path, report):
    for name in ("rank-0.json.gz", "rank-3.json.gz"):
        shutil.copy(report, tmp_path / name)
    watch = Watch(tmp_path)
    watch.look()
    assert sorted(watch.look(6)) == ["job", "job"]
    assert sorted(shipment.traces[0].rank for shipment in watch.sent) == [0, 3]


def test_what_is_no_report_is_left_alone(tmp_path, report):
    (tmp_path / "train.log").write_text("epoch 1\n" * 100)
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    (tmp_path / ".hidden.json.gz").write_bytes(report.read_bytes())
    (tmp_path / "empty.sqlite").write_bytes(b"")
    (tmp_path / "link.json.gz").symlink_to(report)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    watch = Watch(tmp_path)
    watch.look()
    assert watch.look(100) == []
    assert watch.lines == []
    assert watch.source.counts == {"other": 2}


@pytest.mark.parametrize("name", ["a.sqlite", "a.rpd", "a.pt.trace.json", "a.xplane.pb"])
def test_a_report_that_cannot_be_read_is_one_line_until_it_changes(tmp_path, name, report):
    (tmp_path / name).write_bytes(b"nothing of the kind" * 100)
    watch = Watch(tmp_path)
    for seconds in (0, 6, 6, 6):
        assert watch.look(seconds) == []
    assert len(watch.lines) == 1
    assert name in watch.lines[0]
    assert watch.source.counts["unreadable"] == 1
    (tmp_path / name).write_bytes(report.read_bytes())
    watch.look()
    assert watch.look(6) == ["job/a"]


def test_a_raw_report_says_how_it_is_exported(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "run.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report" + b"\0" * 100)
    watch = Watch(tmp_path)
    watch.look()
    watch.look(EXPORT_S - 1)
    assert watch.lines == []
    watch.look(2)
    assert "nsys export --type sqlite" in watch.lines[0]
    watch.look(100)
    assert len(watch.lines) == 1


@pytest.mark.traces
def test_a_raw_report_beside_its_database_is_passed_over(tmp_path, traces):
    (tmp_path / "run.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report" + b"\0" * 100)
    shutil.copy(traces / "cs336-ihor/result.sqlite", tmp_path / "run.sqlite")
    watch = Watch(tmp_path)
    watch.look()
    assert watch.look(6) == ["job/run"]
    assert watch.look(EXPORT_S) == ["job/run"]
    assert watch.lines == []


@pytest.mark.traces
def test_what_holds_the_same_is_sent_once(tmp_path, traces):
    shutil.copy(traces / "rpd-matmul/matmul_result.rpd", tmp_path / "a.rpd")
    shutil.copy(traces / "rpd-matmul-json/matmul_result.json", tmp_path / "a.json")
    os.utime(tmp_path / "a.json", ns=(2 * 10**18, 2 * 10**18))  # made of the other
    watch = Watch(tmp_path)
    watch.look()
    assert watch.look(6) == ["job/a"]
    assert watch.sent[0].traces[0].format == "rpd"


def test_an_archive_is_a_job_of_its_own(tmp_path, report):
    with zipfile.ZipFile(tmp_path / "both.zip", "w") as archive:
        for name in ("rank0.json.gz", "rank1.json.gz"):
            archive.write(report, name)
    watch = Watch(tmp_path)
    watch.look()
    assert watch.look(6) == ["job/both"]
    assert [trace.rank for trace in watch.sent[0].traces] == [0, 1]


def test_while_the_daemon_is_away_reports_wait(tmp_path, report):
    for name in ("a.json.gz", "b.json.gz"):
        shutil.copy(report, tmp_path / name)
        os.utime(tmp_path / name, ns=(ord(name[0]), ord(name[0])))
    watch = Watch(tmp_path)
    watch.error = DaemonError("unix:/x", "cannot be reached", "start it", passing=True)
    watch.look()
    watch.look(6)
    watch.error = None
    assert watch.look(RETRY_S - 1) == []
    assert watch.look(2) == ["job/a", "job/b"]
    assert len(watch.lines) == 1
    assert "waits" in watch.lines[0]


@pytest.mark.parametrize("error", [DaemonError("unix:/x", "refused", "mend it"), UsageError("no such name")])
def test_what_the_daemon_refuses_is_not_tried_again(tmp_path, report, error):
    shutil.copy(report, tmp_path / "a.json.gz")
    watch = Watch(tmp_path)
    watch.error = error
    for seconds in (0, 6, 100, 100):
        watch.look(seconds)
    watch.error = None
    assert watch.look(100) == []
    assert len(watch.lines) == 1


def test_a_directory_that_comes_later(tmp_path, report):
    watch = Watch(tmp_path / "later")
    watch.look()
    watch.look(6)
    assert len(watch.lines) == 1
    (tmp_path / "later").mkdir()
    shutil.copy(report, tmp_path / "later" / "a.json.gz")
    watch.look()
    assert watch.look(6) == ["job/a"]


def test_a_directory_with_too_much_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ENTRIES", 3)
    for name in range(5):
        (tmp_path / f"{name}.log").write_text("x")
    watch = Watch(tmp_path)
    watch.look()
    assert len(watch.source.present) == 3
    assert "more than 3 entries" in watch.lines[0]


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("worker0.1623143089861.pt.trace.json.gz", "worker0.1623143089861"),
        ("result.v2.sqlite", "result.v2"),
        ("a.nsys-rep", "a"),
        ("noending", "noending"),
        (".json", ".json"),
    ],
)
def test_names_without_their_formats(name, stem):
    assert name_of(Path(name)) == stem


def test_a_name_that_no_job_may_have_is_mended(tmp_path, report):
    path = tmp_path / "läuft (2).json.gz"
    shutil.copy(report, path)
    shipment = read_report(path, "job")
    assert shipment is not None
    assert shipment.job == "job/l-uft-2"


def test_it_watches_until_it_is_cancelled(tmp_path, report):
    watch = Watch(tmp_path)
    shutil.copy(report, tmp_path / "a.json.gz")

    async def run():
        task = asyncio.create_task(watch.source.run())
        async with asyncio.timeout(PATIENCE_S):
            while not watch.sent:
                await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_a_daemon_gets_it_once_even_without_a_memory(tmp_path, report):
    shutil.copy(report, tmp_path / "a.json.gz")
    daemon, kept = FakeDaemon(), read(report).accounting.kept
    with short_folder() as folder, listen(daemon, folder) as address:
        endpoint = find_endpoint(address, environ={})
        for _ in range(2):
            watch = Watch(tmp_path, send=sender_to(endpoint, NoticeLog(print)))
            watch.look()
            watch.look(6)
            assert watch.source.counts["records"] == kept
    assert daemon.rank().durable == kept


def test_a_token_that_is_just_being_replaced_says_nothing_of_a_report(tmp_path, report):
    token, reports = tmp_path / "token", tmp_path / "reports"
    token.write_text("let-me-in\n")
    token.chmod(0o600)
    reports.mkdir()
    shutil.copy(report, reports / "a.json.gz")
    daemon, kept = FakeDaemon(), read(report).accounting.kept
    daemon.token = ALLOWED
    with short_folder() as folder, listen(daemon, folder) as address:
        endpoint = find_endpoint(address, Credentials(token_file=str(token)), environ={})
        watch = Watch(reports, send=sender_to(endpoint, NoticeLog(print)))
        watch.look()
        token.rename(tmp_path / "moved")
        watch.look(6)
        assert watch.source.state()["waiting"] == 1
        (tmp_path / "moved").rename(token)
        watch.look(RETRY_S)
    assert watch.source.counts == {"reports": 1, "records": kept}
    assert len(watch.lines) == 1
    assert "waits" in watch.lines[0]


def test_each_process_of_a_report_is_a_rank_of_its_job(tmp_path):
    path = write_capture(tmp_path / "rank3.sqlite")
    shipment = read_report(path, "job")
    assert shipment.job == "job/rank3"
    assert [(trace.rank, trace.path) for trace in shipment.traces] == [(0, f"{path}:4100"), (1, f"{path}:4200")]
