"""The daemon's page: who is shown what under which address, its events, and the documents of jobs."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from urllib.parse import quote

import pytest

from deepprof.live.service.examination import FindingSummary
from deepprof.live.service.exporter import DaemonSnapshot, Exporter, ExporterSettings
from deepprof.live.service.exporter.live_documents import write_live
from deepprof.live.service.exporter.snapshot import JobExamination
from deepprof.web.answers import POLICY
from deepprof.web.documents.live import MOST_FINDINGS, MOST_RANKS
from deepprof.web.events import STREAMS
from tests.deepprof.live.service.exporter.jobs import START_NS, make_device, make_rank, make_snapshot
from tests.deepprof.web.asking import ask, listen, read_event
from tests.patience import PATIENCE_S

ODD = "team/a </script> \u202e%2e%2e"
FOUND = FindingSummary("copy-bound", "critical", "Copies", "s", "Pin <it>", None, 0.9, 1_000_000)
EXAMINED = JobExamination(findings=(FOUND,), documents={"session": b'{"a": 1}', "iterations/0": b'{"b": 2}'})
RANK = make_rank("a", 0, START_NS, make_device(3, latest_ns=(1, 2, 3), median_iteration_ns=2, last_interval_ns=5))
SHOWN = make_snapshot(RANK, now_ns=START_NS, examinations={"a": EXAMINED, ODD: EXAMINED})
HOSTILE = [
    "../../etc/passwd",
    "%2e%2e/%2e%2e/etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "x" * 7000,
    "%00",
    "a//b",
    "%ff%fe",
]


class Shown:
    """A daemon whose snapshot a test changes."""

    def __init__(self, snapshot: DaemonSnapshot) -> None:
        self.snapshot = snapshot

    def look(self) -> DaemonSnapshot:
        return self.snapshot


@contextmanager
def serving(daemon: Shown, *hosts: str) -> Iterator[Exporter]:
    exporter = Exporter(("127.0.0.1", 0), daemon.look, settings=ExporterSettings(hosts=hosts))
    try:
        yield exporter
    finally:
        exporter.close()


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    with serving(Shown(SHOWN), "node7") as running:
        yield running


@pytest.mark.parametrize("path", ["/", "/jobs/a/", f"/jobs/{quote(ODD, safe='')}/"])
def test_the_page_runs_only_its_own_script(exporter: Exporter, path: str) -> None:
    status, text, headers = ask(exporter.address, path)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert headers["Content-Security-Policy"] == POLICY
    assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(POLICY.split("; "))
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert (headers["Referrer-Policy"], headers["Cache-Control"]) == ("no-referrer", "no-store")
    assert '<script src="/static/app.js">' in text
    assert text.count("<script") == text.count("</script>") == 2  # its data, and its own script


def test_documents_are_json_with_the_same_headers(exporter: Exporter) -> None:
    status, text, headers = ask(exporter.address, "/api/documents/live")
    assert (status, headers["Content-Type"], headers["Content-Security-Policy"]) == (200, "application/json", POLICY)
    rank = json.loads(text)["jobs"][0]["ranks"][0]
    assert (rank["iterations"], rank["latest_ns"], rank["median_ns"], rank["overlap_ratio"]) == (3, [1, 2, 3], 2, 0.5)
    session = json.loads(ask(exporter.address, "/api/documents/session")[1])
    assert session["server"] is True
    assert session["views"][0]["documents"][0]["key"] == "live"


def test_each_job_has_the_documents_of_its_latest_examination(exporter: Exporter) -> None:
    for job in ("a", ODD):
        of_job = f"/jobs/{quote(job, safe='')}"
        assert ask(exporter.address, f"{of_job}/api/documents/session")[:2] == (200, '{"a": 1}')
        assert ask(exporter.address, f"{of_job}/api/documents/iterations/0")[:2] == (200, '{"b": 2}')
        assert ask(exporter.address, f"{of_job}/api/documents/iterations/1")[0] == 404
        status, _, headers = ask(exporter.address, of_job)
        assert (status, headers["Location"]) == (308, f"{of_job}/")
    assert ask(exporter.address, "/jobs/unknown/")[0] == 404
    assert ask(exporter.address, "/jobs/unknown/api/documents/session")[0] == 404


@pytest.mark.parametrize("key", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("before", ["/", "/static/", "/api/documents/", "/jobs/", "/jobs/a/api/documents/"])
def test_hostile_keys_are_not_found_in_one_line(exporter: Exporter, before: str, key: str) -> None:
    status, text, _ = ask(exporter.address, f"{before}{key}")
    if status == 308:  # a job of that name may exist; its page states that it does not
        status, text, _ = ask(exporter.address, f"{before}{key}/")
    assert (status, text.count("\n"), text[-1]) == (404, 1, "\n")
    assert len(text) < 200


def test_a_key_of_ten_kilobytes_is_refused(exporter: Exporter) -> None:
    assert ask(exporter.address, f"/api/documents/{'x' * 10_000}")[0] == 431


@pytest.mark.parametrize("host", ["localhost:7601", "127.0.0.1", "[::1]:80", "NODE7:1", "192.0.2.7", "localhost."])
def test_the_page_is_shown_under_its_names(exporter: Exporter, host: str) -> None:
    assert ask(exporter.address, "/", Host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example:7601", "127.0.0.1.nip.io", "localhost.evil.example", "", "[", "a@b", "1"]
)
def test_other_names_are_refused_and_may_still_scrape(exporter: Exporter, host: str) -> None:
    for path in ("/", "/api/documents/live", "/api/events", "/jobs/a/", "/static/app.js"):
        status, text, _ = ask(exporter.address, path, Host=host)
        assert (status, text.count("\n")) == (400, 1)
    for path in ("/metrics", "/healthz", "/readyz"):
        assert ask(exporter.address, path, Host=host)[0] == 200


def test_events_come_at_once_and_when_something_changes() -> None:
    daemon = Shown(SHOWN)
    with serving(daemon) as exporter, listen(exporter.address, "/api/events") as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        assert read_event(stream) == {"retry": "2000"}
        live, findings = read_event(stream), read_event(stream)
        assert live is not None
        assert findings is not None
        assert (live["event"], findings["event"]) == ("live", "findings")
        assert live["data"]["jobs"][0]["name"] == "a"
        assert findings["data"][0]["headroom_ns"] == 1_000_000
        daemon.snapshot = replace(SHOWN, ranks=(replace(RANK, connected=False),))
        after = read_event(stream)
        assert after is not None
        assert (after["event"], after["data"]["jobs"][0]["ranks"][0]["state"]) == ("live", "away")
        exporter.close()
        assert read_event(stream) is None


def test_who_comes_back_gets_what_has_changed_since() -> None:
    daemon = Shown(SHOWN)
    with serving(daemon) as exporter, listen(exporter.address, "/api/events") as first:
        last = [read_event(first) for _ in range(3)][-1]
        assert last is not None
        with listen(exporter.address, "/api/events", last["id"]) as second:
            assert read_event(second) == {"retry": "2000"}
            daemon.snapshot = replace(SHOWN, why_not="draining", ready=False)
            event = read_event(second)
            assert event is not None
            assert event["data"]["why_not"] == "draining"
        with listen(exporter.address, "/api/events", "another-life-7") as third:
            events = [read_event(third) for _ in range(3)]
            assert {event.get("event") for event in events if event} == {None, "live", "findings"}


def test_so_many_streams_and_no_more() -> None:
    with serving(Shown(SHOWN)) as exporter, ExitStack() as open_ones:
        for _ in range(STREAMS):
            assert read_event(open_ones.enter_context(listen(exporter.address, "/api/events"))) is not None
        status, text, headers = ask(exporter.address, "/api/events")
        assert (status, text.count("\n"), headers["Retry-After"]) == (503, 1, "5")
        assert [ask(exporter.address, path)[0] for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3


def test_a_page_that_closes_makes_room() -> None:
    with serving(Shown(SHOWN)) as exporter:
        for _ in range(3 * STREAMS):
            status = 503
            while status == 503:  # until the server has heard of one that closed
                with listen(exporter.address, "/api/events") as stream:
                    status = stream.status
        client = socket.create_connection(exporter.address, timeout=PATIENCE_S)
        client.sendall(b"HEAD /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with client:
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200")
            assert client.recv(1) == b""


def test_ranks_beyond_the_limit_are_counted() -> None:
    ranks = [make_rank("big", rank, START_NS) for rank in range(MOST_RANKS + 7)]
    live = write_live(make_snapshot(*ranks, now_ns=START_NS))
    assert sum(len(job.ranks) for job in live.jobs) == MOST_RANKS
    assert live.left_out == 7


def test_findings_beyond_the_limit_are_counted() -> None:
    known = replace(EXAMINED, findings=(FOUND,) * (MOST_FINDINGS + 3))
    live = write_live(make_snapshot(RANK, now_ns=START_NS, examinations={"a": known}))
    assert (len(live.findings), live.left_out_findings) == (MOST_FINDINGS, 3)


def test_a_rank_without_iterations_has_no_times() -> None:
    (job,) = write_live(make_snapshot(make_rank("new", 0, START_NS), now_ns=START_NS)).jobs
    assert (job.ranks[0].median_ns, job.ranks[0].interval_ns, job.ranks[0].overlap_ratio) == (None, None, None)
    assert job.examined is False


def test_a_page_of_an_earlier_examination_has_to_begin_anew() -> None:
    daemon = Shown(SHOWN)
    with serving(daemon) as running:
        path = "/jobs/a/api/documents/"
        first = ask(running.address, f"{path}session")[2]["Etag"]
        assert ask(running.address, f"{path}iterations/0", **{"If-Match": first})[0] == 200
        later = replace(EXAMINED, documents={"session": b'{"a": 2}', "iterations/0": b'{"b": 3}'})
        daemon.snapshot = replace(SHOWN, examinations={"a": later})
        status, text, _ = ask(running.address, f"{path}iterations/0", **{"If-Match": first})
        assert (status, text) == (412, "the job was examined again meanwhile; reload the page\n")
        second = ask(running.address, f"{path}session")[2]["Etag"]
        assert second != first
        assert ask(running.address, f"{path}iterations/0", **{"If-Match": second})[1] == '{"b": 3}'
