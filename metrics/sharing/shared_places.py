"""Which ranks have work on one and the same device: only what the recordings prove, or the user states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl
from msgspec import Struct

from deepprof.collectors.errors import UsageError
from deepprof.collectors.processes import session_of
from deepprof.collectors.trace import WORK_ACTIVITIES, Trace
from deepprof.metrics.operators import is_stand_in
from deepprof.metrics.sharing.work import DeviceWork, OtherWork, read_work

Place = tuple[int, int]  # rank and its device


class RankDevices(Struct, frozen=True):
    """The devices that a rank has work on, each with an identity that holds beyond the rank (None: not recorded).

    Times of two ranks can be compared if their `clock` is the same: "unix", or the recording that they are parts of.
    """

    rank: int
    devices: tuple[tuple[int, str | None], ...]
    clock: str | None


class SharedPlaces(Struct, frozen=True):
    """A device that several ranks have work on, each under its own number; `identity`: None if user-stated."""

    identity: str | None
    places: tuple[Place, ...]


class SharedWork(Struct, frozen=True):
    """The work of each of several ranks on a device that they share."""

    identity: str | None
    works: tuple[DeviceWork, ...]

    def beside(self, rank: int) -> list[DeviceWork]:
        """Return the work of the other ranks there."""
        return [work for work in self.works if work.rank != rank]

    def others(self, rank: int) -> OtherWork:
        """Return when any of the other ranks has work there."""
        return OtherWork.of(self.beside(rank))


def list_devices(trace: Trace) -> RankDevices:
    """Return the devices of the rank of `trace`; CPU operators that count as kernels are on none."""
    work = trace.device_events.filter(pl.col("activity").is_in(WORK_ACTIVITIES))
    used = [] if is_stand_in(trace) else work["device"].unique().sort().to_list()
    known = dict(trace.processes[0].devices) if len(trace.processes) == 1 else {}
    clock = "unix" if trace.clock == "unix" else session_of(trace)
    return RankDevices(trace.rank or 0, tuple((device, known.get(device)) for device in used), clock)


def find_shared(ranks: Sequence[RankDevices], *, same_device: bool = False) -> tuple[SharedPlaces, ...]:
    """Return the devices that two ranks or more have work on, and on one clock.

    The same number on one host proves nothing: processes may see different devices under it. With `same_device` the
    user states that the ranks ran on one machine: if each has only one device, it is the same one; of several devices
    those with the same number are. Raises `UsageError` where that cannot be, or the clocks cannot be compared.
    """
    found: dict[tuple[str, str], list[Place]] = {}
    if same_device:
        _check_word(ranks)
        single = all(len(each.devices) <= 1 for each in ranks)
        named = (
            ("", "" if single else str(device), (each.rank, device)) for each in ranks for device, _ in each.devices
        )
    else:
        known = (each for each in ranks if each.clock is not None)
        named = ((str(each.clock), name, (each.rank, d)) for each in known for d, name in each.devices if name)
    for clock, name, place in named:
        found.setdefault((clock, name), []).append(place)
    shared = (SharedPlaces(None if same_device else name, tuple(places)) for (_, name), places in found.items())
    return tuple(each for each in shared if len({rank for rank, _ in each.places}) > 1)


def _check_word(ranks: Iterable[RankDevices]) -> None:
    """Raise `UsageError` if the ranks cannot have shared a device, or their clocks cannot be compared."""
    busy = [each for each in ranks if each.devices]
    if len(busy) < 2:
        raise UsageError("--same-device takes traces of two processes or more with work on a device")
    if None in {each.clock for each in busy} or len({each.clock for each in busy}) > 1:
        raise UsageError("--same-device: the clocks of these traces cannot be compared; record both with unix time")


def read_shared(shared: Iterable[SharedPlaces], traces: Iterable[Trace]) -> tuple[SharedWork, ...]:
    """Return the work of the ranks of `traces` on the devices that they share."""
    by_rank: Mapping[int, Trace] = {trace.rank or 0: trace for trace in traces}
    return tuple(
        SharedWork(each.identity, tuple(read_work(by_rank[rank], device) for rank, device in each.places))
        for each in shared
    )
