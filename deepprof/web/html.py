"""The page itself: one HTML text around the documents, or around the address of a server that has them."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterable
from functools import cache
from importlib import resources

import msgspec

from deepprof.collectors.errors import UsageError

PACKED_FROM = 1 << 20  # bytes of documents: less is readable in the page's source
STATIC = "static"
SCRIPT, STYLE, LICENSES = "app.js", "app.css", "licenses.txt"
# What the page may do: run its own script, show its own style, and ask the server that it came from.
POLICY = "default-src 'none'; img-src data: blob:; base-uri 'none'; form-action 'none'"

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
"""
_BODY = """<body>
<div id="app"></div>
<noscript>This page needs JavaScript.</noscript>
"""


@cache
def read_asset(name: str) -> bytes:
    """Return the page's script, its style, or the licences of both; raises `UsageError` where they were not built."""
    try:
        return (resources.files("deepprof.web") / STATIC / name).read_bytes()
    except FileNotFoundError:
        advice = "install the package again with the network at hand, or run `npm ci && npm run build` in web/"
        raise UsageError(f"the page's {name} was not built; {advice}") from None


def require_assets() -> None:
    """Raise `UsageError` where the page was not built; call it before time is spent on what it would show."""
    for name in (SCRIPT, STYLE, LICENSES):
        read_asset(name)


def write_report(title: str, documents: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a page that holds all documents (key and JSON), its script and its style, and needs nothing else."""
    script, style = read_asset(SCRIPT), read_asset(STYLE)
    policy = f"{POLICY}; script-src {_hash(script)}; style-src {_hash(style)}"
    return b"".join(
        (
            _HEAD.encode(),
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'.encode(),
            f"<title>{_escape(title)} · DeepProf</title>\n".encode(),
            b"<style>" + style + b"</style>\n</head>\n",
            _BODY.encode(),
            b'<script id="deepprof-data" type="application/json">' + _pack(documents) + b"</script>\n",
            b"<script>" + script + b"</script>\n</body>\n</html>\n",
            b"<!-- Libraries in this page:\n\n" + read_asset(LICENSES).replace(b"--", b"- ") + b"-->\n",
        )
    )


def write_index(title: str) -> bytes:
    """Return the page of a server: its documents are requested next to it, script and style at the server's root."""
    return (
        f"{_HEAD}<title>{_escape(title)} · DeepProf</title>\n"
        f'<link rel="stylesheet" href="/{STATIC}/{STYLE}">\n</head>\n{_BODY}'
        '<script id="deepprof-data" type="application/json">{"server": true}</script>\n'
        f'<script src="/{STATIC}/{SCRIPT}"></script>\n</body>\n</html>\n'
    ).encode()


def _pack(documents: Iterable[tuple[str, bytes]]) -> bytes:
    """Return documents as one JSON text that ends no script, compressed where they are long."""
    pairs = b",".join(msgspec.json.encode(key) + b":" + document for key, document in documents)
    whole = b'{"documents":{' + pairs + b"}}"
    if len(whole) < PACKED_FROM:
        return whole.replace(b"<", b"\\u003c")
    return b'{"packed":"' + base64.b64encode(gzip.compress(whole, 6, mtime=0)) + b'"}'


def _hash(text: bytes) -> str:
    """Return the hash by which a policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"


def _escape(text: str) -> str:
    marks = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\0": "\N{SYMBOL FOR NULL}"}
    return "".join(marks.get(char, char) for char in text)
