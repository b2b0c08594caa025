"""What a request must be before a page answers it: read-only, to a name of this server, with the token."""

from __future__ import annotations

from collections.abc import Collection
from hmac import compare_digest
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from deepprof.web.answers import HTML, give, say

METHODS = ("GET", "HEAD")
LOCAL = "localhost"
WELCOME = b'<!doctype html><html lang="en"><title>DeepProf</title><p><a href="/">Continue</a></p></html>'


class ReadOnlyRequests:
    """Lets requests pass that read, with their path as it was sent: what is encoded in it stays encoded.

    So a slash within a job's name is none of the path, and no name is decoded twice.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        if not scope["http_version"].startswith("1."):
            await say(400, "this is no request of HTTP/1")(scope, receive, send)
        elif scope["method"] not in METHODS:
            await say(405, "only GET and HEAD", {"Allow": ", ".join(METHODS)})(scope, receive, send)
        else:
            await self._app({**scope, "path": scope["raw_path"].decode("ascii")}, receive, send)


class KnownHosts:
    """Lets requests pass whose Host is an IP address, localhost, or one of `names`.

    A page of someone else, whose name's address has been changed to this server's (DNS rebinding), comes with that
    name and is refused; with an address instead of a name there is nothing to change.
    """

    def __init__(self, app: ASGIApp, names: Collection[str] = ()) -> None:
        self._app, self._names = app, frozenset({LOCAL, *map(str.lower, names)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        if self._knows(Headers(scope=scope).get("host", "")):
            await self._app(scope, receive, send)
        else:
            refusal = "the page is not shown under this name; ask for localhost or the address, or add it to the names"
            await say(400, refusal)(scope, receive, send)

    def _knows(self, host: str) -> bool:
        """Return whether a Host header names this server."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name.rstrip(".") in self._names:
                return True
            ip_address(name)
        except ValueError:
            return False
        return True


class TokenCheck:
    """Lets requests pass with the cookie that the first one gets, whose address has the token.

    Cookies are shared by all ports of a host: `cookie` names this server's. The page leads on to `/` by itself and not
    by a redirect: who follows a link from another site (a terminal in a browser) would come there without the cookie.
    """

    def __init__(self, app: ASGIApp, token: str, cookie: str) -> None:
        self._app, self._token, self._cookie = app, token.encode(), cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        request = Request(scope)
        if scope["path"] == "/" and self._is_right(request.query_params.get("token", "")):
            await self._welcome()(scope, receive, send)
        elif self._is_right(request.cookies.get(self._cookie, "")):
            await self._app(scope, receive, send)
        else:
            await say(403, "open the whole address that `deepprof view` has printed")(scope, receive, send)

    def _welcome(self) -> Response:
        """Return the answer to the first request: the address in the browser shows no token from then on."""
        answer = give(WELCOME, HTML, {"Refresh": "0; url=/"})
        answer.set_cookie(self._cookie, self._token.decode(), httponly=True, samesite="strict")
        return answer

    def _is_right(self, given: str) -> bool:
        return compare_digest(given.encode(errors="replace"), self._token)
