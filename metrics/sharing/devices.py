"""A device and the processes that share it: how busy it is with one of them and with several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from msgspec import Struct

from deepprof.metrics.sharing.shared_places import Place, SharedWork
from deepprof.metrics.sharing.shares import Manner, ShareOfDevice
from deepprof.metrics.sharing.work import DeviceWork, merge
from deepprof.metrics.spans import NOTHING, Spans, intersect, union

ABSENT_NS = 100_000_000  # a process without a loop has gone after a longer pause; one with a loop after two iterations


class _Utilisation(Struct, frozen=True):
    """How long a given number of processes was present, and for how much of that time the device worked."""

    span_ns: int
    busy_ns: int

    @property
    def ratio(self) -> float | None:
        """Share of the time in which the device works; None without any time."""
        return self.busy_ns / self.span_ns if self.span_ns else None


class SharedDevice(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A device that several processes have work on, and each of them; `alone` is while one process is present."""

    identity: str | None
    manner: Manner
    alone: _Utilisation
    together: _Utilisation
    processes: tuple[ShareOfDevice, ...]


def measure_device(shared: SharedWork, shares: Mapping[Place, ShareOfDevice]) -> SharedDevice:
    """Return the device of `shared`; `shares` has the share of each of its places."""
    processes = tuple(shares[work.rank, work.device] for work in shared.works)
    alone, together = measure_utilisation(
        shared.works, [find_presence(w, s) for w, s in zip(shared.works, processes, strict=True)]
    )
    seen = [share.manner for share in processes if share.manner != "not visible"]
    manner: Manner = "at once" if "at once" in seen else seen[0] if seen else "not visible"
    return SharedDevice(identity=shared.identity, manner=manner, alone=alone, together=together, processes=processes)


def measure_utilisation(works: Sequence[DeviceWork], present: Sequence[Spans]) -> tuple[_Utilisation, _Utilisation]:
    """Return how busy the device is while one process is present, and while several are."""
    both = merge([intersect(one, other) for one, other in combinations(present, 2)])
    someone, busy = merge(present), merge([work.busy for work in works])
    working = intersect(busy, both).total_ns
    alone = _Utilisation(someone.total_ns - both.total_ns, intersect(busy, someone).total_ns - working)
    return alone, _Utilisation(both.total_ns, working)


def find_presence(work: DeviceWork, share: ShareOfDevice) -> Spans:
    """Return when a process is present, pauses included; during a pause of over two of its iterations it is absent."""
    busy, longest = work.busy, share.longest_ns
    if not len(busy.starts):
        return NOTHING
    at = np.flatnonzero(busy.starts[1:] - busy.ends[:-1] > (ABSENT_NS if longest is None else 2 * longest))
    return union(busy.starts[np.append(0, at + 1)], busy.ends[np.append(at, len(busy.ends) - 1)])
