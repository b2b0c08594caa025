"""The flame graphs of the daemon's page: the contexts of ranks in the hour before they last sent something."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self
from urllib.parse import quote, unquote

import msgspec
import polars as pl

from deepprof.live.service.exporter.profiles import ContextReader
from deepprof.live.service.exporter.snapshot import DaemonSnapshot
from deepprof.live.service.views import RankView
from deepprof.metrics.contexts.history import ContextsOfRank
from deepprof.web.documents.flame import write_sent_flame
from deepprof.web.documents.session import DocumentEntry, ViewEntry
from deepprof.web.views import DIRECTIONS

LATEST_NS = 3600 * 10**9
MOST_FLAMES = 64  # ranks that can be chosen, those that were seen last
WAYS: tuple[tuple[Literal["down", "up"], str], ...] = (("down", DIRECTIONS["down"]), ("up", DIRECTIONS["up"]))
NONE_SENT = "No job sends its calling contexts: start one with deepprof run --contexts python."


@dataclass(frozen=True, slots=True)
class FlameKey:
    """The key of a document: of which rank of which job, and in which direction."""

    job: str
    rank: int
    direction: Literal["down", "up"]

    @classmethod
    def read(cls, key: str) -> Self | None:
        """Return the parts of a key as `write` returned it, None for any other text."""
        name, *parts = key.split("/")
        if name != "flame" or len(parts) != 3 or parts[2] not in DIRECTIONS:
            return None
        if not (parts[1].isascii() and parts[1].isdecimal() and len(parts[1]) <= 9):
            return None
        return cls(unquote(parts[0]), int(parts[1]), "down" if parts[2] == "down" else "up")

    def write(self) -> str:
        """Return the key as a text; a slash in a job's name is none of the key's."""
        return f"flame/{quote(self.job, safe='')}/{self.rank}/{self.direction}"


def list_flames(ranks: Iterable[RankView]) -> ViewEntry:
    """Return the view of flame graphs, with a document per direction and rank that sends contexts, newest first."""
    sending = [view for view in ranks if view.contexts is not None]
    sending.sort(key=lambda view: (-view.first_seen_unix_ns, view.job, view.rank))
    documents = [
        DocumentEntry(key=FlameKey(view.job, view.rank, way).write(), title=f"{view.job}, rank {view.rank}, {title}")
        for view in sending[:MOST_FLAMES]
        for way, title in WAYS
    ]
    return ViewEntry(name="flame", title="Flame", documents=documents, problem=None if documents else NONE_SENT)


def draw_live_flame(key: FlameKey, snapshot: DaemonSnapshot, read: ContextReader) -> bytes | None:
    """Return the document of a key, None where the rank is unknown or sends no contexts."""
    place = (key.job, key.rank)
    view = next((each for each in snapshot.ranks if (each.job, each.rank) == place), None)
    if view is None or view.contexts is None:
        return None
    end = view.last_record_unix_ns
    found = [each for each in read(key.job, key.rank, end - LATEST_NS, end) if each.sums.height]
    if not found:
        return None
    nodes, sums = (pl.concat([getattr(each, name) for each in found]) for name in ("nodes", "sums"))
    table = ContextsOfRank(key.job, key.rank, nodes, sums).table
    return msgspec.json.encode(write_sent_flame(table, key.rank, key.direction))
