"""The state graph of one loop's iteration (Gu et al., Figs. 5 and 9), with Table III beside it."""

from __future__ import annotations

from typing import Literal

import msgspec

from deepprof.web.documents.schema import Figure


class StateNode(msgspec.Struct, frozen=True, kw_only=True):
    """A state of the device or the host in the mean iteration; `count` is how often it is entered."""

    name: str
    title: str
    kind: Literal["copy", "compute", "communication", "host"]
    time_ns: int
    share_ratio: float
    count: float


class StateEdge(msgspec.Struct, frozen=True, kw_only=True):
    """One state follows another: `source` and `target` are rows of `nodes`, `probability` is after `source`."""

    source: int
    target: int
    count: float
    probability: float


class StatesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The states of one loop, and the transitions between them; times are of the mean iteration and add up to it."""

    schema: Literal["deepprof.view.states/1"] = "deepprof.view.states/1"
    loop: int
    nodes: list[StateNode]
    edges: list[StateEdge]
    figures: list[Figure]
    reading: str  # what the figures say, in a sentence
