"""Write `docs/pictures/`: the page of the job of `make demo`, as README.md shows it: `python -m docs.pictures`.

The same machine gives the same pixels; another one has other fonts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.chromium import open_chromium
from deepprof.commands import main as deepprof

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = Path(__file__).parent / "pictures"
WIDTH, HEIGHT = 1280, 720
DEMO = "demo.json.gz"  # the title of the page
# By name: the view, and what is clicked in it, one after the other.
IN_DEVICE = "svg.boxes[aria-label*='device 0']"
PICTURES: dict[str, tuple[str, Sequence[str]]] = {
    "iterations": ("iterations", ()),
    "timeline": (
        "timeline",
        (
            f"{IN_DEVICE} [aria-level='1'][aria-label^='backward']",
            f"{IN_DEVICE} [aria-level='2'][aria-label^='AddmmBackward0']",
            f"{IN_DEVICE} [aria-level='3']",
            f"{IN_DEVICE} [aria-level='4'][aria-label^='ScaledDotProduct'] >> nth=1",
        ),
    ),
}


def write_pictures(folder: Path = FOLDER) -> None:
    """Write all pictures into a folder."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as own, open_chromium() as browser:
        with chdir(own):  # so that the page names no path of this machine
            deepprof(["simulate", "graph-growth", "-o", DEMO])
            deepprof(["report", DEMO, "-o", "report.html"])
        for name, (view, clicks) in PICTURES.items():
            taken = take_picture(browser, Path(own) / "report.html", view, clicks)
            (folder / f"{name}.png").write_bytes(taken)


def take_picture(browser: Browser, page: Path, view: str, clicks: Sequence[str]) -> bytes:
    """Return a view of a page as PNG, after some clicks."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT},
        device_scale_factor=1,
        color_scheme="light",
        reduced_motion="reduce",
        locale="en-US",
        timezone_id="UTC",
    )
    shown = context.new_page()
    shown.goto(f"{page.as_uri()}#{view}")
    shown.wait_for_selector(f"main[data-view='{view}'] :is(.chart, .boxes)")
    for click in clicks:
        shown.locator(click).first.dispatch_event("click")
    shown.wait_for_selector("[aria-busy=true]", state="detached")
    shown.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    taken = shown.screenshot(animations="disabled", caret="hide")
    context.close()
    return taken


if __name__ == "__main__":
    write_pictures()
