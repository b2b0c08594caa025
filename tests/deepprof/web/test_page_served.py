"""The page from a server: behind its token, with what it requests when it is examined; and the page of two runs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deepprof
from deepprof.analysis import Analysis
from deepprof.commands import main
from deepprof.simulation import simulate, write
from deepprof.web.package import PageDocuments
from deepprof.web.server import ViewServer
from tests.browsing import Visit, browser, visit
from tests.deepprof.web.pages import analyze_ranks, open_page
from tests.patience import PATIENCE_S
from tests.tables import event, make_trace

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]


@contextmanager
def serving(analysis: Analysis) -> Iterator[str]:
    """Serve the page of an analysis, and give its address."""
    documents = PageDocuments(analysis, server=True)
    server = ViewServer(documents, title="job", failed=lambda error: pytest.fail(str(error)))
    try:
        yield server.address
    finally:
        server.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Return the address of the page of two ranks."""
    with serving(analyze_ranks()) as found:
        yield found


@pytest.fixture
def seen(address: str, browser: Browser) -> Iterator[Visit]:
    """Open the page, and fail at the end where it stated or did what it must not."""
    visited = visit(browser, address)
    visited.wait("findings")
    yield visited
    visited.check()
    visited.page.context.close()


def test_the_token_leaves_the_address(seen: Visit, address: str) -> None:
    home = address.partition("?")[0]
    assert seen.page.url.partition("#")[0] == home
    assert "token" not in seen.page.content()


def test_without_the_token_there_is_no_page(address: str, browser: Browser) -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_S * 1000)
    answer = page.goto(address.partition("?")[0])
    assert answer is not None
    assert answer.status == 403
    assert page.locator("#app").count() == 0
    page.close()


def test_any_iteration_has_its_timeline_and_is_asked_for_when_it_is_looked_at(seen: Visit) -> None:
    asked: list[str] = []
    seen.page.on("request", lambda request: asked.append(request.url.rpartition("/api/documents/")[2]))
    seen.open("timeline?loop=0")
    for iteration in (5, 6, 5):
        seen.open(f"timeline?loop=0&iteration={iteration}")
        assert f"Iteration {iteration}" in seen.text("main .tools").splitlines()
        assert seen.text(".inspector h2") == f"iteration {iteration}"
    assert [key for key in asked if "/" in key] == ["timeline/0/5", "timeline/0/6"]


def read_download(seen: Visit) -> tuple[str, list[dict[str, Any]]]:
    """Return the name of the file that the region's button saves, and its events."""
    with seen.page.expect_download() as started:
        seen.page.get_by_role("button", name="Download region").click()
    download = started.value
    trace = json.loads(gzip.decompress(Path(download.path()).read_bytes()))
    return download.suggested_filename, trace["traceEvents"]


def test_a_region_is_saved_as_a_trace_of_what_is_in_it(seen: Visit) -> None:
    document = json.loads(PageDocuments(analyze_ranks()).find("timeline/0/5") or b"")
    kernels = [row for row, kind in enumerate(document["kind"]) if document["kinds"][kind] == "kernel"]
    row = kernels[len(kernels) // 2]
    counts = {}
    for box in (None, row):
        seen.open(f"timeline?loop=0&iteration=5&box={box or 0}")
        name, events = read_download(seen)
        assert name == "region-0-5.json.gz"
        counts[box] = [event["name"] for event in events if event.get("cat") == "kernel"]
    assert len(counts[None]) > 300
    assert 1 <= len(counts[row]) <= 3  # itself, and what other streams run meanwhile
    assert any(document["strings"][document["title"][row]].split("<", maxsplit=1)[0] in name for name in counts[row])


def test_a_server_that_is_gone_is_a_sentence(browser: Browser) -> None:
    with serving(analyze_ranks()) as address:
        seen = visit(browser, address)
        seen.wait("findings")
    seen.page.get_by_role("navigation").get_by_role("link", name="Flame").click()
    assert seen.page.inner_text("main [role=alert]") == "The server does not answer; is it still running?"
    assert all("ERR_CONNECTION_REFUSED" in problem for problem in seen.problems)
    seen.page.context.close()


def test_a_trace_without_a_loop_says_why_and_what_to_record(browser: Browser) -> None:
    with serving(deepprof.analyze(make_trace([event(k, 100 * k, 100 * k + 50) for k in range(5)]))) as address:
        seen = visit(browser, address)
        seen.wait("findings")
        for view in ("iterations", "timeline"):
            seen.open(view)
            assert "No iteration was found" in seen.text("main .problem")
            assert "ecord at least three iterations" in seen.text("main .problem")
        seen.open("flame")
        assert "record the host's operators or ranges" in seen.text("main .problem")
        seen.check()
        seen.page.context.close()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page that `deepprof diff` writes about two runs, of which the second waits for its input."""
    folder = tmp_path_factory.mktemp("both")
    for name, scenario in {"a": "healthy", "b": "input-bound"}.items():
        write(simulate(scenario, iterations=8), folder / f"{name}.json")
    assert main(["diff", str(folder / "a.json"), str(folder / "b.json"), "-o", str(folder / "x.html")]) == 0
    return folder / "x.html"


def test_the_answers_of_both_runs_are_on_the_page(both: Path, browser: Browser, tmp_path: Path) -> None:
    files = [str(both.parent / f"{name}.json") for name in ("a", "b")]
    assert main(["diff", *files, "--format", "json", "-o", str(tmp_path / "x.json")]) == 0
    runs = json.loads((tmp_path / "x.json").read_text())
    seen = open_page(browser, both)
    shown = seen.page.locator(".answers dd").all_inner_texts()
    assert shown == [runs[run]["headline"]["summary"] for run in ("a", "b")]
    assert "waits for data" in shown[1]
    seen.check()
    seen.page.context.close()


def test_the_steps_of_two_runs_open(both: Path, browser: Browser) -> None:
    seen = open_page(browser, both)
    assert "<title>a.json → b.json · DeepProf</title>" in both.read_text()
    assert seen.page.locator("main").get_attribute("data-view") == "diff"
    steps = seen.page.locator("button.fall")
    assert steps.count() >= 2
    for step in steps.all():
        step.click()
        assert step.get_attribute("aria-expanded") == "true"
        title = step.locator(".fall-title").inner_text()
        assert seen.text(".behind").startswith(f"{title}: ")
    assert seen.page.locator(".behind").count() == 1
    seen.page.get_by_label("in the order of the parts").check()
    seen.open("flame")
    assert {"much more", "much less"} <= set(seen.text("main .legend").split("\n"))
    seen.check()
    seen.page.context.close()
