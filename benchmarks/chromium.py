"""A headless browser, as a user has one: the system's Chromium, driven by playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--disable-gpu", "--disable-dev-shm-usage")


class BrowserMissingError(Exception):
    """There is no browser; the message is one line that states what to install."""


@contextmanager
def open_chromium(patience_s: float = 30.0) -> Iterator[Browser]:
    """Yield a browser that runs within `patience_s`; raises `BrowserMissingError` where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        raise BrowserMissingError('no playwright; pip install ".[test]"') from None
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        raise BrowserMissingError("no chromium on this machine; apt-get install chromium")
    arguments = [*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=arguments, timeout=1000 * patience_s)
        try:
            yield running
        finally:
            running.close()
