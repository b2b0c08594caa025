"""The names of a process, by its own ids, as its packets show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from deepprof.collectors.live.packets import NAME_HEAD
from deepprof.live.agent.hello import ProtocolError
from deepprof.live.agent.rank_spool import RankSpool

MOST_NAMES, MOST_NBYTES = 1 << 20, 64 << 20

UNKNOWN = "(unknown)"


class ProcessNameTable:
    """Texts by the process's ids, which begin at 1; 0, and ids that never arrived, are unknown."""

    def __init__(self) -> None:
        self.texts = [UNKNOWN]
        self.nbytes = 0
        self.found = np.empty(0, np.uint32)  # the rank's ids, by the process's
        self.known: dict[Callable[[str], bool], npt.NDArray[np.bool_]] = {}

    def add(self, payload: memoryview) -> None:
        """Take the names of a packet. Raises `ProtocolError`."""
        at, head = 0, NAME_HEAD.itemsize
        while at + head <= len(payload):
            number, nbytes = (int(value) for value in np.frombuffer(payload, NAME_HEAD, 1, at)[0])
            text = bytes(payload[at + head : at + head + nbytes])
            if number != len(self.texts) or len(text) != nbytes:
                raise ProtocolError("its names are numbered wrongly, or cut")
            at, self.nbytes = at + head + nbytes, self.nbytes + nbytes
            if number > MOST_NAMES or self.nbytes > MOST_NBYTES:
                raise ProtocolError("it has too many names")
            self.texts.append(text.decode("utf-8", "backslashreplace"))  # different names stay different
        if at != len(payload):
            raise ProtocolError("a packet of names is cut")

    def ids(self, names: npt.NDArray[Any], rank: RankSpool) -> npt.NDArray[np.uint32]:
        """Return the rank's ids for the process's ids."""
        if len(self.found) < len(self.texts):
            self.found = np.concatenate([self.found, rank.name_ids(self.texts[len(self.found) :])])
        found: npt.NDArray[np.uint32] = self.found[self._within(names)]
        return found

    def marks(self, names: npt.NDArray[Any], holds: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
        """Return for which of the process's ids `holds` is true of the text; it is called once per text."""
        known = self.known.get(holds, np.empty(0, np.bool_))
        if len(known) < len(self.texts):
            fresh = np.array([holds(text) for text in self.texts[len(known) :]], np.bool_)
            known = self.known[holds] = np.concatenate([known, fresh])
        marks: npt.NDArray[np.bool_] = known[self._within(names)]
        return marks

    def _within(self, names: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.where(names < len(self.texts), names, 0)
