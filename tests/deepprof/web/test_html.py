"""The page around the documents: whole, safe and without anything from elsewhere."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re

import pytest

from deepprof.collectors.errors import UsageError
from deepprof.web import html

SCRIPT, STYLE = b"console.log('page')", b"body { color: black }"


@pytest.fixture(autouse=True)
def assets(monkeypatch):
    """Return short assets in place of the built ones."""
    known = {html.SCRIPT: SCRIPT, html.STYLE: STYLE, html.LICENSES: b"A library: take it. -->"}
    monkeypatch.setattr(html, "read_asset", known.__getitem__)


def data_of(page: bytes) -> dict:
    found = re.search(rb'<script id="deepprof-data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_documents_are_in_the_page() -> None:
    page = html.write_report("job", [("session", b'{"title":"a"}'), ("flame/0/up", b"{}")])
    assert data_of(page) == {"documents": {"session": {"title": "a"}, "flame/0/up": {}}}


def test_no_name_ends_the_script() -> None:
    name = "</script><script>alert(1)</script><!--"
    page = html.write_report(name, [("session", json.dumps({"title": name}).encode())])
    assert page.count(b"</script>") == 2
    assert b"alert(1)</script>" not in page
    assert data_of(page)["documents"]["session"]["title"] == name
    assert b"<title>&lt;/script&gt;" in page


def test_the_licences_of_libraries_are_in_the_page() -> None:
    page = html.write_report("job", [])
    assert b"A library: take it. " in page
    assert page.count(b"-->") == 1
    assert page.endswith(b"-->\n")


def test_long_documents_are_packed() -> None:
    document = json.dumps({"texts": [f"kernel {k}" for k in range(200_000)]}).encode()
    page = html.write_report("job", [("session", document)])
    packed = data_of(page)["packed"]
    whole = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert whole == {"documents": {"session": json.loads(document)}}
    assert len(page) < len(document) / 2


def test_the_same_documents_are_the_same_page() -> None:
    document = json.dumps({"texts": ["x" * 2_000_000]}).encode()
    assert html.write_report("job", [("a", document)]) == html.write_report("job", [("a", document)])


def test_the_policy_allows_its_own_script_and_nothing_else() -> None:
    page = html.write_report("job", []).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    digest = base64.b64encode(hashlib.sha256(SCRIPT).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy[1]
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", page)
    assert " on" + "click=" not in page


def test_the_page_of_a_server_asks_for_its_documents() -> None:
    page = html.write_index("a < b")
    assert data_of(page) == {"server": True}
    assert b"<title>a &lt; b" in page
    assert b'src="/static/app.js"' in page


def test_an_asset_that_was_not_built_is_one_line(monkeypatch) -> None:
    monkeypatch.undo()
    with pytest.raises(UsageError, match="was not built; install the package again"):
        html.read_asset("missing.js")
