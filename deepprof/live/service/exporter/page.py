"""The daemon's page: all jobs as they run, and for every job the documents of its latest examination."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from deepprof.live.service.exporter.live_documents import write_live, write_session
from deepprof.live.service.exporter.live_flame import FlameKey
from deepprof.live.service.exporter.snapshot import NEVER_EXAMINED, DaemonSnapshot, JobExamination
from deepprof.web.answers import give_document, say
from deepprof.web.assets import ASSETS, show_page
from deepprof.web.events import EventFeed


class DaemonPage:
    """The routes of the page. Nothing is written while no one asks.

    `look` returns a snapshot, and `draw` the document of a flame graph by the parts of its key, in another thread.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[DaemonSnapshot]],
        draw: Callable[[FlameKey, DaemonSnapshot], Awaitable[bytes | None]],
    ) -> None:
        self._look, self._draw = look, draw
        self._last: DaemonSnapshot | None = None
        self._events: Mapping[str, bytes] = {}
        self.app = Router(
            [
                Route("/", _show_own),
                ASSETS,
                Route("/api/events", EventFeed(self._observe).answer),
                Route("/api/documents/{key:path}", self._give_own),
                Route("/jobs/{job}", _add_slash),
                Route("/jobs/{job}/", self._show_job),
                Route("/jobs/{job}/api/documents/{key:path}", self._give_of_job),
            ],
            redirect_slashes=False,
        )

    async def _observe(self) -> Mapping[str, bytes]:
        """Return the data of the events, the last ones where nothing has changed since."""
        snapshot = await self._look()
        if self._last is None or not _is_same(snapshot, self._last):
            live = write_live(snapshot)
            found = {"live": live, "findings": live.findings}
            self._events = {event: msgspec.json.encode(value) for event, value in found.items()}
            self._last = snapshot
        return self._events

    async def _give_own(self, request: Request) -> Response:
        flame = FlameKey.read(request.path_params["key"])
        if flame is not None:
            return give_document(await self._draw(flame, await self._look()))
        write = {"live": write_live, "session": write_session}.get(_read_key(request))
        return give_document(None if write is None else msgspec.json.encode(write(await self._look())))

    async def _give_of_job(self, request: Request) -> Response:
        """Answer with a document of the latest examination; a page that began with an earlier one has to begin anew.

        Numbers of findings and loops are those of one examination.
        """
        documents = (await self._find(request)).documents
        edition = _name_edition(documents)
        if documents and request.headers.get("if-match", edition) != edition:
            return say(412, "the job was examined again meanwhile; reload the page")
        answer = give_document(documents.get(_read_key(request)))
        answer.headers["ETag"] = edition
        return answer

    async def _show_job(self, request: Request) -> Response:
        if not (await self._find(request)).documents:
            return say(404, "there are no documents of such a job: it is not known, or was not examined yet")
        return show_page(unquote(request.path_params["job"]))

    async def _find(self, request: Request) -> JobExamination:
        snapshot = await self._look()
        return snapshot.examinations.get(unquote(request.path_params["job"]), NEVER_EXAMINED)


async def _show_own(_: Request) -> Response:
    return show_page("Live")


async def _add_slash(request: Request) -> Response:
    """Send to the address with a slash, from which the page searches for its documents."""
    return Response(status_code=308, headers={"Location": f"{request.scope['path']}/"})


def _name_edition(documents: Mapping[str, bytes]) -> str:
    return f'"{zlib.crc32(documents.get("session", b"")):08x}-{sum(map(len, documents.values())):x}"'


def _read_key(request: Request) -> str:
    return unquote(request.path_params["key"])


def _is_same(one: DaemonSnapshot, other: DaemonSnapshot) -> bool:
    """Return whether two snapshots show the same; views that have not changed are the same objects."""
    return (one.ready, one.why_not, one.examinations) == (other.ready, other.why_not, other.examinations) and (
        one.ranks == other.ranks
    )
