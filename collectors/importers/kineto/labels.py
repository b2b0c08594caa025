"""What the texts of Kineto events mean: the kind of every event, and the id of its name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from deepprof.collectors.importers.kineto.kinds import DEVICE_KINDS, DROPPED_KINDS, HOST_KINDS, KinetoKinds
from deepprof.collectors.importers.kineto.kineto_schema import KinetoEvent
from deepprof.collectors.importers.value_columns import NameTable

if TYPE_CHECKING:
    import numpy.typing as npt

    Codes = npt.NDArray[np.uint8]
    Ids = npt.NDArray[np.int64]

KINDS = (*DEVICE_KINDS, *HOST_KINDS, "host annotation", "device annotation", "memory", "instant", *DROPPED_KINDS)
CODES = {kind: code for code, kind in enumerate(KINDS)}
INSTANT = CODES["instant"]  # until the name shows what the event marks
NAMELESS = np.array([kind in {"memory", *DROPPED_KINDS} for kind in KINDS])  # their names would only fill the table
MEMORY_MARK = "[memory]"
PROFILER_MARK = re.compile("^(?:Iteration Start|Record Window End)")


class Labels:
    """Numbers kinds (`KINDS`) and names, and maps a reader's own numbers of texts to them."""

    def __init__(self) -> None:
        self.names = NameTable()
        self.kinds = KinetoKinds()
        self.categories: list[str] = []  # by a reader's key
        self.key_codes = np.empty(0, np.uint8)
        self.name_ids = np.empty(0, np.int64)  # by a reader's name; -1: not looked up yet

    def of_events(self, events: Sequence[KinetoEvent | None]) -> tuple[Codes, Ids]:
        """Return the kinds and name ids of `events`; None, which is no event, has the kind "undecodable"."""
        codes = np.array([self.code_of(event) for event in events], np.uint8)
        ids = [
            0 if event is None or nameless else self.names[event.name]
            for event, nameless in zip(events, NAMELESS[codes].tolist(), strict=True)
        ]
        return codes, np.array(ids, np.int64)

    def code_of(self, event: KinetoEvent | None) -> int:
        """Return the kind of `event`."""
        if event is None:
            return CODES["undecodable"]
        code = CODES[self.kinds[event.ph, event.cat]]
        return _mark_code(event.name) if code == INSTANT else code

    def of_rows(self, rows: npt.NDArray[Any], keys: Sequence[bytes], names: Sequence[bytes]) -> tuple[Codes, Ids]:
        """Return the kinds and name ids of `rows`, whose `key` and `name` index `keys` and `names`."""
        self.learn(keys, len(names))
        codes = self.key_codes[rows["key"]]
        marks = np.flatnonzero(codes == INSTANT)
        codes[marks] = [_mark_code(_text_of(names[name])) for name in rows["name"][marks].tolist()]
        numbers = np.where(NAMELESS[codes], 0, rows["name"])
        wanted = rows["name"][~NAMELESS[codes]]
        fresh = wanted[self.name_ids[wanted] < 0]
        for name in dict.fromkeys(fresh.tolist()):
            self.name_ids[name] = self.names[_text_of(names[name])]
        return codes, np.where(NAMELESS[codes], 0, self.name_ids[numbers])

    def learn(self, keys: Sequence[bytes], names: int) -> None:
        """Add the reader's new `keys`, and extend the name ids to its number of `names`."""
        pairs = [key.decode("ascii").split("\0", 1) for key in keys[len(self.categories) :]]
        self.categories += [category for _, category in pairs]
        codes = [CODES[self.kinds[phase, category]] for phase, category in pairs]
        self.key_codes = np.append(self.key_codes, np.array(codes, np.uint8))
        if names > len(self.name_ids):
            self.name_ids = np.append(self.name_ids, np.full(2 * names - len(self.name_ids), -1))


def _mark_code(name: str) -> int:
    """Return the kind of an instant event called `name`."""
    if name == MEMORY_MARK:
        return CODES["memory"]
    return CODES["profiler" if PROFILER_MARK.match(name) else "unknown"]


def _text_of(raw: bytes) -> str:
    """Return the text that is written as `raw` between quotes in JSON; `raw` is always ASCII."""
    return str(msgspec.json.decode(b'"%b"' % raw)) if b"\\" in raw else raw.decode("ascii")
