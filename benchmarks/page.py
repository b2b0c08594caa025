"""The page in a browser: what a reader waits for, next to other flame graphs, and what the daemon's page takes.

Times end after two animation frames; the first line states how long two frames take in which nothing is drawn.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from benchmarks.chromium import BrowserMissingError, open_chromium
from benchmarks.flame_peers import (
    D3,
    D3_FRAME,
    NARROWEST_PX,
    SPEEDSCOPE,
    SPEEDSCOPE_PICTURE,
    PeerMissingError,
    install,
    write_d3_page,
    write_speedscope_page,
)
from benchmarks.importing import verdict
from benchmarks.live_page import CHANGES_PER_S, RANKS, WATCHED_S, LiveCost, watch_live
from benchmarks.nested_boxes import WORD, NestedBoxes, nest_boxes, write_flame_page, write_timeline_page
from benchmarks.page_timing import PageWait, load, wait_for, wait_for_nothing

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from rich.console import Console

COUNTS, BESIDE, QUICK = (1_000, 10_000, 100_000), (10_000, 100_000), (1_000,)
MAX_CLICK_MS, MAX_LOAD_MS, MAX_LETTER_MS, MAX_LIVE_RATIO = 100.0, 1_000.0, 100.0, 0.2


def run(console: Console, quick: bool = False) -> None:
    """Print three tables, or that there is no browser."""
    try:
        with open_chromium() as browser, tempfile.TemporaryDirectory() as folder:
            console.print(f"The page in Chromium {browser.version}")
            show_boxes(console, browser, Path(folder), quick)
            show_peers(console, browser, Path(folder), quick)
            show_live(console, browser, quick)
    except BrowserMissingError as problem:
        console.print(f"The page was not measured: {problem}", markup=False)


def show_boxes(console: Console, browser: Browser, folder: Path, quick: bool) -> None:
    """Print how long pages of made-up boxes take."""
    waits: dict[tuple[str, int], PageWait] = {}
    for count in QUICK if quick else COUNTS:
        path = folder / f"timeline-{count}.html"
        write_timeline_page(path, count)
        waits["timeline", count] = wait_for(browser, path, word=WORD, quick=quick)
        path = folder / f"flame-{count}.html"
        write_flame_page(path, nest_boxes(count))
        waits["flame graph", count] = wait_for(browser, path, word=WORD, quick=quick)
    console.print(f"two frames in which nothing is drawn: {wait_for_nothing(browser, path):.0f} ms")
    table = Table("view", "boxes", "load ms", "click ms", "letter ms", "elements", "file MB", title="Boxes in a page")
    for (view, count), wait in waits.items():
        table.add_row(view, f"{count:,}", *_cells(wait))
    console.print(_right(table))
    for line in [] if quick else judge_boxes(waits):
        console.print(line)


def judge_boxes(waits: dict[tuple[str, int], PageWait]) -> list[str]:
    """Return whether the goals are met, as lines."""
    lines = []
    for view in ("timeline", "flame graph"):
        click_ms, load_ms = waits[view, 10_000].click_ms, waits[view, 100_000].load_ms
        letter_ms = max(wait.letter_ms or 0.0 for (shown, _), wait in waits.items() if shown == view)
        lines += [
            verdict(
                f"{view}, ms of a click, 10,000", click_ms, f"less than {MAX_CLICK_MS:.0f}", click_ms < MAX_CLICK_MS
            ),
            verdict(f"{view}, ms to load 100,000", load_ms, f"less than {MAX_LOAD_MS:,.0f}", load_ms < MAX_LOAD_MS),
            verdict(f"{view}, ms of a letter", letter_ms, f"less than {MAX_LETTER_MS:.0f}", letter_ms < MAX_LETTER_MS),
        ]
    return lines


def show_peers(console: Console, browser: Browser, folder: Path, quick: bool) -> None:
    """Print the same flame graphs in other programs."""
    table = Table("flame graph", "frames", "load ms", "click ms", "elements", "file MB", title="Beside others")
    for count in QUICK if quick else BESIDE:
        boxes = nest_boxes(count)
        path = folder / f"flame-{count}.html"
        write_flame_page(path, boxes)
        rows = {"DeepProf": _peer_cells(wait_for(browser, path, quick=quick))}
        rows |= _measure_d3(browser, folder, boxes, quick) | _measure_speedscope(browser, folder, boxes)
        for name, cells in rows.items():
            table.add_row(name, f"{count:,}", *map(escape, cells))
    console.print(_right(table))


def _measure_d3(browser: Browser, folder: Path, boxes: NestedBoxes, quick: bool) -> dict[str, list[str]]:
    """Return the rows of d3-flame-graph: as it comes, and without what is too narrow."""
    try:
        packages = install(folder / "d3", *D3)
    except PeerMissingError as problem:
        return {D3[1]: [str(problem)]}
    rows = {}
    for narrowest_px in (0, NARROWEST_PX):
        path = write_d3_page(folder, packages, boxes, narrowest_px=narrowest_px)
        name = D3[1] + (f", from {narrowest_px} px on" if narrowest_px else "")
        rows[name] = _peer_cells(wait_for(browser, path, D3_FRAME, quick=quick))
    return rows


def _measure_speedscope(browser: Browser, folder: Path, boxes: NestedBoxes) -> dict[str, list[str]]:
    """Return the row of speedscope, which draws on a canvas: nothing in it can be clicked by a script."""
    try:
        packages = install(folder / "speedscope", SPEEDSCOPE)
    except PeerMissingError as problem:
        return {SPEEDSCOPE: [str(problem)]}
    address, nbytes = write_speedscope_page(folder, packages, boxes)
    return {SPEEDSCOPE: [f"{load(browser, address, SPEEDSCOPE_PICTURE):.0f}", "-", "-", f"{nbytes / 1e6:.1f}"]}


def show_live(console: Console, browser: Browser, quick: bool) -> None:
    """Print what the daemon's page takes while it is open."""
    cost: LiveCost = watch_live(browser, 2.0 if quick else WATCHED_S)
    title = f"The daemon's page, {RANKS} ranks, {CHANGES_PER_S} changes/s, {cost.drawings} drawings"
    table = Table("what", "share of a core", title=title)
    table.add_row("the page", f"{cost.page_ratio:.3f}")
    table.add_row("all processes of the browser", f"{cost.browser_ratio:.3f}")
    table.add_row("the server's threads", f"{cost.server_ratio:.3f}")
    console.print(_right(table))
    if not quick:
        met = cost.page_ratio < MAX_LIVE_RATIO
        console.print(verdict("the live page's share of a core", cost.page_ratio, f"less than {MAX_LIVE_RATIO}", met))


def _cells(wait: PageWait) -> list[str]:
    """Return how long a page takes, with a search."""
    load_ms, click_ms, *rest = _peer_cells(wait)
    return [load_ms, click_ms, "-" if wait.letter_ms is None else f"{wait.letter_ms:.0f}", *rest]


def _peer_cells(wait: PageWait) -> list[str]:
    """Return how long a page takes."""
    return [f"{wait.load_ms:.0f}", f"{wait.click_ms:.0f}", f"{wait.elements:,}", f"{wait.nbytes / 1e6:.1f}"]


def _right(table: Table) -> Table:
    """Return a table with its numbers at the right."""
    for column in table.columns[1:]:
        column.justify = "right"
    return table
