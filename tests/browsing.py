"""A browser for tests of the page: what a page states on its console, and what it requests, is part of the result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from benchmarks.chromium import BrowserMissingError, open_chromium
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDE, NARROW = {"width": 1280, "height": 800}, {"width": 390, "height": 844}

# Goes on once the page has heard of it and has drawn what it states.
MOVE = """fragment => new Promise(done => {
    if (location.hash === `#${fragment}`) return done();
    addEventListener("hashchange", () => requestAnimationFrame(() => setTimeout(done)), { once: true });
    location.hash = fragment;
})"""


@dataclass
class Visit:
    """An open page, and what must not happen on it: errors, and requests to elsewhere."""

    page: Page
    home: str
    problems: list[str] = field(default_factory=list)

    def open(self, fragment: str) -> None:
        """Show what a fragment of the address states, and wait until it is there."""
        self.page.evaluate(MOVE, fragment)
        self.wait(fragment.split("?", maxsplit=1)[0])

    def wait(self, view: str) -> None:
        """Wait until a view is shown, without a part of it that is still loading."""
        self.page.wait_for_selector(f'main[data-view="{view}"]')
        self.page.wait_for_selector("[aria-busy=true]", state="detached")

    def text(self, selector: str = "main") -> str:
        """Return what is written in a part of the page."""
        return self.page.inner_text(selector)

    def check(self) -> None:
        """Fail where anything went wrong so far."""
        assert self.problems == []


@pytest.fixture(scope="module")  # no longer: while Playwright runs, its thread has no room for another event loop
def browser() -> Iterator[Browser]:
    """Return Debian's or the system's Chromium."""
    with ExitStack() as opened:
        try:
            running = opened.enter_context(open_chromium(PATIENCE_S))
        except BrowserMissingError as problem:
            pytest.skip(str(problem))
        yield running


def visit(browser: Browser, address: str, *, size: dict[str, int] = WIDE, **options: object) -> Visit:
    """Open an address in its own context."""
    context = browser.new_context(viewport=size, **options)  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_S * 1000)
    place = urlsplit(address)
    home = f"{place.scheme}://{place.netloc}" + (place.path if place.scheme == "file" else "")
    seen = Visit(context.new_page(), home)
    seen.page.on("pageerror", lambda error: seen.problems.append(f"error: {error}"))
    seen.page.on("console", lambda text: text.type in {"error", "warning"} and seen.problems.append(text.text))
    seen.page.on("dialog", lambda dialog: (seen.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    seen.page.on("request", lambda request: _note_foreign(seen, request.url))
    seen.page.goto(address)
    return seen


def _note_foreign(seen: Visit, address: str) -> None:
    """Note a request that does not go to where the page came from."""
    if not address.startswith((seen.home, "data:", "blob:")):
        seen.problems.append(f"request to {address}")
