"""Which stream of a device is the main one while it runs (metrics.streams decides it for a whole trace)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deepprof.live.service.session.columns import Int64s, Marks

# Streams are compared after these numbers of device events: doubling up to LOOK_EVERY, then every LOOK_EVERY events.
# The miner mines for the first time at 1,024 kernels.
FIRST_LOOK, LOOK_EVERY = 1 << 10, 1 << 16
ENOUGH_KERNELS = FIRST_LOOK // 2  # kernels that make a stream the main one before LOOK_EVERY events
CLEARLY = 2  # another stream must lately have computed this many times as long to replace the main one


@dataclass(slots=True)
class _StreamWork:
    """What a stream has computed: kernels (and graph launches) that are not collectives, and how long they ran."""

    kernels: int = 0
    lasting_ns: float = 0.0


@dataclass(slots=True)
class StreamChoice:
    """The work of a device's streams, at most `most`; halved at every late comparison, because the past counts less."""

    most: int
    streams: dict[int, _StreamWork] = field(default_factory=dict)

    def count(self, streams: Int64s, collective: Marks, lasting_ns: Int64s) -> None:
        """Add kernels to the work of their streams."""
        if not len(streams):
            return
        if bool((streams == streams[0]).all()):
            numbers, which = streams[:1], np.zeros(len(streams), np.int64)
        else:
            numbers, which = np.unique(streams, return_inverse=True)
        sums = np.bincount(which, ~collective), np.bincount(which, np.where(collective, 0, lasting_ns))
        for number, kernels, lasting in zip(numbers.tolist(), *(one.tolist() for one in sums), strict=True):
            stream = self.streams.get(number)
            if stream is None and len(self.streams) < self.most:
                stream = self.streams[number] = _StreamWork()
            if stream is not None:
                stream.kernels += int(kernels)
                stream.lasting_ns += lasting

    def choose(self, main: int | None, seen: int, *, ends: bool = False) -> int | None:
        """Return the main stream after `seen` device events; `main` is the one so far. None: no stream computes yet.

        It is the stream whose kernels run longest, without collectives; on a tie the one with more kernels, then the
        one with the lower number.
        """
        ranked = [(s.lasting_ns, s.kernels, -number) for number, s in self.streams.items() if s.kernels]
        if not ranked:
            return main
        lasting_ns, kernels, number = max(ranked)
        early = seen < LOOK_EVERY
        if main is None:
            return -number if kernels >= ENOUGH_KERNELS or not early or ends else None
        ours = self.streams[main].lasting_ns if main in self.streams else 0
        return -number if lasting_ns > (ours if early else CLEARLY * ours) else main

    def fade(self) -> None:
        """Halve all counts so far."""
        for stream in self.streams.values():
            stream.kernels, stream.lasting_ns = stream.kernels // 2, stream.lasting_ns / 2


def next_look(seen: int) -> int:
    """Return after how many device events the streams are compared next."""
    if seen >= LOOK_EVERY:
        return (seen // LOOK_EVERY + 1) * LOOK_EVERY
    return FIRST_LOOK << max(0, (seen // FIRST_LOOK).bit_length())
