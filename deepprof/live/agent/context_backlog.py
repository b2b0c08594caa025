"""Sums of calling contexts on their way to a rank: held until the device events of their window are here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from deepprof.collectors.live.packets import CONTEXT_SUM, LAUNCH
from deepprof.live.agent.clocks import ClockFollower
from deepprof.live.agent.device_times import PATIENCE_NS, ContextDeviceTimes
from deepprof.live.agent.hello import ProtocolError
from deepprof.live.agent.process_contexts import ProcessContexts, SumTimes
from deepprof.live.agent.reordering import Rows

if TYPE_CHECKING:
    import polars as pl

    NameIds = Callable[[npt.NDArray[np.uint32]], npt.NDArray[np.uint32]]
    """The rank's ids of names, for the process's."""

NEVER = np.iinfo(np.int64).max
MOST_SUMS = 1 << 18  # that are kept: 10 MB


class _ContextPiece(NamedTuple):
    """Tables of some sums, and how many sums follow in other pieces of the same release."""

    tables: dict[str, pl.DataFrame]
    sums: int
    following: int


@dataclass(slots=True, eq=False)
class ContextBacklog:
    """What a process has told of its calling contexts, and sums that wait for the time on devices."""

    tree: ProcessContexts = field(default_factory=ProcessContexts)
    device: ContextDeviceTimes = field(default_factory=ContextDeviceTimes)
    parts: list[Rows] = field(default_factory=list)

    @property
    def held(self) -> int:
        """How many sums wait."""
        return sum(map(len, self.parts))

    @property
    def is_used(self) -> bool:
        """Whether the process shows of contexts at all."""
        return len(self.tree) > 1

    def add_contexts(self, payload: memoryview, names: Sequence[str]) -> None:
        """Take a packet of contexts; `names` are texts by the process's ids. Raises `ProtocolError`."""
        self.tree.add(payload, names)

    def add_launches(self, payload: memoryview, now_ns: int) -> int:
        """Take a packet of launches; return how many are of no context. Raises `ProtocolError`."""
        if len(payload) % LAUNCH.itemsize:
            raise ProtocolError("a packet of launches is cut")
        rows = np.frombuffer(payload, LAUNCH)
        known = (rows["context"] > 0) & (rows["context"] < len(self.tree))
        self.device.add_launches(rows[known], now_ns)
        return len(rows) - int(known.sum())

    def add_events(self, rows: Rows, now_ns: int) -> None:
        """Take device events that were given to the rank."""
        if self.is_used:
            self.device.add_events(rows, now_ns)

    def add_sums(self, rows: Rows) -> Iterator[tuple[str, Rows]]:
        """Take sums; yield reasons and those that cannot be used."""
        for reason, good in self.tree.judge(rows):
            if not good.all():
                yield reason, rows[~good]
                yield from self.add_sums(rows[good])
                return
        self.parts.append(rows)

    def clear(self) -> list[Rows]:
        """Remove all sums that wait, and return them."""
        parts, self.parts = self.parts, []
        return parts

    def take(self, until_ns: int | None) -> Rows:
        """Return the sums of windows that ended by `until_ns` (None: all), by start."""
        rows = np.concatenate([np.empty(0, CONTEXT_SUM), *self.clear()])
        ready = rows["end_ns"] <= (NEVER if until_ns is None else until_ns)
        self.parts = [rows[~ready]] if not ready.all() else []
        rows = rows[ready]
        return rows[np.argsort(rows["start_ns"], kind="stable")]

    def release(self, rows: Rows, now_ns: int, clock: ClockFollower, names: NameIds) -> Iterator[_ContextPiece]:
        """Yield sums as tables, with what came in of the time on devices of their contexts."""
        self.device.join(now_ns)
        counts, times_ns = self.device.take(rows["context"])
        start = clock.to_unix(rows["start_ns"])
        length = np.maximum(clock.to_unix(rows["end_ns"]) - start, 0)
        for part, ids in self.tree.cut(rows):
            nodes = self.tree.nodes(ids, names(self.tree.names_of(ids)))
            times = SumTimes(start[part], length[part], counts[part], times_ns[part])
            tables = {"context_sums": self.tree.sums(rows[part], times), "context_nodes": nodes}
            yield _ContextPiece(tables, len(rows[part]), len(rows) - part.stop)

    def finish(self, now_ns: int) -> int:
        """Return how many device events came into no sum, now that nothing follows."""
        return self.device.finish(now_ns) if self.is_used else 0

    def renew(self, now_ns: int) -> ContextBacklog:
        """Return what is available after a new connection, on which the process shows its contexts again."""
        return ContextBacklog(device=ContextDeviceTimes(unjoined=self.finish(now_ns)))


def ready_until(watermark_ns: int, now_ns: int) -> int:
    """Return up to when windows need not wait any more: a device that is not heard of is not waited for."""
    return max(watermark_ns, now_ns - PATIENCE_NS)
