"""The exporter's server: three paths, and clients that are slow, silent, many or hostile."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deepprof.collectors.errors import UsageError
from deepprof.live.service.exporter import DaemonSnapshot, Exporter, ExporterSettings
from deepprof.live.service.exporter.exporter import CONTENT_TYPE, SCRAPES
from deepprof.web.connection import ConnectionLimits
from tests.deepprof.live.service.exporter.jobs import START_NS, make_device, make_rank, make_snapshot
from tests.patience import PATIENCE_S

SMALL = make_snapshot(make_rank("a", 0, START_NS, make_device(3)), now_ns=START_NS)
LARGE = make_snapshot(*(make_rank("a", rank, START_NS, make_device(3)) for rank in range(2000)), now_ns=START_NS)


@contextmanager
def serving(
    look: Callable[[], DaemonSnapshot] = lambda: SMALL, settings: ExporterSettings | None = None
) -> Iterator[Exporter]:
    exporter = Exporter(("127.0.0.1", 0), look, settings=settings)
    try:
        yield exporter
    finally:
        exporter.close()


@pytest.fixture(scope="module")
def exporter() -> Iterator[Exporter]:
    with serving() as running:
        yield running


def ask(exporter: Exporter, path: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    connection = HTTPConnection(*exporter.address, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), {name.title(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def connect(exporter: Exporter, said: bytes = b"") -> socket.socket:
    client = socket.create_connection(exporter.address, timeout=PATIENCE_S)
    client.sendall(said)
    return client


def hear(client: socket.socket) -> bytes:
    """Return all that is stated until the connection closes, in whatever way."""
    heard = b""
    with client, suppress(ConnectionError):
        while piece := client.recv(1 << 20):
            heard += piece
    return heard


def test_a_scrape_is_the_ranks_and_the_process(exporter: Exporter) -> None:
    status, text, headers = ask(exporter, "/metrics")
    assert (status, headers["Content-Type"], headers["Content-Length"]) == (200, CONTENT_TYPE, str(len(text)))
    names = {family.name for family in text_string_to_metric_families(text)}
    assert {"deepprof_iterations", "deepprof_build_info", "process_cpu_seconds"} <= names


def test_only_three_paths_and_the_page_are_there(exporter: Exporter) -> None:
    assert ask(exporter, "/healthz")[:2] == (200, "alive\n")
    assert ask(exporter, "/readyz")[:2] == (200, "ready\n")
    for path in ("/metrics/", "/x", "/metrics/../etc/passwd", "//metrics", "/%2e%2e", "http://other/metrics"):
        assert ask(exporter, path)[0] == 404
    assert ask(exporter, "/metrics?name[]=up")[1].startswith("# HELP deepprof_build_info")


def test_a_head_is_answered_without_a_body(exporter: Exporter) -> None:
    client = connect(exporter, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    head, body = hear(client).split(b"\r\n\r\n")
    assert (head[:15], body) == (b"HTTP/1.1 200 OK", b"")
    assert int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]) > 1000


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
def test_other_methods_are_refused(exporter: Exporter, method: str) -> None:
    assert ask(exporter, "/metrics", method)[0] == 405


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"GET /metrics\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 9000 + b"\r\n\r\n", 431),
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 60_000, 431),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n" + b"a" * 50_000, 405),
    ],
)
def test_what_is_no_request_is_refused_with_a_reason(exporter: Exporter, said: bytes, status: int) -> None:
    client = connect(exporter, said)
    head, body = hear(client).split(b"\r\n\r\n")
    assert int(head.split()[1]) == status
    assert body.endswith(b"\n")
    assert ask(exporter, "/healthz")[0] == 200


def test_a_daemon_that_is_not_ready_says_why() -> None:
    states = {"why": "replaying the journal: 40 %"}
    with serving(lambda: make_snapshot(ready=not states["why"], why_not=states["why"])) as exporter:
        assert ask(exporter, "/readyz")[:2] == (503, "replaying the journal: 40 %\n")
        assert ask(exporter, "/healthz")[0] == 200
        states["why"] = ""
        assert ask(exporter, "/readyz")[0] == 200


def test_a_daemon_that_hangs_is_alive_and_not_ready() -> None:
    hangs = threading.Event()

    def look() -> DaemonSnapshot:
        hangs.wait(PATIENCE_S)
        return SMALL

    with serving(look, ExporterSettings(ready_s=0.1)) as exporter:
        for _ in range(3):
            assert ask(exporter, "/readyz")[0] == 503
        assert ask(exporter, "/healthz")[0] == 200
        hangs.set()
        assert ask(exporter, "/metrics")[0] == 200


@pytest.mark.parametrize("error", [ValueError("odd"), OSError("odd"), TimeoutError("odd"), EOFError("odd")])
def test_a_look_that_fails_is_an_answer_and_a_line_in_the_log(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def look() -> DaemonSnapshot:
        raise error

    with serving(look) as exporter:
        assert [ask(exporter, path)[0] for path in ("/metrics", "/readyz", "/healthz")] == [500, 500, 200]
        assert "Traceback" not in ask(exporter, "/metrics")[1]
    assert "odd" in caplog.text


def test_a_client_that_says_nothing_is_told_so() -> None:
    with serving(settings=ExporterSettings(request_s=0.1)) as exporter:
        for said in (b"", b"GET /met"):
            assert hear(connect(exporter, said)).startswith(b"HTTP/1.1 408 ")


def test_a_thousand_idle_connections_keep_nobody_waiting() -> None:
    patient = ExporterSettings(request_s=2 * PATIENCE_S)  # who waits for one of them waits in vain
    with serving(settings=patient) as exporter, ExitStack() as open_ones:
        clients = [open_ones.enter_context(connect(exporter, b"GET /h")) for _ in range(500)]
        assert ask(exporter, "/healthz")[0] == 200
        assert ask(exporter, "/metrics")[0] == 200
        assert hear(clients[0]) == b""  # cut, as were all but the latest
        latest = clients[-1]
        latest.sendall(b"ealthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert hear(latest).endswith(b"alive\n")


def read_slowly(exporter: Exporter) -> socket.socket:
    """Return a client that has begun to read a scrape and reads no more."""
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.settimeout(PATIENCE_S)
    slow.connect(exporter.address)
    slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert slow.recv(8) == b"HTTP/1.1"
    return slow


def test_slow_readers_are_few() -> None:
    patient = ExporterSettings(answer_s=2 * PATIENCE_S)  # none of them is cut
    with serving(lambda: LARGE, patient) as exporter:
        with ExitStack() as open_ones:
            for _ in range(SCRAPES):
                open_ones.enter_context(read_slowly(exporter))
            assert ask(exporter, "/metrics")[0] == 503
            assert [ask(exporter, path)[0] for path in ("/readyz", "/healthz")] == [200, 200]
        deadline = time.monotonic() + PATIENCE_S
        while ask(exporter, "/metrics")[0] != 200:
            assert time.monotonic() < deadline


def test_slow_readers_are_cut() -> None:
    with serving(lambda: LARGE, ExporterSettings(answer_s=0.5)) as exporter, ExitStack() as open_ones:
        slow = [open_ones.enter_context(read_slowly(exporter)) for _ in range(SCRAPES)]
        deadline = time.monotonic() + PATIENCE_S
        connection = connect(exporter, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        while b" 200 " not in hear(connection)[:15]:  # until one of them has made room
            assert time.monotonic() < deadline
            connection = connect(exporter, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        heard = hear(slow[0])
        assert len(heard) < int(re.search(rb"content-length: (\d+)", heard)[1])  # type: ignore[index]


def test_a_client_that_leaves_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with serving(lambda: LARGE) as exporter:
        for said in (b"", b"GET /", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):
            for _ in range(3):
                connect(exporter, said).close()
        deadline = time.monotonic() + PATIENCE_S
        while ask(exporter, "/metrics")[0] != 200:
            assert time.monotonic() < deadline
    assert not caplog.records


def test_many_at_once_are_all_answered(exporter: Exporter) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(ask(exporter, "/healthz")[0]))
        for _ in range(ConnectionLimits().connections // 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [200] * len(threads)


def test_an_address_that_is_taken_is_a_usage_error(exporter: Exporter) -> None:
    for address in (exporter.address, ("127.0.0.1", 70_000), ("256.0.0.1", 0)):
        with pytest.raises(UsageError, match="choose another") as caught:
            Exporter(address, lambda: SMALL)
        assert "\n" not in str(caught.value)


def test_closing_twice_is_closing_once() -> None:
    with serving() as exporter:
        idle = connect(exporter)
        exporter.close()
        assert hear(idle) == b""
        with pytest.raises(ConnectionError):
            connect(exporter)
        exporter.close()


def test_without_prometheus_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(UsageError, match=r'pip install "deepprof\[service\]"'):
        Exporter(("127.0.0.1", 0), lambda: SMALL)
