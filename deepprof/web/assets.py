"""The page itself at a server: its HTML, and the files that it loads. No path that a client names is opened."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deepprof.collectors.errors import UsageError
from deepprof.web.answers import HTML, give, say
from deepprof.web.html import SCRIPT, STYLE, read_asset, write_index

MEDIA_TYPES = {SCRIPT: "text/javascript; charset=utf-8", STYLE: "text/css; charset=utf-8"}


def show_page(title: str) -> Response:
    """Answer with the page, which requests its documents at `api/documents/` next to it; or that it was not built."""
    try:
        read_asset(SCRIPT)
    except UsageError as error:
        return say(503, str(error))
    return give(write_index(title), HTML)


async def _give_asset(request: Request) -> Response:
    """Answer with a file that the page loads."""
    name = request.path_params["name"]
    if name not in MEDIA_TYPES:
        return say(404, "there is no such file of the page")
    try:
        return give(read_asset(name), MEDIA_TYPES[name])
    except UsageError as error:
        return say(404, str(error))


ASSETS = Route("/static/{name}", _give_asset)
