"""Metrics, profiles, the page, `/healthz` (no part has failed) and `/readyz` (ready, or why not), on one HTTP server.

There is no thread per connection: a client that sends or reads nothing costs a descriptor and no thread, so that
neither it nor a long scrape delays a probe. Every answer closes its connection (`deepprof/web/connection.py` bounds
connections, requests and answers; its limit fits the number of descriptors that a daemon may have).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from deepprof.collectors.errors import UsageError
from deepprof.live.process.supervision import FirstFailure
from deepprof.live.service.exporter.exposition import SERIES_CAP, TTL_S, Exposition, measure_process
from deepprof.live.service.exporter.live_flame import FlameKey, draw_live_flame
from deepprof.live.service.exporter.page import DaemonPage
from deepprof.live.service.exporter.profiles import ContextReader, ProfileRequest, read_nothing, write_profile
from deepprof.live.service.exporter.snapshot import DaemonSnapshot
from deepprof.live.service.folder import StoreError
from deepprof.live.service.model_flops import ModelFlops
from deepprof.web.answers import PiecewiseResponse, say, tell_bug, tell_missing
from deepprof.web.checks import KnownHosts, ReadOnlyRequests
from deepprof.web.connection import ConnectionLimits
from deepprof.web.serving import PageServer, open_socket

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PROFILES = "/debug/pprof/contexts"
SCRAPES = 4  # at a time: each contains its text, 5 MB with 1,000 ranks

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterSettings:
    """Settings of the exporter; times in seconds.

    `vitals` contains the daemon's failure if it has one, and a failure of the exporter. `hosts` are the names under
    which the page is shown, besides localhost and addresses. `model_flops` are as in `Exposition`. `contexts` is called
    from one thread of the exporter."""

    request_s: float = 10.0  # until a request has come
    ready_s: float = 2.0  # until there is a snapshot of the daemon
    answer_s: float = 15.0  # until an answer has been read; Prometheus waits 10 s for a scrape
    vitals: FirstFailure = field(default_factory=FirstFailure)
    hosts: Collection[str] = ()
    model_flops: Sequence[ModelFlops] = ()
    contexts: ContextReader = read_nothing


class Exporter:
    """Serves metrics, probes and the page at host and port (0: any) until closed; `address` is the bound one.

    `look` is called from threads of the exporter, three at most at a time; it should only copy. `ttl_s` and
    `series_cap` are as in `Exposition`. Raises `UsageError` where the address cannot be bound or prometheus_client is
    missing. The caller decides whether other machines may connect: every client that reaches the address can read all.
    """

    def __init__(
        self,
        address: tuple[str, int],
        look: Callable[[], DaemonSnapshot],
        *,
        ttl_s: float = TTL_S,
        series_cap: int = SERIES_CAP,
        settings: ExporterSettings | None = None,
    ) -> None:
        self._look, self._settings = look, settings or ExporterSettings()
        models = self._settings.model_flops
        self._exposition = Exposition(ttl_s=ttl_s, series_cap=series_cap, model_flops=models)
        self._process = measure_process()
        # A thread each: a scrape waits for other scrapes, but a probe waits neither for scrapes nor for the page.
        self._scraper, self._prober, self._pager = [
            ThreadPoolExecutor(1, f"deepprof-{name}") for name in ("scrape", "probe", "page")
        ]
        self._slots = asyncio.Semaphore(SCRAPES)
        self._server = self._start(open_socket(address, "metrics"))
        self.address = self._server.address

    def close(self) -> None:
        """Stop listening and cut the open connections; may be called more than once."""
        self._server.close()
        for pool in (self._scraper, self._prober, self._pager):
            pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, listening: socket.socket) -> PageServer:
        limits = ConnectionLimits(request_s=self._settings.request_s, answer_s=self._settings.answer_s)
        failed = partial(self._settings.vitals.fail, "the exporter")
        return PageServer(
            Starlette(
                routes=self._routes(),
                middleware=[Middleware(ReadOnlyRequests)],
                exception_handlers={404: tell_missing, StoreError: _tell_unread, Exception: tell_bug},
            ),
            listening,
            limits=limits,
            failed=failed,
            name="deepprof-metrics",
        )

    def _routes(self) -> list[BaseRoute]:
        page = DaemonPage(partial(self._call, self._pager, self._observe), self._draw)
        profiles = Route(PROFILES, self._profile)  # it has what the page shows
        shown = KnownHosts(Router([profiles, Mount("/", page.app)]), self._settings.hosts)
        own = {
            "/metrics": self._scrape,
            "/healthz": self._tell_life,
            "/readyz": self._tell_ready,
        }
        return [*(Route(path, answer) for path, answer in own.items()), Mount("/", shown)]

    async def _scrape(self, _: Request) -> Response:
        if self._slots.locked():
            return say(503, f"{SCRAPES} scrapes are being read already", {"Retry-After": "1"})
        return _ScrapeResponse(partial(self._call, self._scraper, self._render), self._slots)

    def _render(self) -> bytes:
        return self._exposition.render(self._observe()).encode() + self._process()

    def _observe(self) -> DaemonSnapshot:
        """Return a snapshot; errors become `RuntimeError`, so that none is taken for the connection's or a timeout."""
        try:
            return self._look()
        except Exception as error:
            raise RuntimeError("no snapshot of the daemon could be made") from error

    async def _profile(self, request: Request) -> Response:
        try:
            wanted = ProfileRequest.read(request.query_params)
        except UsageError as error:
            return say(400, str(error))
        body = await self._call(self._pager, lambda: write_profile(wanted, self._observe(), self._settings.contexts))
        if body is None:
            return say(404, "no such job or rank sends calling contexts; start it with deepprof run --contexts python")
        return PiecewiseResponse(body, media_type="application/octet-stream")

    async def _draw(self, key: FlameKey, snapshot: DaemonSnapshot) -> bytes | None:
        return await self._call(self._pager, lambda: draw_live_flame(key, snapshot, self._settings.contexts))

    async def _tell_life(self, _: Request) -> Response:
        problem = self._settings.vitals.problem
        return say(503, problem) if problem else say(200, "alive")

    async def _tell_ready(self, _: Request) -> Response:
        ready_s = self._settings.ready_s
        try:
            snapshot = await asyncio.wait_for(self._call(self._prober, self._observe), ready_s)
        except TimeoutError:
            return say(503, f"the daemon did not say within {ready_s:g} s how it is")
        return say(200, "ready") if snapshot.ready else say(503, snapshot.why_not or "not ready")

    @staticmethod
    async def _call(pool: Executor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)


async def _tell_unread(_: Request, error: Exception) -> Response:
    """Answer where the history cannot be read, now or at all."""
    return say(503, f"the history cannot be read: {str(error)[:200]}", {"Retry-After": "60"})


class _ScrapeResponse(Response):
    """The answer to a scrape, which contains one of the slots from before it is written until it has been read."""

    def __init__(self, render: Callable[[], Awaitable[bytes]], slots: asyncio.Semaphore) -> None:
        super().__init__()
        self._render, self._slots = render, slots

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the metrics."""
        async with self._slots:
            body = await self._render()
            await PiecewiseResponse(body, media_type=CONTENT_TYPE)(scope, receive, send)
