"""What a reader of a page waits for: until it is drawn, and from a click or a letter until the picture has changed.

A time ends after two animation frames: the first draws what has changed, and when the second begins it has been drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZE = {"width": 1280, "height": 800}
PATIENCE_S = 60.0
LOADS, CLICKS = 3, 24

_WATCH = """
window.twoFrames = () => new Promise(done =>
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now()))));
const watcher = new MutationObserver(() => {
  if (!document.querySelector(SELECTOR)) return;
  watcher.disconnect();
  twoFrames().then(now => (window.drawnAt = now, document.documentElement.setAttribute("data-drawn", "")));
});
watcher.observe(document, { childList: true, subtree: true });
"""
# Into the widest box of the next level; where there is none, again from the first level, and another way down.
_CLICK = """
async ({selector, clicks}) => {
  const levelOf = LEVEL, times = [];
  const widthOf = box => box.getBoundingClientRect().width;
  for (let at = 2, round = 0; times.length < clicks; at++) {
    const boxes = [...document.querySelectorAll(selector)].filter(box => levelOf(box) === at && widthOf(box) > 12);
    if (!boxes.length) { at = 0; round++; continue; }
    boxes.sort((a, b) => widthOf(b) - widthOf(a));
    const box = boxes[round % boxes.length];
    await new Promise(done => setTimeout(done, 30));
    const begin = performance.now();
    box.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    times.push(await twoFrames() - begin);
  }
  return times;
}
"""
_TYPE = """
async word => {
  const field = document.querySelector("input[type=search]"), times = [];
  for (let letters = 1; letters <= word.length; letters++) {
    await new Promise(done => setTimeout(done, 30));
    const begin = performance.now();
    field.value = word.slice(0, letters);
    field.dispatchEvent(new InputEvent("input", { bubbles: true }));
    times.push(await twoFrames() - begin);
  }
  return times;
}
"""
_COUNT = "document.querySelectorAll('*').length"
_NOTHING = "async () => { const begin = performance.now(); return await twoFrames() - begin; }"


@dataclass(frozen=True)
class BoxPicture:
    """How boxes are found in a page: CSS for one of them, and a JavaScript function from a box to its level, from 1."""

    selector: str
    level: str


@dataclass(frozen=True)
class PageWait:
    """Milliseconds: the median of loads and of clicks, the slowest letter of a word. `elements` are the most."""

    load_ms: float
    click_ms: float
    letter_ms: float | None
    elements: int
    nbytes: int


OWN = BoxPicture("svg.boxes g.box", "box => +box.getAttribute('aria-level')")


@contextmanager
def show(browser: Browser, address: str, selector: str) -> Iterator[Page]:
    """Yield a page once what `selector` finds has been drawn; `drawnAt` is then milliseconds since its navigation."""
    context = browser.new_context(viewport=SIZE)  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE_S * 1e3)
    try:
        page = context.new_page()
        page.add_init_script(f"{{const SELECTOR = {selector!r};{_WATCH}}}")
        page.goto(address)
        page.wait_for_selector("html[data-drawn]", state="attached")  # a function would be refused by the policy
        yield page
    finally:
        context.close()


def wait_for(
    browser: Browser, path: Path, picture: BoxPicture = OWN, *, word: str | None = None, quick: bool = False
) -> PageWait:
    """Return what a reader of a file waits for; with a `word` it is searched for, letter by letter."""
    with show(browser, path.as_uri(), picture.selector) as page:
        loads, elements = [page.evaluate("drawnAt")], page.evaluate(_COUNT)
        script = _CLICK.replace("LEVEL", picture.level)
        clicks = page.evaluate(script, {"selector": picture.selector, "clicks": 4 if quick else CLICKS})
        elements = max(elements, page.evaluate(_COUNT))
        letters = page.evaluate(_TYPE, word) if word else None
    loads += [load(browser, path.as_uri(), picture.selector) for _ in range(0 if quick else LOADS - 1)]
    return PageWait(median(loads), median(clicks), max(letters) if letters else None, elements, path.stat().st_size)


def load(browser: Browser, address: str, selector: str) -> float:
    """Return the milliseconds from a page's navigation until what `selector` finds has been drawn."""
    with show(browser, address, selector) as page:
        return float(page.evaluate("drawnAt"))


def wait_for_nothing(browser: Browser, path: Path) -> float:
    """Return the median milliseconds of two animation frames in which nothing is drawn: no time here is less."""
    with show(browser, path.as_uri(), OWN.selector) as page:
        return median(page.evaluate(_NOTHING) for _ in range(CLICKS))
