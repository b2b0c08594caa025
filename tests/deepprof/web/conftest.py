"""The page of two ranks, made once, in a browser that fails a test where the page stated or did what it must not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browsing import Visit, browser
from tests.deepprof.web.pages import analyze_ranks, open_page, write_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of two ranks."""
    return write_page(analyze_ranks(), tmp_path_factory.mktemp("page"))


@pytest.fixture
def seen(page: Path, browser: Browser) -> Iterator[Visit]:
    """Open the page, and fail at the end where it stated or did what it must not."""
    visited = open_page(browser, page)
    yield visited
    visited.check()
    visited.page.context.close()
