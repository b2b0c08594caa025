"""The server of `deepprof view`: nothing without the token, its documents and regions, and Perfetto's own page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deepprof.collectors.errors import UsageError
from deepprof.web import perfetto
from deepprof.web.answers import POLICY
from deepprof.web.perfetto import PerfettoPage, find_perfetto
from deepprof.web.server import ViewServer
from tests.deepprof.web.asking import ask

HOSTILE = ["../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc%2fpasswd", "x" * 7000, "%00", "//etc/passwd"]


class Made:
    """Documents of no analysis; notes in which threads it is asked."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def find(self, key: str) -> bytes | None:
        self.threads.add(threading.current_thread().name)
        if key == "bug":
            raise ZeroDivisionError(key)
        return {"session": b'{"a": 1}', "iterations/0": b"{}"}.get(key)

    def cut(self, loop: int, iteration: int, from_ns: int | None = None, to_ns: int | None = None) -> bytes | None:
        return repr((loop, iteration, from_ns, to_ns)).encode() if loop == 0 else None


@contextmanager
def serving(page: PerfettoPage | None = None) -> Iterator[ViewServer]:
    server = ViewServer(Made(), title="</title><script>", perfetto=page, failed=lambda error: pytest.fail(str(error)))
    try:
        yield server
    finally:
        server.close()
        server.close()


@pytest.fixture(scope="module")
def server() -> Iterator[ViewServer]:
    with serving() as running:
        yield running


def see(server: ViewServer, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    return ask(("127.0.0.1", server.port), path, **headers)


def enter(server: ViewServer) -> str:
    """Return the cookie of who has opened the whole address."""
    status, _, headers = see(server, server.address.partition(str(server.port))[2])
    assert (status, headers["Refresh"]) == (200, "0; url=/")
    cookie, *attributes = headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(attributes)
    return cookie


@pytest.mark.parametrize(
    "path", ["/", "/?token=", "/?token=x", "/?token=%C3%A9", "/static/app.js", "/api/documents/session", "/x"]
)
def test_nothing_is_shown_without_the_token(server: ViewServer, path: str) -> None:
    for cookie in ("", "x=y", f"deepprof-{server.port}=wrong", "deepprof-1=\u00e9"):
        status, text, _ = see(server, path, Cookie=cookie)
        assert (status, text.count("\n")) == (403, 1)


def test_the_address_leads_to_the_page(server: ViewServer) -> None:
    cookie = enter(server)
    status, text, headers = see(server, "/", Cookie=f"a=b; {cookie}")
    assert (status, headers["Content-Security-Policy"]) == (200, POLICY)
    assert "</title><script>" not in text
    assert see(server, "/api/documents/session", Cookie=cookie)[:2] == (200, '{"a": 1}')
    assert see(server, "/api/documents/iterations%2F0", Cookie=cookie)[:2] == (200, "{}")


def test_two_servers_on_one_host_have_cookies_of_their_own(server: ViewServer) -> None:
    with serving() as other:
        cookies = f"{enter(server)}; {enter(other)}"
        assert [see(each, "/", Cookie=cookies)[0] for each in (server, other)] == [200, 200]
        assert see(other, "/", Cookie=enter(server))[0] == 403


def test_another_name_of_this_machine_is_refused(server: ViewServer) -> None:
    assert see(server, "/", Cookie=enter(server), Host=f"evil.example:{server.port}")[0] == 400
    assert see(server, "/", Cookie=enter(server), Host=f"localhost:{server.port}")[0] == 200


@pytest.mark.parametrize("key", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_keys_are_not_found_in_one_line(server: ViewServer, key: str) -> None:
    cookie = enter(server)
    for before in ("/static/", "/api/documents/", "/"):
        status, text, _ = see(server, before + key, Cookie=cookie)
        assert (status, text.count("\n")) == (404, 1)
    for path in (f"/api/region/{key}/0", f"/api/region/0/{key}", f"/api/region/0/1?from_ns={key}&to_ns=2"):
        status, text, _ = see(server, path, Cookie=cookie)
        assert (status in (400, 404), text.count("\n")) == (True, 1)
    assert ask(("127.0.0.1", server.port), "/api/documents/" + "x" * 10_000)[0] == 431


def test_a_region_is_a_file_to_save(server: ViewServer) -> None:
    cookie = enter(server)
    status, text, headers = see(server, "/api/region/0/12", Cookie=cookie)
    assert (status, text, headers["Content-Type"]) == (200, "(0, 12, None, None)", "application/gzip")
    assert headers["Content-Disposition"] == 'attachment; filename="loop-0-iteration-12.trace.json.gz"'
    assert see(server, "/api/region/0/12?from_ns=-5&to_ns=70", Cookie=cookie)[1] == "(0, 12, -5, 70)"
    assert see(server, "/api/region/1/0", Cookie=cookie)[0] == 404
    for wrong in ("0/x", "0/1?from_ns=3", "0/1?from_ns=a&to_ns=b", "9999999999999999999/0", "0/٣"):
        assert see(server, f"/api/region/{wrong}".replace("٣", "%D9%A3"), Cookie=cookie)[0] == 400


def test_a_bug_is_one_line_and_a_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as server:
        status, text, _ = see(server, "/api/documents/bug", Cookie=enter(server))
    assert (status, text.count("\n")) == (500, 1)
    assert "Traceback" not in text
    assert "ZeroDivisionError" in caplog.text


def test_a_port_that_is_taken_is_a_usage_error(server: ViewServer) -> None:
    with pytest.raises(UsageError, match="choose another"):
        ViewServer(Made(), title="t", port=server.port, failed=print)


def make_perfetto(folder: Path) -> PerfettoPage:
    (folder / "web_dist" / "v1").mkdir(parents=True)
    (folder / "web_dist" / "index.html").write_text("<script>start()</script>")
    (folder / "web_dist" / "v1" / "engine.wasm").write_bytes(b"\0asm")
    (folder / "secret").write_text("secret")
    page = find_perfetto()
    assert page is not None
    return page


def test_perfetto_is_served_from_the_package_that_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(perfetto, "find_spec", lambda _: Spec)
    assert find_perfetto() is None
    with serving(make_perfetto(tmp_path)) as server:
        cookie = enter(server)
        status, text, headers = see(server, "/perfetto/", Cookie=cookie)
        assert (status, text) == (200, "<script>start()</script>")
        policy = headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "script-src 'self' 'wasm-unsafe-eval' 'sha256-" in policy
        assert see(server, "/perfetto/v1/engine.wasm", Cookie=cookie)[2]["Content-Type"] == "application/wasm"
        for missing in ("../secret", "v1/../../secret", "..%2fsecret", "v1", "x"):
            assert see(server, f"/perfetto/{missing}", Cookie=cookie)[0] == 404
        assert see(server, "/perfetto/")[0] == 403
