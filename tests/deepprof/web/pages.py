"""Pages for tests in a browser: the file of an analysis, and small traces that a test makes up."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import deepprof
from deepprof.analysis import Analysis
from deepprof.simulation import simulate_ranks, write
from deepprof.web.html import write_report
from deepprof.web.package import PageDocuments
from tests.browsing import Visit, visit
from tests.deepprof.web.documents.rooflines import PRODUCT, UNKNOWN, with_groups

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["analyze_file", "analyze_ranks", "listed_views", "open_page", "play_file", "write_page"]


def write_page(analysis: Analysis, folder: Path) -> Path:
    """Write the page of an analysis, and return its path."""
    documents = PageDocuments(analysis)
    path = folder / "report.html"
    path.write_bytes(write_report("job", [*documents.list_all(), *documents.list_regions()]))
    return path


def open_page(browser: Browser, page: Path, fragment: str = "", **options: Any) -> Visit:
    """Open a page, and wait for its first view or for that of the fragment."""
    seen = visit(browser, page.as_uri() + (f"#{fragment}" if fragment else ""), **options)
    seen.page.wait_for_selector("main[data-view]")
    seen.page.wait_for_selector("[aria-busy=true]", state="detached")
    return seen


def play_file(events: list[dict[str, Any]], folder: Path, rank: int = 0) -> Path:
    """Write events as PyTorch's profiler does, and return the file."""
    path = folder / f"rank{rank}.json"
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": events}))
    return path


def analyze_file(events: list[dict[str, Any]], folder: Path) -> Analysis:
    """Return the analysis of events that PyTorch's profiler might have written, call stacks included."""
    return deepprof.analyze(deepprof.read(play_file(events, folder), details=True))


def listed_views(analysis: Analysis) -> list[str]:
    """Return the names of the views of an analysis's page."""
    return [view.name for view in PageDocuments(analysis).session.views]


@cache
def analyze_ranks() -> Analysis:
    """Return the analysis of two ranks of which one is late: it has something for every view."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"rank{rank}.json" for rank in range(2)]
        for path, simulation in zip(paths, simulate_ranks("straggler", ranks=2, iterations=8), strict=True):
            write(simulation, path)
        return with_groups(deepprof.analyze([deepprof.read(path) for path in paths]), PRODUCT, UNKNOWN)
