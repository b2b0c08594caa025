"""What is selected is in the address: it survives a reload, goes back and forward, and is the same in all views."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deepprof.web.package import PageDocuments
from deepprof.web.server import ViewServer
from tests.browsing import Visit, browser, visit
from tests.deepprof.web.pages import analyze_ranks, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]

NONSENSE = (
    "<script>alert(1)</script>",
    "timeline?loop=99&box=1e9",
    "timeline?loop=-1&rank=NaN&iteration=0x10&box=999999999999999",
    "flame?document=../../etc/passwd&measure=__proto__&box=99999",
    "flame?document=__proto__",
    "iterations?iteration=999999&loop=0",
    "ranks?rank=77&iteration=12345",
    "findings?finding=4000",
    "memory?memory=1&&&=&%",
    "constructor?loop=0",
    "timeline?search=%E0%A4%A",
    "?loop=1",
    "live",
    "x" * 20_000,
)


@pytest.fixture
def served(browser: Browser) -> Iterator[Visit]:
    """Open the same page from a server."""
    documents = PageDocuments(analyze_ranks(), server=True)
    server = ViewServer(documents, title="job", failed=lambda error: pytest.fail(str(error)))
    visited = visit(browser, server.address)
    visited.wait("findings")
    yield visited
    visited.check()
    visited.page.context.close()
    server.close()


def fragment(seen: Visit) -> str:
    """Return the part of the address that states what is selected."""
    found: str = seen.page.evaluate("location.hash.slice(1)")
    return found


def shown(seen: Visit) -> str:
    """Return all that the page states now, without the text of what can be typed."""
    seen.page.wait_for_selector("[aria-busy=true]", state="detached")
    return seen.text("body")


def link(seen: Visit, title: str) -> None:
    """Go to a view by its link."""
    seen.page.get_by_role("navigation").get_by_role("link", name=title).click()
    seen.page.wait_for_selector(f"nav [aria-current=page]:has-text('{title}')")
    seen.page.wait_for_selector("[aria-busy=true]", state="detached")


@pytest.mark.widens(3)
@pytest.mark.parametrize(
    "selection",
    [
        "timeline?loop=1&iteration=8&box=1980",
        "flame?rank=1&box=3&document=flame%2F1%2Fup&measure=host_ns",
        "iterations?loop=1&iteration=4",
        "ranks?loop=0&rank=0&iteration=5",
        "findings?finding=1",
        "timeline?search=gemm",
    ],
)
def test_a_reload_shows_the_same(seen: Visit, selection: str) -> None:
    seen.open(selection)
    before = shown(seen)
    seen.page.reload()
    seen.wait(selection.partition("?")[0])
    assert shown(seen) == before
    assert fragment(seen) == selection


def test_back_and_forward(seen: Visit) -> None:
    link(seen, "Timeline")
    seen.page.locator(".box:not(.merged)").first.click()
    seen.page.wait_for_selector("[aria-selected=true]")
    chosen = seen.text(".inspector h2")
    link(seen, "Flame")
    seen.page.go_back()
    seen.wait("timeline")
    assert seen.text(".inspector h2") == chosen
    seen.page.go_back()
    seen.page.wait_for_selector("[aria-selected=true]", state="detached")
    assert seen.text(".inspector h2") != chosen
    seen.page.go_back()
    seen.wait("findings")
    for view in ("timeline", "timeline", "flame"):
        seen.page.go_forward()
        seen.wait(view)
    assert fragment(seen).startswith("flame")


def test_nonsense_in_the_address_is_left_out(seen: Visit) -> None:
    views = {view.name for view in PageDocuments(analyze_ranks()).session.views}
    for text in NONSENSE:
        seen.page.evaluate("text => { location.hash = text }", text)
        seen.page.wait_for_selector("nav [aria-current=page]", state="attached")
        seen.open("findings")
        seen.open(text) if text.partition("?")[0] in views else None
        assert seen.page.locator("main").get_attribute("data-view") in views
        assert "failed" not in seen.text()
        assert seen.page.locator("main img, main script").count() == 0
    seen.open("timeline")
    assert seen.page.locator(".boxes [role=treeitem]").count() > 0


def test_a_page_that_opens_at_nonsense_shows_its_first_view(page: Path, browser: Browser) -> None:
    seen = open_page(browser, page, "<script>?loop=x")
    assert seen.page.locator("main").get_attribute("data-view") == "findings"
    seen.page.wait_for_url("**#findings")
    seen.check()
    seen.page.context.close()


def test_the_iteration_of_the_strip_is_that_of_all_views(served: Visit) -> None:
    link(served, "Timeline")
    served.page.locator(".strip .bar").nth(4).click()
    served.page.wait_for_selector(".inspector h2:has-text('iteration 4')")
    assert "Iteration 4" in served.text("main .tools").splitlines()
    link(served, "Iterations")
    assert served.page.locator("main h3", has_text="Iteration 4:").count() == 1
    link(served, "Ranks")
    assert "iteration 4" in served.text().lower()
    link(served, "Timeline")
    assert served.text(".inspector h2") == "iteration 4"


def test_a_file_says_which_iteration_it_shows_instead(seen: Visit) -> None:
    session = PageDocuments(analyze_ranks()).session
    link(seen, "Timeline")
    for loop in session.loops:
        assert loop.typical is not None
        seen.open(f"timeline?loop={loop.loop}&iteration={loop.typical}")
        assert f"Iteration {loop.typical}" in seen.text("main .tools").splitlines()
    seen.open("timeline?loop=0&iteration=1")
    assert "this file has no boxes of iteration 1" in seen.text("main .tools")
    seen.page.get_by_role("button", name=re.compile("^slowest iteration")).click()
    seen.page.wait_for_selector("main .tools:has-text('Iteration 7')")


def test_the_loop_that_is_chosen_is_that_of_all_views(seen: Visit) -> None:
    loops = PageDocuments(analyze_ranks()).session.loops
    seen.page.get_by_label("Loop", exact=True).select_option(str(loops[1].loop))
    for title in ("Timeline", "Flame", "Iterations"):
        link(seen, title)
        assert f"rank={loops[1].rank}" in fragment(seen)
        assert seen.page.get_by_label("Loop", exact=True).input_value() == str(loops[1].loop)
    link(seen, "Flame")
    assert f"rank {loops[1].rank}" in seen.text(".inspector .kind")
    link(seen, "Timeline")
    assert f"rank {loops[1].rank}" in seen.text(".inspector .kind")


@pytest.mark.parametrize(
    ("view", "key", "column"), [("timeline", "timeline", "title"), ("flame", "flame/0/down", "name")]
)
def test_a_search_marks_what_it_finds_and_counts_it(seen: Visit, view: str, key: str, column: str) -> None:
    values = json.loads(PageDocuments(analyze_ranks()).find(key) or b"")
    texts = [
        [values["strings"][row] for row in (name, other) if row >= 0]
        for name, other in zip(values[column], values["full" if view == "timeline" else "file"], strict=True)
    ]
    count = sum(any("allreduce" in text.lower() for text in each) for each in texts)
    assert count > 0
    seen.open(view)
    seen.page.fill("input[type=search]", "AllReduce")
    seen.page.wait_for_selector(f"main [role=status]:has-text('{count:,} of {len(texts):,} match.')")
    assert seen.page.locator(".box.match, .box.within").count() > 0
    seen.page.fill("input[type=search]", "no such name")
    seen.page.wait_for_selector("main [role=status]:has-text('Nothing matches.')")
    assert seen.page.locator(".box.match, .box.within").count() == 0


def test_what_is_searched_is_the_same_in_another_view(seen: Visit) -> None:
    seen.open("timeline")
    seen.page.fill("input[type=search]", "gemm")
    link(seen, "Flame")
    assert seen.page.input_value("input[type=search]") == "gemm"
    seen.page.wait_for_selector("main [role=status]")


def test_a_finding_leads_to_where_it_is_seen_and_back(seen: Visit) -> None:
    for jump in range(seen.page.locator(".jumps a").count()):
        seen.open("findings")
        link_there = seen.page.locator(".jumps a").nth(jump)
        target = (link_there.get_attribute("href") or "#")[1:]
        link_there.click()
        seen.wait(target.partition("?")[0])
        assert "failed" not in seen.text()
    seen.page.get_by_role("button", name="Why?").click()
    seen.wait("findings")
    assert seen.page.locator(".finding[aria-current]").count() == 1
