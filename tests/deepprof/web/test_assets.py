"""The files of the page at a server."""

from __future__ import annotations

import pytest

from deepprof.collectors.errors import UsageError
from deepprof.web import assets


def test_a_page_that_was_not_built_says_so_instead_of_staying_blank(monkeypatch: pytest.MonkeyPatch) -> None:
    def miss(name: str) -> bytes:
        raise UsageError(f"the page's {name} was not built; install the package again")

    monkeypatch.setattr(assets, "read_asset", miss)
    answer = assets.show_page("job")
    assert answer.status_code == 503
    assert bytes(answer.body).decode() == "the page's app.js was not built; install the package again\n"


def test_a_page_that_was_built_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "read_asset", lambda _: b"")
    answer = assets.show_page("a < b")
    assert answer.status_code == 200
    assert b"<title>a &lt; b" in bytes(answer.body)
