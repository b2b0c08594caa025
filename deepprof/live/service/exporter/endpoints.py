"""The answers of the three paths: `/metrics`, `/healthz` (no part has failed) and `/readyz` (ready, or why not)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from deepprof.live.service.exporter.exposition import Exposition
from deepprof.live.service.exporter.http_messages import HttpAnswer, HttpRequest, say
from deepprof.live.service.exporter.process import ProcessMetrics
from deepprof.live.service.exporter.settings import ExporterSettings
from deepprof.live.service.exporter.snapshot import DaemonSnapshot

__all__ = ["CONTENT_TYPE", "ExporterPages", "Look"]

Look = Callable[[], DaemonSnapshot]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SCRAPES = 4  # at a time: each holds its text, 5 MB with 1,000 ranks


class ExporterPages:
    """Answers requests from the snapshots that `look` returns."""

    def __init__(self, look: Look, exposition: Exposition, settings: ExporterSettings) -> None:
        self._look, self._exposition, self._settings = look, exposition, settings
        self._process = ProcessMetrics()
        # A thread each: a scrape waits for other scrapes, but a probe does not wait for scrapes.
        self._scraper = ThreadPoolExecutor(1, "deepprof-scrape")
        self._prober = ThreadPoolExecutor(1, "deepprof-probe")
        self._slots = SCRAPES

    async def answer(self, request: HttpRequest, send: Callable[[HttpAnswer], Awaitable[None]]) -> None:
        """Hand the answer to `send`."""
        if request.path == "/metrics":
            await self._scrape(request, send)
        elif request.path == "/healthz":
            await send(say(503, problem) if (problem := self._settings.vitals.problem) else say(200, "alive"))
        elif request.path == "/readyz":
            await send(await self._probe())
        else:
            await send(say(404, "there are /metrics, /healthz and /readyz"))

    async def _scrape(self, request: HttpRequest, send: Callable[[HttpAnswer], Awaitable[None]]) -> None:
        if self._settings.authorize is not None and not self._settings.authorize(request.authorization):
            return await send(say(401, "a token is needed", "WWW-Authenticate: Bearer"))
        if not self._slots:
            return await send(say(503, f"{SCRAPES} scrapes are being read already", "Retry-After: 1"))
        self._slots -= 1
        try:
            body = await asyncio.get_running_loop().run_in_executor(self._scraper, self._draw)
            await send(HttpAnswer(200, body, CONTENT_TYPE))
        finally:
            self._slots += 1
        return None

    def _draw(self) -> bytes:
        return (self._exposition.render(self._observe()) + self._process.render()).encode()

    def _observe(self) -> DaemonSnapshot:
        """Return a snapshot; errors become `RuntimeError`, so that none is taken for the connection's or a timeout."""
        try:
            return self._look()
        except Exception as error:
            raise RuntimeError("no snapshot of the daemon could be made") from error

    async def _probe(self) -> HttpAnswer:
        looking = asyncio.get_running_loop().run_in_executor(self._prober, self._observe)
        try:
            snapshot = await asyncio.wait_for(looking, self._settings.ready_s)
        except TimeoutError:
            return say(503, f"the daemon did not say within {self._settings.ready_s:g} s how it is")
        return say(200, "ready") if snapshot.ready else say(503, snapshot.why_not or "not ready")

    def close(self) -> None:
        """Start no more scrapes and probes."""
        self._scraper.shutdown(wait=False, cancel_futures=True)
        self._prober.shutdown(wait=False, cancel_futures=True)
