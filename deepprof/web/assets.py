"""The page itself: its HTML, and the files that it loads. All are known by name; no path of a client is opened."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deepprof.web.answers import HTML, give, say

MEDIA_TYPES = {"app.js": "text/javascript; charset=utf-8", "app.css": "text/css; charset=utf-8"}
DATA = b'{"server": true}'  # what the page finds in itself: its documents are asked for


async def show_page(_: Request) -> Response:
    """Answer with the page, which asks for its documents at `api/documents/` beside it."""
    return give(_write_page(), HTML)


async def give_asset(request: Request) -> Response:
    """Answer with a file that the page loads."""
    name = request.path_params["name"]
    if name not in MEDIA_TYPES:
        return say(404, "there is no such file of the page")
    body = _read_asset(name)
    return say(404, "the page was not built with this installation") if body is None else give(body, MEDIA_TYPES[name])


ASSETS = Route("/static/{name}", give_asset)


@cache
def _read_asset(name: str) -> bytes | None:
    """Return a file of the page, None where the installation has none."""
    file = files("deepprof.web") / "static" / name
    return file.read_bytes() if file.is_file() else None


@cache
def _write_page() -> bytes:
    """Return the HTML of the page."""
    return (
        b'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>DeepProf</title>'
        b'<link rel="stylesheet" href="/static/app.css"></head><body><div id="app"></div>'
        b'<script id="deepprof-data" type="application/json">' + DATA + b"</script>"
        b'<script src="/static/app.js"></script></body></html>'
    )
