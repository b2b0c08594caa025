"""The daemon as it is at one moment: all that the exporter knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deepprof.live.service.senders import SenderView
    from deepprof.live.service.views import RankView

__all__ = ["DaemonSnapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSnapshot:
    """One look at the daemon. Times are Unix times of its clock in ns; sizes are bytes; `_total` only ever grows.

    `ranks` are all that the daemon knows, whether or not they are connected; the exporter alone decides which are
    shown. A view that has not changed should be the same object as before: its text is then not made anew.
    """

    now_unix_ns: int
    ranks: tuple[RankView, ...] = ()
    ready: bool = False  # takes records, and what it shows is fresh
    why_not: str = ""  # it is not ready, for people
    version: str = ""
    started_unix_ns: int = 0
    streams: int = 0  # open now
    queue_nbytes: int = 0  # taken and not yet mined, of all ranks
    journal_nbytes: int = 0
    history_nbytes: int = 0  # database and sealed files
    refused_messages_total: int = 0  # broke a limit or could not be read
    refusals_total: Mapping[tuple[str, str], int] = field(default_factory=lambda: MappingProxyType({}))
    """Streams, messages and calls that were refused, by reason and the name of who sent them ("": not known)."""
    senders: tuple[SenderView, ...] = ()
    examinations_total: int = 0  # times that the rules looked at a job's latest records
