"""The server of `deepprof view`: the page of one analysis, for who has the token."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deepprof.web.answers import give, give_document, say, tell_bug, tell_missing
from deepprof.web.assets import ASSETS, show_page
from deepprof.web.checks import KnownHosts, ReadOnlyRequests, TokenCheck
from deepprof.web.connection import ConnectionLimits
from deepprof.web.perfetto import PerfettoPage
from deepprof.web.serving import PageServer, open_socket

HOST = "127.0.0.1"
TOKEN_NBYTES = 32
NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)
FARTHEST_NS = 1 << 62
LIMITS = ConnectionLimits(answer_s=600.0)  # the page may be read through a slow tunnel

T = TypeVar("T")


class _PageSource(Protocol):
    """Where the page's documents come from, such as `PageDocuments`; called from one thread of the server."""

    def find(self, key: str) -> bytes | None:
        """Return a document as JSON."""

    def cut(self, loop: int, iteration: int, from_ns: int | None = None, to_ns: int | None = None) -> bytes | None:
        """Return a region as a gzipped trace."""

    def read_source(self, file: str, line: int) -> bytes | None:
        """Return the lines around a line of code as JSON."""


class ViewServer:
    """Serves the page of `documents` on this machine until closed; `address` is what to open, token included.

    `failed` is called with what ends the server's thread. Raises `UsageError` where the port cannot be bound.
    """

    def __init__(
        self,
        documents: _PageSource,
        *,
        title: str,
        port: int = 0,
        perfetto: PerfettoPage | None = None,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._documents, self._title = documents, title
        self._reader = ThreadPoolExecutor(1, "deepprof-documents")
        listening = open_socket((HOST, port), "the page")
        self.port: int = listening.getsockname()[1]
        token = secrets.token_urlsafe(TOKEN_NBYTES)
        self.address = f"http://{HOST}:{self.port}/?token={token}"
        self._server = PageServer(self._make_app(token, perfetto), listening, limits=LIMITS, failed=failed)

    def close(self) -> None:
        """Stop serving; may be called more than once."""
        self._server.close()
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _make_app(self, token: str, perfetto: PerfettoPage | None) -> Starlette:
        """Return the app; of all that it has nothing is shown without the token, not even that it is there."""
        routes = [
            Route("/", self._show),
            ASSETS,
            Route("/api/documents/{key:path}", self._give_document),
            Route("/api/region/{loop}/{iteration}", self._give_region),
            Route("/api/source", self._give_source),
        ]
        checks = [
            Middleware(ReadOnlyRequests),
            Middleware(KnownHosts),
            Middleware(TokenCheck, token, f"deepprof-{self.port}"),
        ]
        return Starlette(
            routes=routes if perfetto is None else [*routes, perfetto.route],
            middleware=checks,
            exception_handlers={404: tell_missing, Exception: tell_bug},
        )

    async def _show(self, _: Request) -> Response:
        return show_page(self._title)

    async def _give_document(self, request: Request) -> Response:
        return give_document(await self._call(partial(self._documents.find, unquote(request.path_params["key"]))))

    async def _give_region(self, request: Request) -> Response:
        """Answer with a region as a file to save; `from_ns` and `to_ns` are given both or not at all."""
        asked, path = request.query_params, request.path_params
        texts = [path["loop"], path["iteration"], *(asked[name] for name in ("from_ns", "to_ns") if name in asked)]
        if len(texts) == 3 or not all(NUMBER.fullmatch(text) and abs(int(text)) < FARTHEST_NS for text in texts):
            return say(400, "a region is LOOP/ITERATION, both numbers, and may have ?from_ns=N&to_ns=N")
        loop, iteration, *within = map(int, texts)
        region = await self._call(partial(self._documents.cut, loop, iteration, *within))
        if region is None:
            return say(404, "there is no such iteration")
        name = f"loop-{loop}-iteration-{iteration}.trace.json.gz"
        return give(region, "application/gzip", {"Content-Disposition": f'attachment; filename="{name}"'})

    async def _give_source(self, request: Request) -> Response:
        """Answer with the lines around a line of a file that the trace names."""
        file, line = request.query_params.get("file", ""), request.query_params.get("line", "")
        if not NUMBER.fullmatch(line):
            return say(400, "code is asked for as ?file=NAME&line=N")
        return give_document(await self._call(partial(self._documents.read_source, file, int(line))))

    async def _call(self, work: Callable[[], T]) -> T:
        """Return the result of some work in the thread that reads documents."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)
