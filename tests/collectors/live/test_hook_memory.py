"""The hook's looks at memory, with a torch of a made-up GPU and a library that takes notes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from deepprof.collectors.live.hook import torch_hook
from deepprof.collectors.live.hook.torch_hook import NO_MEMORY, NO_TOTAL, OUT_OF_MEMORY, MemoryLooks

SIZE = 80 << 30


class Library:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.looks: list[tuple[int, int, int, int]] = []
        self.notices: list[tuple[int, bytes]] = []

    @property
    def deepprof_memory(self) -> Callable[..., None]:
        def take(*look: int) -> None:
            self.looks.append(look)  # type: ignore[arg-type]

        return take

    def deepprof_notice(self, code: int, text: bytes) -> None:
        self.notices.append((code, text))


class Cuda:
    """An allocator of several devices that counts as torch's does, and begins when it is first used.

    Its blocks are `longer` than what is requested; with None it does not count what was.
    """

    def __init__(self, longer: int | None = None) -> None:
        self.longer = longer
        self.allocated: dict[int, int] = {}
        self.peak: dict[int, int] = {}
        self.reserved: dict[int, int] = {}
        self.waiting: list[Callable[[], None]] = []

    def allocate(self, nbytes: int, device: int = 0) -> None:
        now = self.allocated[device] = self.allocated.get(device, 0) + nbytes
        self.peak[device] = max(self.peak.get(device, 0), now)
        self.reserved[device] = max(self.reserved.get(device, 0), now)

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        allocated = {"current": self.allocated[device], "peak": self.peak[device]}
        stats = {"allocated_bytes": {"all": allocated}, "reserved_bytes": {"all": {"current": self.reserved[device]}}}
        if self.longer is None:
            return stats
        return stats | {"requested_bytes": {"all": {name: max(0, n - self.longer) for name, n in allocated.items()}}}

    def get_device_properties(self, device: int) -> Any:
        return SimpleNamespace(total_memory=SIZE + device)

    def _lazy_call(self, call: Callable[[], None]) -> None:
        self.waiting.append(call)


class Optimizer:
    """Has parameters on these devices."""

    def __init__(self, *devices: str) -> None:
        places = [device.split(":") for device in devices]
        parameters = [SimpleNamespace(device=Place(kind, int(number))) for kind, number in places]
        self.param_groups = [{"params": [each]} for each in parameters]


class Place:
    """A torch.device."""

    def __init__(self, kind: str, index: int) -> None:
        self.type, self.index = kind, index

    def __hash__(self) -> int:
        return hash(self.type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and (self.type, self.index) == (other.type, other.index)


def make(longer: int | None = None) -> tuple[Cuda, Library, MemoryLooks]:
    cuda, library = Cuda(longer), Library()
    return cuda, library, MemoryLooks(SimpleNamespace(cuda=cuda), library)  # type: ignore[arg-type]


def test_a_look_has_what_is_in_use_and_held_of_how_much() -> None:
    cuda, library, looks = make()
    optimizer = Optimizer("cuda:0", "cuda:0", "cpu:0")
    cuda.allocate(100)
    looks.look(optimizer)
    cuda.allocate(20)
    looks.look(optimizer, (), {})
    assert library.looks == [(0, 100, 100, SIZE), (0, 120, NO_TOTAL, SIZE), (0, 120, 120, SIZE)]


def test_what_was_asked_for_is_in_use_where_torch_counts_it() -> None:
    cuda, library, looks = make(longer=30)
    for nbytes in (100, 60, -60):
        cuda.allocate(nbytes)
        looks.look(Optimizer("cuda:0"))
    assert library.looks == [(0, 70, 100, SIZE), (0, 130, NO_TOTAL, SIZE), (0, 130, 160, SIZE), (0, 70, 160, SIZE)]


def test_an_allocator_that_counts_no_requests_is_asked_for_blocks() -> None:
    """The counter is there, and stays 0."""
    cuda, library, looks = make(longer=1000)
    cuda.allocate(100)
    looks.look(Optimizer("cuda:0"))
    assert library.looks == [(0, 100, 100, SIZE)]


def test_a_peak_is_told_once_when_it_rises() -> None:
    cuda, library, looks = make()
    optimizer = Optimizer("cuda:0")
    for peak in (50, 50, 70, 60):
        cuda.allocate(peak)
        cuda.allocate(-peak)
        looks.look(optimizer)
    high = [look for look in library.looks if look[2] == NO_TOTAL]
    assert [look[1] for look in high] == [50, 70]
    assert [look[1] for look in library.looks if look[2] != NO_TOTAL] == [0, 0, 0, 0]


def test_all_devices_of_an_optimizer_are_looked_at() -> None:
    cuda, library, looks = make()
    cuda.allocate(1, 0)
    cuda.allocate(2, 1)
    looks.look(Optimizer("cuda:1"))
    looks.look(Optimizer("cpu:0"))
    looks.look(Optimizer("cuda:0", "cuda:1"))
    assert sorted(library.looks) == [(0, 1, 1, SIZE), (1, 2, 2, SIZE + 1), (1, 2, 2, SIZE + 1)]


@pytest.mark.parametrize("failing", ["memory_stats_as_nested_dict", "get_device_properties"])
def test_a_step_goes_on_whatever_torch_answers(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, library, looks = make()
    cuda.allocate(1)

    def refuse(_: int) -> None:
        raise RuntimeError("unknown to this release")

    monkeypatch.setattr(cuda, failing, refuse)
    looks.look(Optimizer("cuda:0"))
    looks.look(object())
    looks.note_failure(0, 1, 2, 3)
    assert library.looks == []


def test_a_failed_allocation_is_a_notice_with_a_look() -> None:
    cuda, library, looks = make()
    cuda.allocate(7)
    looks.note_failure(0, 2 << 30, SIZE, 1 << 29)
    text = b"out of memory on device 0: 2.00 GiB asked for, 0.50 GiB of 80.00 GiB free at the driver"
    assert library.notices == [(OUT_OF_MEMORY, text)]
    assert library.looks == [(0, 7, 7, SIZE)]


def test_torch_is_asked_only_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = []
    monkeypatch.setattr(torch_hook, "_watch_memory", lambda *_: watched.append(True))
    for has_device, expected in ((False, []), (True, [True])):
        library = Library()
        operators: Any = SimpleNamespace(has_device=has_device, library=library)
        torch_hook.start_memory(SimpleNamespace(), operators)  # type: ignore[arg-type]
        assert watched == expected
        assert [code for code, _ in library.notices] == ([] if has_device else [NO_MEMORY])


def test_it_hooks_the_steps_of_real_optimizers_and_waits_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (pip install torch==2.13.0)")
    from torch.optim import optimizer as hooks

    for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        monkeypatch.setattr(hooks, name, type(getattr(hooks, name))())
    cuda, observers = Cuda(), list[Any]()
    core = SimpleNamespace(_cuda_attach_out_of_memory_observer=observers.append)
    seen = list[Any]()
    monkeypatch.setattr(MemoryLooks, "look", lambda _, optimizer, *__: seen.append(optimizer))
    torch_hook._watch_memory(SimpleNamespace(cuda=cuda, _C=core), Library())  # type: ignore[arg-type]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    optimizer.step()
    assert seen == [optimizer, optimizer]
    assert (len(cuda.waiting), observers) == (1, [])
    cuda.waiting[0]()
    assert len(observers) == 1
