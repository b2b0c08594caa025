"""What an analysis is asked, the same of every rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from deepprof.collectors.trace import Trace
from deepprof.metrics.selection.selected_trace import SelectedTrace
from deepprof.metrics.sharing.shared_places import SharedWork

if TYPE_CHECKING:
    from deepprof.metrics.cost.roofs import DevicePeaks


class AnalysisOptions(Struct, frozen=True):
    """Options for every rank: the paper's `counts`, a main `stream` if one is named, and whether it is the only rank.

    `shared` are the devices that it shares with other ranks. `peaks` are those of all devices, in place of the vendors'
    figures for the devices that the recording names.
    """

    counts: tuple[int, ...] = ()
    stream: tuple[int, int] | None = None
    alone: bool = True
    shared: tuple[SharedWork, ...] = ()
    peaks: DevicePeaks | None = None

    def find_shared(self, rank: int) -> Mapping[int, SharedWork]:
        """Return the work of all ranks on every device that rank `rank` shares with others, by device."""
        return {work.device: shared for shared in self.shared for work in shared.works if work.rank == rank}

    def find_known(self, trace: Trace) -> SelectedTrace | None:
        """Return the trace if it brings the loops of a whole, and no others are requested."""
        asked = self.counts or self.stream is not None
        return trace if isinstance(trace, SelectedTrace) and not asked else None
