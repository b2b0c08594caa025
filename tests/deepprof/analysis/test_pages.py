"""The page of every real trace: each view opens from a file, without an error and without a request to elsewhere."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deepprof
from deepprof.live.service.exporter import DaemonSnapshot, Exporter
from deepprof.live.service.exporter.snapshot import JobExamination
from deepprof.web.documents.iterations import MOST_ITERATIONS
from deepprof.web.html import write_report
from deepprof.web.package import PageDocuments, write_documents
from deepprof.web.server import ViewServer
from tests.browsing import Visit, browser, visit
from tests.deepprof.analysis.conftest import Analyzed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]

pytestmark = pytest.mark.traces
MOST_NBYTES = 3 << 20  # of a page: the largest trace has 230,000 events

Page = tuple[PageDocuments, dict[str, Any], Path]
Server = Callable[[PageDocuments], AbstractContextManager[str]]


@pytest.fixture(scope="module")
def page(file: Analyzed, tmp_path_factory: pytest.TempPathFactory) -> Page | None:
    """Return what a file's documents are, their values by key, and its page; None for a file that is refused."""
    _, analysis = file
    if isinstance(analysis, deepprof.TraceError):
        return None
    documents = PageDocuments(analysis)
    written = [*documents.list_all(), *documents.list_regions()]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_bytes(write_report("job", written))
    return documents, {key: json.loads(document) for key, document in written}, path


def test_all_that_a_session_lists_is_there(page: Page | None) -> None:
    if page is None:
        return
    documents, values, path = page
    analysis = documents.analysis
    listed = [entry["key"] for view in values["session"]["views"] for entry in view["documents"]]
    assert set(values) >= {"session", *listed}
    assert all((view["problem"] is None) == bool(view["documents"]) for view in values["session"]["views"])
    assert path.stat().st_size <= MOST_NBYTES
    for number, loop in enumerate(analysis.loops):
        iterations = values[f"iterations/{number}"]
        rows = loop.iterations.head(MOST_ITERATIONS)
        assert iterations["left_out"] == loop.iterations.height - rows.height
        assert iterations["length_ns"] == (rows["busy_ns"] + rows["idle_ns"]).to_list()
        assert [sum(row) for row in zip(*iterations["parts"], strict=True)] == iterations["length_ns"]


def test_regions_are_traces_of_what_runs_in_them(page: Page | None) -> None:
    for key, region in () if page is None else page[1].items():
        if key.startswith("region/"):
            trace = json.loads(gzip.decompress(base64.b64decode(region["gzip_base64"])))
            assert any(event.get("cat") in {"kernel", "graph"} for event in trace["traceEvents"]), key


@contextmanager
def serving(documents: PageDocuments) -> Iterator[str]:
    """Serve a page as `deepprof view` does."""
    failures: list[BaseException] = []
    shown = PageDocuments(documents.analysis, server=True)
    server = ViewServer(shown, title=shown.session.title, failed=failures.append)
    try:
        yield server.address
    finally:
        server.close()
    assert failures == []


@contextmanager
def serving_job(documents: PageDocuments) -> Iterator[str]:
    """Serve what a daemon would keep of an examination of these records."""
    kept = JobExamination(documents=write_documents(documents.analysis))
    snapshot = DaemonSnapshot(now_unix_ns=0, ready=True, examinations={"a job/1": kept})
    exporter = Exporter(("127.0.0.1", 0), lambda: snapshot)
    try:
        yield f"http://127.0.0.1:{exporter.address[1]}/jobs/a%20job%2F1/"
    finally:
        exporter.close()


def look_at_all(seen: Visit, session: dict[str, Any], documents: int = 1) -> None:
    """Open each view with its first documents; nothing may go wrong."""
    seen.page.wait_for_selector("main[data-view]")  # after the token's first answer, where there is one
    for view in session["views"]:
        seen.open(view["name"])
        if view["problem"] is not None:
            assert view["problem"][:40] in seen.text()
        for entry in view["documents"][1:documents]:
            seen.open(f"{view['name']}?document={entry['key']}")
    assert session["answer"]["lines"][0] in seen.text("body")
    seen.check()
    seen.page.context.close()


@pytest.mark.widens(3)
@pytest.mark.parametrize("server", [serving, serving_job], ids=["view", "daemon"])
def test_every_view_opens_from_a_server(page: Page | None, server: Server, browser: Browser) -> None:
    if page is None or not page[0].analysis.loops:
        return
    documents, values, _ = page
    with server(documents) as address:
        look_at_all(visit(browser, address), values["session"])


def test_every_view_opens_from_a_file(page: Page | None, browser: Browser) -> None:
    if page is None:
        return
    _, values, path = page
    look_at_all(visit(browser, path.as_uri()), values["session"], documents=3)
