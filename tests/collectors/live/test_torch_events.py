"""Kineto's events as records: made-up ones, since a CPU has no kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deepprof.collectors.live.packets import ANNOTATION, NO_COPY, NO_TOTAL
from deepprof.collectors.live.torch_events import read_cycle
from deepprof.collectors.trace import ACTIVITIES, COPY_KINDS, HOST_CATEGORIES


@dataclass
class Old:
    """What every release's event has."""

    text: str
    kind: str
    start: int
    duration: int = 10
    place: int = 0  # a stream, or a thread
    device: int = 0
    correlation: int = 0
    linked: int = 0

    def name(self) -> str:
        return self.text

    def start_ns(self) -> int:
        return self.start

    def duration_ns(self) -> int:
        return self.duration

    def device_index(self) -> int:
        return self.device

    def device_resource_id(self) -> int:
        return self.place

    def correlation_id(self) -> int:
        return self.correlation

    def linked_correlation_id(self) -> int:
        return self.linked

    def device_type(self) -> str:
        on_device = self.kind in {"kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"}
        return "DeviceType.CUDA" if on_device else "DeviceType.CPU"

    def is_user_annotation(self) -> bool:
        return "annotation" in self.kind


@dataclass
class New(Old):
    """What today's has next to that."""

    details: str = ""
    hidden: bool = False

    def activity_type(self) -> str:
        return self.kind

    def metadata_json(self) -> str:
        return self.details

    def is_hidden_event(self) -> bool:
        return self.hidden


DETAILS = '"queued": 0, "device": 1, "context": 3, "stream": 7, "bytes": 4096, "graph id": 5, "graph node id": 77'


def intern(texts: Sequence[str]) -> Any:
    return np.array([TEXTS.index(text) + 1 for text in texts], np.uint32)


TEXTS = [
    *("gemm", "Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "Stream Synchronize"),
    *("aten::mm", "cudaLaunchKernel", "train", "Optimizer.step#SGD.step", "main.py(3): loop", "Memcpy"),
]


def cuda_events(kind: type[Any]) -> list[Any]:
    return [
        kind("aten::mm", "cpu_op", 100, 50, place=11, correlation=40),
        kind("cudaLaunchKernel", "cuda_runtime", 110, 5, place=11, correlation=40, linked=40),
        kind("train", "user_annotation", 90, 300, place=11, correlation=1),
        kind("gemm", "kernel", 200, 30, place=7, device=1, correlation=40, linked=40),
        kind("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 150, 20, place=20, device=1, correlation=41),
        kind("Memset (Device)", "gpu_memset", 180, 5, place=7, device=1, correlation=42),
        kind("train", "gpu_user_annotation", 140, 100, place=7, device=1),
    ]


@pytest.mark.parametrize("kind", [New, Old])
def test_device_events_of_every_release(kind: type[Any]) -> None:
    rows = read_cycle(cuda_events(kind), intern).events
    assert rows["end_ns"].tolist() == [170, 185, 230]
    assert rows["start_ns"].tolist() == [150, 180, 200]
    assert [ACTIVITIES[at] for at in rows["activity"]] == ["memcpy", "memset", "kernel"]
    assert COPY_KINDS[rows["copy_kind"][0]] == "HtoD"
    assert rows["copy_kind"][1:].tolist() == [NO_COPY, NO_COPY]
    assert rows["device"].tolist() == [1, 1, 1]
    assert rows["stream"].tolist() == [20, 7, 7]
    assert rows["correlation"].tolist() == [41, 42, 40]
    assert rows["flags"].tolist() == [1, 1, 1]
    assert [TEXTS[name - 1] for name in rows["name"]] == ["Memcpy HtoD (Pinned -> Device)", "Memset (Device)", "gemm"]


@pytest.mark.parametrize("kind", [New, Old])
def test_ranges_of_every_release(kind: type[Any]) -> None:
    rows = read_cycle(cuda_events(kind), intern).ranges
    assert [TEXTS[name - 1] for name in rows["name"]] == ["train", "aten::mm", "cudaLaunchKernel"]
    assert [HOST_CATEGORIES[at] for at in rows["category"][1:]] == ["op", "runtime"]
    assert rows["category"][0] == ANNOTATION
    assert rows["depth"].tolist() == [0, 1, 2]
    assert rows["thread"].tolist() == [11, 11, 11]
    assert rows["correlation"].tolist() == [0, 0, 40]  # an operator's number is torch's, not the driver's
    assert set(rows["source"]) == {3}


def test_bytes_and_graphs_are_in_the_text() -> None:
    rows = read_cycle([New("gemm", "kernel", 5, details=DETAILS), New("gemm", "kernel", 6)], intern).events
    assert rows["nbytes"].tolist() == [4096, 0]
    assert rows["context"].tolist() == [3, 0]
    assert rows["graph"].tolist() == [5, 0]
    assert rows["graph_node"].tolist() == [77, 0]


def test_kinds_without_a_place_are_counted_and_hidden_events_are_not_there() -> None:
    events = [
        New("train", "gpu_user_annotation", 1),
        New("[OutOfMemory]", "cpu_instant_event", 2),
        New("aten::mm", "cpu_op", 3, hidden=True),
        New("main.py(3): loop", "python_function", 4),
        New("Stream Synchronize", "cuda_sync", 5, place=-1, device=-1),
    ]
    cycle = read_cycle(events, intern)
    assert cycle.skipped == 2
    assert HOST_CATEGORIES[cycle.ranges["category"][0]] == "python"
    assert ACTIVITIES[cycle.events["activity"][0]] == "sync"
    assert (cycle.events["device"][0], cycle.events["flags"][0]) == (0, 0)


def test_odd_values_keep_their_place() -> None:
    events = [New("gemm", "kernel", 10, -5, correlation=2**40), New("Memcpy", "gpu_memcpy", 10, details='"bytes": 9')]
    rows = read_cycle(events, intern).events
    assert rows["end_ns"].tolist() == [10, 20]
    assert (rows["correlation"][0], rows["flags"][0]) == (0, 0)
    assert (rows["copy_kind"][1], rows["nbytes"][1]) == (NO_COPY, 9)


def test_nothing_is_nothing() -> None:
    cycle = read_cycle([], intern)
    assert (len(cycle.events), len(cycle.ranges), cycle.skipped) == (0, 0, 0)


MEBIBYTE = 2**20


@dataclass
class OldMark(Old):
    """An allocation or a release, as every release shows it among other events."""

    size: int = 0
    memory_of: str = "CUDA"

    def nbytes(self) -> int:
        return self.size

    def device_type(self) -> str:
        return f"DeviceType.{self.memory_of}"


@dataclass
class NewMark(OldMark, New):
    """What today's has next to that."""


@dataclass
class Node:
    """A node of torch's tree of events."""

    kind: str
    start_time_ns: int = 0
    size: int = 0
    address: int = 0
    allocated: int = 0
    children: list[Node] = field(default_factory=list)

    @property
    def tag(self) -> Any:
        return SimpleNamespace(name=self.kind)

    @property
    def extra_fields(self) -> Any:
        totals = {"total_allocated": self.allocated, "total_reserved": 4 * MEBIBYTE}
        return SimpleNamespace(ptr=self.address or None, alloc_size=self.size, **totals)


def memory_marks(kind: type[Any]) -> list[Any]:
    """An allocation on a device, one of the host at the same time as a release there, in no order."""
    return [
        kind("[memory]", "cpu_instant_event", 20, 0, 12, 1, size=-MEBIBYTE),
        kind("aten::mm", "cpu_op", 5, 20, 11, size=0, memory_of="CPU"),
        kind("[memory]", "cpu_instant_event", 10, 0, 11, 1, size=MEBIBYTE),
        kind("[memory]", "cpu_instant_event", 20, 0, 11, 0, size=64, memory_of="CPU"),
    ]


TREE = [
    Node("TorchOp", 5, children=[Node("Allocation", 10, MEBIBYTE, 2**64 - 512, 3 * MEBIBYTE)]),
    Node("Allocation", 20, -MEBIBYTE, 2**64 - 512, 2 * MEBIBYTE),
    Node("PyCall", 19, children=[Node("TorchOp", 19, children=[Node("Allocation", 20, 64, 4096, 64)])]),
]


@pytest.mark.parametrize("kind", [NewMark, OldMark])
def test_changes_of_memory_have_the_places_and_totals_of_the_tree(kind: type[Any]) -> None:
    cycle = read_cycle(memory_marks(kind), intern, lambda: TREE)
    rows = cycle.changes
    assert (cycle.skipped, len(cycle.ranges), cycle.count) == (0, 1, 4)
    assert rows["time_ns"].tolist() == [10, 20, 20]
    assert rows["nbytes"].tolist() == [MEBIBYTE, 64, -MEBIBYTE]
    assert rows["device"].tolist() == [1, -1, 1]
    assert rows["thread"].tolist() == [11, 11, 12]
    assert rows["address"].tolist() == [2**64 - 512, 4096, 2**64 - 512]
    assert rows["allocated_nbytes"].tolist() == [3 * MEBIBYTE, 64, 2 * MEBIBYTE]
    assert rows["reserved_nbytes"].tolist() == [4 * MEBIBYTE] * 3


@pytest.mark.parametrize("tree", [None, list, lambda: TREE[:2], lambda: [*TREE[:2], Node("Allocation", 21, 64, 1, 1)]])
def test_without_a_tree_of_the_same_changes_nothing_is_made_up(tree: Any) -> None:
    rows = read_cycle(memory_marks(NewMark), intern, tree).changes
    assert rows["nbytes"].tolist() == [MEBIBYTE, 64, -MEBIBYTE]
    assert not rows["address"].any()
    assert set(rows["allocated_nbytes"].tolist()) == {NO_TOTAL}


def test_the_tree_is_not_asked_for_where_memory_was_not_recorded() -> None:
    def refuse() -> Sequence[Any]:
        raise AssertionError("the tree costs microseconds an event")

    assert len(read_cycle(cuda_events(New), intern, refuse).changes) == 0
